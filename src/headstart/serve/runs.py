"""The requests that have not ended, as the engine's thread sees them: who waits, who has a slot, how each ends; and the
recording of one of them, whose trace lines are handed on with the chunks they belong to.

A recorder is attached to the engine only while such a job runs, so that other jobs do not pay for it. Texts of tokens
are added later, on the event loop's side, where reading a large vocabulary does not delay the engine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.base.errors import HeadstartError
from headstart.engine.engine import Engine
from headstart.engine.request import Request
from headstart.engine.trace.lines import header
from headstart.engine.trace.recording import Recorder
from headstart.serve.bridge import TracedChunk
from headstart.serve.events import Ended, Ending, Events
from headstart.serve.outbox import ThreadAnswer
from headstart.serve.savings import PlainSteps, Tally
from headstart.types import Chunk, Step


class JobRecording:
    """The recording of one request of an engine. The engine's thread alone calls it."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self._lines: deque[dict[str, Any]] = deque()
        self._lines.append(header(engine, command="headstart serve", note=""))
        recorder = Recorder(self._lines.append, request=request.number)
        self.close = engine.record(recorder.observe)
        """Ends it; further calls do nothing."""

    def added_to(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """The chunks, each with the lines up to its own step; the last one with all there are."""
        found: list[Chunk] = []
        for number, chunk in enumerate(chunks, start=1):
            lines = []
            while self._lines and (number == len(chunks) or self._lines[0].get("i", 0) <= chunk.step.index):
                lines.append(self._lines.popleft())
            found.append(TracedChunk(chunk.text, chunk.tokens, chunk.step, tuple(lines)))
        return found


_WEIGHT = 0.1
"""Of the newest request in the mean of service times."""


@dataclass(slots=True, eq=False)
class Run:
    """A request and its answer. Times are `time.monotonic()` seconds."""

    request: Request
    answer: ThreadAnswer
    deadline: float | None
    started: float | None = None
    """When the step began in which it got its slot; None while it waits."""
    first_token: float | None = None
    unread_since: float | None = None
    """Since when its client has left too much unread."""
    recording: JobRecording | None = None
    """Where the job is recorded."""
    tally: Tally = field(default_factory=Tally)
    """What its steps took."""

    def note(self, step: Step, now: float) -> bool:
        """Note when the first tokens came; returns whether this step has them."""
        first = self.first_token is None and bool(step.tokens)
        if first:
            self.first_token = now
        return first

    def hand_on(self, *, broken_off: bool = False) -> None:
        """Give the answer what the engine has for it; of a request that was broken off not the word that it ended."""
        chunks = list(self.request.chunks)
        self.request.chunks.clear()
        if self.recording is not None:
            chunks = self.recording.added_to(chunks)
        self.answer.put([chunk for chunk in chunks if chunk.tokens or not broken_off])


class Runs:
    """All of them. The engine's thread alone calls this; others may read the three counts."""

    def __init__(self, events: Events) -> None:
        self.left_requests = self.left_prompt_tokens = 0
        """Requests that have waited and wait no more, and tokens of their prompts. They only grow."""
        self.service_seconds = 1.0
        """The mean time for which recent requests had a slot."""
        self.plain_steps = PlainSteps()
        self._events = events
        self._by_number: dict[int, Run] = {}
        self._waiting: list[Run] = []

    def __bool__(self) -> bool:
        return bool(self._by_number)

    def all(self) -> Sequence[Run]:
        return tuple(self._by_number.values())

    def of(self, answer: ThreadAnswer) -> Run | None:
        return next((run for run in self._by_number.values() if run.answer is answer), None)

    def numbered(self, request: int) -> Run | None:
        return self._by_number.get(request)

    def add(self, run: Run) -> None:
        """It waits."""
        self._by_number[run.request.number] = run
        self._waiting.append(run)

    def note_started(self, waiting: Collection[Request], began: float) -> None:
        """In the step that `began` then, all but the `waiting` ones have got a slot."""
        if len(waiting) == len(self._waiting):
            return
        numbers = {request.number for request in waiting}
        for run in [run for run in self._waiting if run.request.number not in numbers]:
            run.started = began
            self._waiting.remove(run)
            self.leave(run.answer)

    def leave(self, answer: ThreadAnswer) -> None:
        """Its job waits no more."""
        self.left_requests += 1
        self.left_prompt_tokens += len(answer.job.prompt)

    def end(self, run: Run, ending: Ending, error: HeadstartError | None = None) -> None:
        """Close the answer of a request that has ended, with its output or with an error."""
        now = time.monotonic()
        if run.started is None:
            self._waiting.remove(run)
            self.leave(run.answer)
        else:
            self.service_seconds += _WEIGHT * (now - run.started - self.service_seconds)
        del self._by_number[run.request.number]
        if run.recording is not None:
            run.recording.close()
        output = None if error is not None else run.request.finish()
        if output is not None:
            output = replace(output, saved=self.plain_steps.saved(run.tally))
        run.answer.close(output, error)
        arrived = run.answer.submitted
        self._events.publish(
            Ended(
                request=run.request.number,
                job=run.answer.job,
                output=output,
                ending=ending,
                queue_seconds=(now if run.started is None else run.started) - arrived,
                first_token_seconds=None if run.first_token is None else run.first_token - arrived,
                total_seconds=now - arrived,
            )
        )

    def drop_all(self, error: HeadstartError) -> Sequence[ThreadAnswer]:
        """Close all answers with an error, and forget everything; returns the answers."""
        runs = self.all()
        for run in runs:
            run.answer.close(None, error)
        for run in self._waiting:
            self.leave(run.answer)
        self._waiting.clear()
        self._by_number.clear()
        for run in runs:
            if run.recording is not None:
                run.recording.close()
        return [run.answer for run in runs]
