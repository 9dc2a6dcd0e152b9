"""The engine's thread: it takes in what has come, steps the engine, and hands on what is new. Nothing else.

Every call of the engine is made here. Whatever becomes of a request, its answer is closed exactly once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

import torch

from headstart.engine.engine import Engine
from headstart.engine.request import Request
from headstart.errors import EngineFailed, HeadstartError
from headstart.serve.bridge import Job
from headstart.serve.limits import Limits
from headstart.serve.outbox import Outbox, ThreadAnswer
from headstart.serve.watching import Ended, Ending, Watchers
from headstart.theory.rounds import PositionCounts
from headstart.types import Step

FAILURES = 3
"""Steps that may raise one after the other before the engine counts as failed for good."""
_WEIGHT = 0.1
"""Of the newest request in the mean of service times."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Run:
    """A request that has not ended, as the engine's thread sees it. Times are `time.monotonic()` seconds."""

    request: Request
    answer: ThreadAnswer
    deadline: float | None
    started: float | None = None
    first_token: float | None = None
    unread_since: float | None = None
    by_source: dict[str, PositionCounts] = field(default_factory=dict)


class Stepper:
    """Runs an engine. `run` is the thread's body; `inbox` takes what it shall do between two steps."""

    def __init__(self, engine: Engine, limits: Limits, watchers: Watchers, outbox: Outbox) -> None:
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.failure: HeadstartError | None = None
        self.left_requests = self.left_prompt_tokens = 0
        """Requests that have waited and wait no more, and tokens of their prompts. They only grow."""
        self.service_seconds = 1.0
        """The mean time for which recent requests had a slot."""
        self._engine = engine
        self._limits = limits
        self._watchers = watchers
        self._outbox = outbox
        self._runs: dict[int, Run] = {}
        self._waiting: list[Run] = []
        self._by_answer: dict[ThreadAnswer, Run] = {}
        self._failures = 0
        self._stop_at: float | None = None

    # -- what the inbox holds -------------------------------------------------------------------------------------

    def admit(self, answers: Sequence[ThreadAnswer]) -> None:
        """Give jobs to the engine, all of them or none."""
        requests: list[Request] = []
        try:
            if self.failure is not None:
                raise self.failure
            for answer in answers:
                requests.append(_submit(self._engine, answer.job))
        except Exception as error:
            for request in requests:
                self._engine.cancel(request)
            for answer in answers:
                self._refuse(answer, error if isinstance(error, HeadstartError) else _failed(error))
            return
        for request, answer in zip(requests, answers, strict=True):
            run = Run(request, answer, self._deadline(answer))
            self._runs[request.number] = self._by_answer[answer] = run
            self._waiting.append(run)

    def cancel(self, answer: ThreadAnswer) -> None:
        if (run := self._by_answer.get(answer)) is not None:
            self._cancel(run, "client")

    def stop(self, at: float) -> None:
        """End the thread when nothing runs any more, or at this time at the latest."""
        self._stop_at = at if self._stop_at is None else min(at, self._stop_at)

    # -- the loop -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `stop`, whatever happens."""
        torch.set_num_threads(torch.get_num_threads())  # OpenMP keeps the number for each thread
        while not self._stopped():
            try:
                self._take_in()
                if self._runs:
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
        return not self._runs

    def _take_in(self) -> None:
        """Do what the inbox holds; wait for something where nothing runs."""
        if not self._runs and self._stop_at is None:
            self.inbox.get()()
        while not self.inbox.empty():
            self.inbox.get()()

    def _advance(self) -> None:
        """One engine step, and what it brought to whom."""
        began = time.monotonic()
        self._expire(began)
        try:
            steps = self._engine.step()
        except Exception as error:
            self._recover(error)
            return
        self._failures = 0
        now = time.monotonic()
        self._note_started(began)
        self._watchers.stepped(steps, now)
        touched, urgent = [], False
        for step in steps:
            run = self._runs.get(step.request)
            if run is not None and run.request.chunks:
                urgent |= self._hand_on(run, step, now)
                touched.append(run.answer)
        self._outbox.flush(touched, urgent=urgent)

    def _hand_on(self, run: Run, step: Step, now: float) -> bool:
        """Put what a step brought into the answer; returns whether the client should have it at once."""
        first = run.first_token is None and bool(step.tokens)
        if first:
            run.first_token = now
        if len(step.draft):
            counts = run.by_source.setdefault(step.draft.source, PositionCounts())
            counts.add(max(step.draft.depths), len(step.path))
        _move_chunks(run)
        if step.finish_reason is not None:
            self._end(run, "finished")
            return True
        if run.answer.unread <= self._limits.max_unread_tokens:
            run.unread_since = None
        elif run.unread_since is None:
            run.unread_since = now
        elif now - run.unread_since >= self._limits.max_unread_seconds:
            self._cancel(run, "slow reader")
        return first

    def _expire(self, now: float) -> None:
        late = [run for run in self._runs.values() if run.deadline is not None and now >= run.deadline]
        for run in late:
            self._cancel(run, "deadline")

    def _note_started(self, began: float) -> None:
        """Requests that got a slot in the step that `began` then do not wait any more."""
        if len(self._waiting) == len(self._engine.scheduler.waiting):
            return
        waiting = {request.number for request in self._engine.scheduler.waiting}
        for run in [run for run in self._waiting if run.request.number not in waiting]:
            run.started = began
            run.answer.begin(began - run.answer.submitted)
            self._leave(run)

    def _leave(self, run: Run) -> None:
        self._waiting.remove(run)
        self._count_left(run.answer.job)

    def _count_left(self, job: Job) -> None:
        self.left_requests += 1
        self.left_prompt_tokens += len(job.prompt)

    # -- ends -----------------------------------------------------------------------------------------------------

    def _cancel(self, run: Run, ending: Ending) -> None:
        self._engine.cancel(run.request)
        _move_chunks(run)
        self._end(run, ending)
        self._outbox.flush([run.answer], urgent=True)

    def _end(self, run: Run, ending: Ending, error: HeadstartError | None = None) -> None:
        """Close the answer of a request that has ended."""
        now = time.monotonic()
        if run.started is None:
            self._leave(run)
        else:
            self.service_seconds += _WEIGHT * (now - run.started - self.service_seconds)
        del self._runs[run.request.number], self._by_answer[run.answer]
        output = None if error is not None else run.request.finish()
        run.answer.close(output, error)
        arrived = run.answer.submitted
        self._watchers.ended(
            Ended(
                request=run.request.number,
                job=run.answer.job,
                output=output,
                ending=ending,
                queue_seconds=(now if run.started is None else run.started) - arrived,
                first_token_seconds=None if run.first_token is None else run.first_token - arrived,
                total_seconds=now - arrived,
                by_source=run.by_source,
            )
        )

    def _end_all(self) -> None:
        for run in tuple(self._runs.values()):
            self._cancel(run, "shutdown")

    def _refuse(self, answer: ThreadAnswer, error: HeadstartError) -> None:
        self._count_left(answer.job)
        answer.close(None, error)
        self._outbox.flush([answer], urgent=True)

    # -- a step that raised ---------------------------------------------------------------------------------------

    def _recover(self, error: Exception) -> None:
        """End what ran with an error, and go on with what waits, unless the engine has come to harm."""
        log.exception("a step of the engine raised; the requests that ran in it end")
        self._failures += 1
        failure = _failed(error)
        self._note_started(time.monotonic())
        running = [run for run in self._runs.values() if run.started is not None]
        broken_off = [self._break_off(run, failure) for run in running]
        cache = self._engine.cache
        if all(broken_off) and cache.free_slots == len(cache.lengths) and self._failures < FAILURES:
            return
        log.error("the engine has failed for good")
        self.failure = failure  # before anyone is told of it
        for run in tuple(self._runs.values()):
            self._break_off(run, failure)
        self._fail(failure)

    def _fail(self, failure: HeadstartError) -> None:
        """Refuse everything from now on, and close what is open."""
        self.failure = failure
        for run in self._runs.values():
            run.answer.close(None, failure)
        self._outbox.flush(tuple(self._by_answer), urgent=True)
        self.left_requests += len(self._waiting)
        self.left_prompt_tokens += sum(len(run.answer.job.prompt) for run in self._waiting)
        self._waiting.clear()
        self._runs.clear()
        self._by_answer.clear()

    def _break_off(self, run: Run, error: HeadstartError) -> bool:
        """End one request with an error; returns whether the engine could still cancel it."""
        try:
            self._engine.cancel(run.request)
        except Exception:
            log.exception("the engine could not cancel a request")
            return False
        finally:
            _move_chunks(run, final=False)
            self._end(run, "failure", error)
            self._outbox.flush([run.answer], urgent=True)
        return True

    def _deadline(self, answer: ThreadAnswer) -> float | None:
        """The earlier of the job's own and the server's."""
        own, most = answer.job.deadline, self._limits.max_request_seconds
        if most is None:
            return own
        return answer.submitted + most if own is None else min(own, answer.submitted + most)


def _submit(engine: Engine, job: Job) -> Request:
    return engine.submit(job.prompt, job.sampling)


def _move_chunks(run: Run, *, final: bool = True) -> None:
    """Hand what the engine has for a request to its answer. final: the chunk that ends it too."""
    chunks = list(run.request.chunks)
    run.request.chunks.clear()
    run.answer.put([chunk for chunk in chunks if final or chunk.tokens])


def _failed(error: Exception) -> EngineFailed:
    failure = EngineFailed(
        f"the engine failed with {type(error).__name__}", hint="the server's log says more; send the request again"
    )
    failure.__cause__ = error
    return failure
