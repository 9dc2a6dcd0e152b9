"""The engine's thread: it takes in what has come, steps the engine, and hands on what is new. Nothing else.

Every call of the engine is made here. Whatever becomes of a request, its answer is closed exactly once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import torch

from headstart.base.errors import EngineFailed, HeadstartError
from headstart.engine.engine import Engine
from headstart.serve.events import Ending, Events, Stepped
from headstart.serve.options import Limits
from headstart.serve.outbox import Outbox, ThreadAnswer
from headstart.serve.runs import JobRecording, Run, Runs
from headstart.types import Step

FAILURES = 3
"""Steps that may raise one after the other before the engine counts as failed for good."""
log = logging.getLogger(__name__)


class Stepper:
    """Runs an engine. `run` is the thread's body; `inbox` takes what it shall do between two steps."""

    def __init__(self, engine: Engine, limits: Limits, events: Events, outbox: Outbox) -> None:
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.runs = Runs(events)
        self.failure: HeadstartError | None = None
        """Why the engine runs no more."""
        self._engine = engine
        self._limits = limits
        self._events = events
        self._outbox = outbox
        self._failures = 0
        self._stop_at: float | None = None

    # -- what the inbox holds -------------------------------------------------------------------------------------

    def admit(self, answers: Sequence[ThreadAnswer]) -> None:
        """Give jobs to the engine, all of them or none."""
        runs: list[Run] = []
        try:
            if self.failure is not None:
                raise self.failure
            for answer in answers:
                job = answer.job
                request = self._engine.submit(job.prompt, job.sampling, job.drafting)
                runs.append(Run(request, answer, self._deadline(answer)))
        except Exception as error:
            self._refuse(answers, error if isinstance(error, HeadstartError) else _failed(error))
            for run in runs:
                self._engine.cancel(run.request)
            return
        for run in runs:
            if run.answer.job.trace:
                run.recording = JobRecording(self._engine, run.request)
            self.runs.add(run)

    def cancel(self, answer: ThreadAnswer) -> None:
        if (run := self.runs.of(answer)) is not None:
            self._cancel(run, "client")

    def stop(self, at: float) -> None:
        """End the thread when nothing runs any more, or at this time at the latest."""
        self._stop_at = at if self._stop_at is None else min(at, self._stop_at)

    # -- the loop -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `stop`, whatever happens."""
        torch.set_num_threads(torch.get_num_threads())  # OpenMP keeps the number for each thread
        while True:
            try:
                if self._stopped():
                    return
                self._take_in()
                if self.runs:
                    self._advance()
            except Exception as error:  # a bug here must not leave a client without an answer
                log.exception("the engine's thread failed")
                self._fail(_failed(error))

    def _stopped(self) -> bool:
        if self._outbox.closed:
            self._end_all()
            return True
        if self._stop_at is None or not self.inbox.empty():
            return False
        if time.monotonic() >= self._stop_at:
            self._end_all()
        return not self.runs

    def _take_in(self) -> None:
        """Do what the inbox holds; wait for something where nothing runs."""
        if not self.runs and self._stop_at is None:
            self.inbox.get()()
        while not self.inbox.empty():
            self.inbox.get()()

    def _advance(self) -> None:
        """One engine step, and its chunks for each answer."""
        began = time.monotonic()
        for run in self.runs.all():
            if run.deadline is not None and began >= run.deadline:
                self._cancel(run, "deadline")
        try:
            steps = self._engine.step()
        except Exception as error:
            self._recover(error)
            return
        self._failures = 0
        now = time.monotonic()
        self.runs.note_started(self._engine.waiting, began)
        self._events.publish(Stepped(steps, now))
        self._tally(steps)
        touched, urgent = [], False
        for step in steps:
            found = self.runs.numbered(step.request)
            if found is not None and found.request.chunks:
                urgent |= self._hand_on(found, step, now)
                touched.append(found.answer)
        self._outbox.flush(touched, urgent=urgent)
        if self.runs.plain_steps.due:
            self._time_plain_step()

    def _tally(self, steps: Sequence[Step]) -> None:
        """Count what the steps took, by request."""
        runs = [(run, step) for step in steps if (run := self.runs.numbered(step.request)) is not None]
        if len(runs) < len(steps):  # others step this engine as well
            return
        if steps:
            sampled = any(not run.request.sampling.greedy for run, _ in runs)
            kind = self.runs.plain_steps.observe(steps, sampled=sampled)
            for run, step in runs:
                run.tally.add(step, steps, kind)

    def _time_plain_step(self) -> None:
        """See what a plain step takes now; the tokens of the last step are on their way."""
        try:
            if (timed := self._engine.time_plain_step()) is not None:
                self.runs.plain_steps.timed(*timed)
        except Exception as error:
            self._recover(error)

    def _hand_on(self, run: Run, step: Step, now: float) -> bool:
        """Put a step's chunks into the answer; returns whether the client should have them at once."""
        first = run.note(step, now)
        run.hand_on()
        if step.finish_reason is not None:
            self.runs.end(run, "finished")
            return True
        if run.answer.unread <= self._limits.max_unread_tokens:
            run.unread_since = None
        elif run.unread_since is None:
            run.unread_since = now
        elif now - run.unread_since >= self._limits.max_unread_seconds:
            self._cancel(run, "slow reader")
        return first

    def _deadline(self, answer: ThreadAnswer) -> float | None:
        """The earlier of the job's own and the server's."""
        own, most = answer.job.deadline, self._limits.max_request_seconds
        if most is None:
            return own
        return answer.submitted + most if own is None else min(own, answer.submitted + most)

    # -- ends -----------------------------------------------------------------------------------------------------

    def _cancel(self, run: Run, ending: Ending) -> None:
        self._engine.cancel(run.request)
        run.hand_on()
        self.runs.end(run, ending)
        self._outbox.flush([run.answer], urgent=True)

    def _end_all(self) -> None:
        for run in self.runs.all():
            self._cancel(run, "shutdown")

    def _refuse(self, answers: Sequence[ThreadAnswer], error: HeadstartError) -> None:
        for answer in answers:
            self.runs.leave(answer)
            answer.close(None, error)
        self._outbox.flush(answers, urgent=True)

    # -- what should not happen -----------------------------------------------------------------------------------

    def _recover(self, error: Exception) -> None:
        """End what ran in a step that raised, and go on with what waits, unless the engine has come to harm."""
        log.exception("a step of the engine raised; the requests that ran in it end")
        self._failures += 1
        failure = _failed(error)
        self.runs.note_started(self._engine.waiting, time.monotonic())
        broken_off = [self._break_off(run, failure) for run in self.runs.all() if run.started is not None]
        # What a failed step may have written is shared with nobody
        if all(broken_off) and self._engine.forget_texts() and self._failures < FAILURES:
            return
        log.error("the engine has failed for good")
        self.failure = failure  # before any answer is closed with it
        for run in self.runs.all():
            self._break_off(run, failure)

    def _break_off(self, run: Run, error: HeadstartError) -> bool:
        """End one request with an error; returns whether the engine could still cancel it."""
        try:
            self._engine.cancel(run.request)
        except Exception:
            log.exception("the engine could not cancel a request")
            return False
        finally:
            run.hand_on(broken_off=True)
            self.runs.end(run, "failure", error)
            self._outbox.flush([run.answer], urgent=True)
        return True

    def _fail(self, failure: HeadstartError) -> None:
        """Refuse everything from now on, and close what is open."""
        self.failure = failure
        self._outbox.flush(self.runs.drop_all(failure), urgent=True)


def _failed(error: Exception) -> EngineFailed:
    failure = EngineFailed(
        f"the engine failed with {type(error).__name__}", hint="the server's log says more; send the request again"
    )
    failure.__cause__ = error
    return failure
