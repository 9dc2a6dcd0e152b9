"""`ThreadBridge`: a `Bridge` to an engine that a thread of this process steps."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from headstart.base.errors import HeadstartError, InvalidOption, Overloaded, ServerStopping
from headstart.base.words import counted
from headstart.engine.engine import Engine
from headstart.engine.scheduler import SlotView
from headstart.serve.bridge import Job, SlotState, T
from headstart.serve.events import Events, Refused, Subscriber
from headstart.serve.names import public_words
from headstart.serve.options import Limits
from headstart.serve.outbox import Outbox, ThreadAnswer
from headstart.serve.stepping import Stepper
from headstart.types import Structure

_LEAST_RETRY_SECONDS, _MOST_RETRY_SECONDS = 1.0, 120.0


class ThreadBridge:
    """One engine, one thread that steps it.

    Args:
        engine: only the bridge may step it while the bridge runs.
        limits: how much may wait, and for how long.
        subscribers: are called with every event.
    """

    def __init__(self, engine: Engine, limits: Limits | None = None, subscribers: Sequence[Subscriber] = ()) -> None:
        self.limits = limits or Limits()
        self.thread: threading.Thread | None = None
        """The engine's."""
        self._engine = engine
        self._events = Events(subscribers)
        self._stepper: Stepper | None = None
        self._accepting = False
        self._ended: asyncio.Event | None = None
        self._requests = self._prompt_tokens = 0  # submitted so far; the stepper counts those that wait no more

    # -- beginning and end ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._stepper is not None:
            return
        loop = asyncio.get_running_loop()
        outbox = Outbox(loop, self.limits.flush_seconds)
        self._requests = self._prompt_tokens = 0
        self._stepper = stepper = Stepper(self._engine, self.limits, self._events, outbox)
        self._ended = ended = asyncio.Event()
        if self.tokenizer is not None:
            self.encode("a")  # sets the tokenizer's own switches before two threads use it

        def body() -> None:
            before = sys.getswitchinterval()
            # the event loop's Python is short: the engine should not wait five milliseconds for its turn behind it
            sys.setswitchinterval(self.limits.switch_seconds)
            try:
                stepper.run()
            finally:
                sys.setswitchinterval(before)
                outbox.call(ended.set)

        self.thread = threading.Thread(target=body, name="headstart-engine", daemon=True)
        self.thread.start()
        self._accepting = True

    async def stop(self, grace_seconds: float) -> None:
        stepper, ended = self._stepper, self._ended
        if stepper is None or ended is None:
            return
        self._accepting = False
        stepper.inbox.put(partial(stepper.stop, time.monotonic() + grace_seconds))
        await ended.wait()
        if self._stepper is stepper:
            self._stepper = None

    # -- jobs -----------------------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[Job]) -> Sequence[ThreadAnswer]:
        stepper = self._running()
        self._check_room(jobs, stepper)
        now = time.monotonic()
        answers = [
            ThreadAnswer(job, now, lambda answer: stepper.inbox.put(partial(stepper.cancel, answer))) for job in jobs
        ]
        self._requests += len(jobs)
        self._prompt_tokens += sum(len(job.prompt) for job in jobs)
        stepper.inbox.put(partial(stepper.admit, answers))
        return answers

    def _running(self) -> Stepper:
        stepper = self._stepper
        if stepper is None or not self._accepting:
            raise ServerStopping("the server takes no more requests", hint="send it to another, or come back later")
        if stepper.failure is not None:
            raise stepper.failure
        return stepper

    async def between_steps(self, action: Callable[[], T]) -> T:
        found: Future[T] = Future()

        def done() -> None:
            if not found.set_running_or_notify_cancel():
                return  # nobody waits for it any more
            try:
                found.set_result(action())
            except Exception as error:
                found.set_exception(error)

        self._running().inbox.put(done)
        return await asyncio.wrap_future(found)

    def _check_room(self, jobs: Sequence[Job], stepper: Stepper) -> None:
        """Raise `Overloaded` if these jobs would make the queue too long. Those that find a free slot do not wait."""
        limits, queued = self.limits, self.queued
        most = self._engine.max_batch_size + limits.max_waiting_requests
        if len(jobs) > most:  # to come back would not help
            raise InvalidOption(
                f"one request for {counted(len(jobs), 'text')}, and at most {most} can run and wait",
                hint="ask for fewer at once",
            )
        waiting = max(0, queued + len(jobs) - self._engine.free_slots)
        tokens = self._prompt_tokens - stepper.runs.left_prompt_tokens + sum(len(job.prompt) for job in jobs)
        tokens_fit = waiting == 0 or queued == 0 or tokens <= limits.max_waiting_prompt_tokens
        if waiting <= limits.max_waiting_requests and tokens_fit:
            return
        self._events.publish(Refused())
        rounds = max(1, queued) / self._engine.max_batch_size
        seconds = min(max(rounds * stepper.runs.service_seconds, _LEAST_RETRY_SECONDS), _MOST_RETRY_SECONDS)
        raise Overloaded(
            f"{queued} requests wait already",
            hint=f"come back in {counted(seconds, 'second', '.0f')}",
            retry_after=seconds,
        )

    def encode(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        return self._engine.encode(prompt)

    def prepare(self, structure: Structure) -> None:
        self._engine.prepare(structure)

    # -- what there is to know ------------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Any:
        return self._engine.tokenizer

    def describe(self) -> Mapping[str, Any]:
        return self._engine.describe()

    def slots(self) -> Sequence[SlotState]:
        """Read while the engine steps: each number is right, but two of them may stem from different steps."""
        return [_state(*each) for each in enumerate(self._engine.slots())]

    @property
    def queued(self) -> int:
        return 0 if self._stepper is None else self._requests - self._stepper.runs.left_requests

    @property
    def failure(self) -> HeadstartError | None:
        return None if self._stepper is None else self._stepper.failure


def _state(number: int, slot: SlotView) -> SlotState:
    request = slot.request
    if request is None:
        return SlotState(number, None, slot.tokens)
    state, generated = request.speculation, max(0, request.generated)
    words = public_words(state.not_guessing, state.drafter)
    return SlotState(number, request.number, slot.tokens, len(request.prompt), generated, words)
