"""From the engine's thread to the event loop: answers, and one coalesced wake-up for all that have something new.

Waking the loop costs a system call and a fight for the interpreter, so it happens rarely. While streams run, the loop
looks for itself every few milliseconds; the engine wakes it only when it has stopped looking, and for what is urgent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from headstart.base.errors import HeadstartError
from headstart.serve.bridge import Job
from headstart.types import Chunk, Output


class ThreadAnswer:
    """The `Answer` of a job that an engine on another thread runs.

    The engine's thread calls `put` and `close`, the event loop everything else. A deque's ends may be used by two
    threads at once, and a flag is written by one of them alone.
    """

    def __init__(self, job: Job, submitted: float, cancel: Callable[[ThreadAnswer], None]) -> None:
        self.job = job
        self.submitted = submitted
        """`time.monotonic()` seconds."""
        self.listed = False
        """Whether it is among those that `Outbox` will wake."""
        self._cancel = cancel
        self._chunks: deque[Chunk] = deque()
        self._put = self._taken = 0
        self._read = False
        self._closed = False
        self._output: Output | None = None
        self._error: HeadstartError | None = None
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    # -- the event loop's side ------------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Sequence[Chunk]]:
        self._read = True
        while True:
            closed = self._closed  # before the chunks are taken: none can come after it
            self._changed.clear()
            if chunks := self._take():
                yield chunks
            elif closed:
                break
            else:
                await self._changed.wait()
        if self._error is not None:
            raise self._error

    async def output(self) -> Output:
        await self._ended.wait()
        if self._output is None:
            assert self._error is not None, "what has ended has an output or an error"
            raise self._error
        return self._output

    def cancel(self) -> None:
        if not self._closed:
            self._cancel(self)

    def wake(self) -> None:
        """Wake the coroutine that waits for something new."""
        self._changed.set()
        if self._closed:
            self._ended.set()

    def _take(self) -> list[Chunk]:
        chunks = []
        while self._chunks:
            chunks.append(self._chunks.popleft())
            self._taken += len(chunks[-1].tokens)
        return chunks

    # -- the engine's side ----------------------------------------------------------------------------------------

    def put(self, chunks: Sequence[Chunk]) -> None:
        self._chunks.extend(chunks)
        for chunk in chunks:
            self._put += len(chunk.tokens)

    def close(self, output: Output | None, error: HeadstartError | None = None) -> None:
        """The request has ended, with an output or with an error."""
        self._output, self._error = output, error
        self._closed = True  # last: what is closed is complete

    @property
    def unread(self) -> int:
        """Tokens that a reader has left; 0 where only the output is wanted, and no chunk is read."""
        return self._put - self._taken if self._read else 0


class Outbox:
    """Wakes answers on the event loop, at most once in `flush_seconds`, the urgent ones at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, flush_seconds: float) -> None:
        self.closed = False
        """Whether the event loop is gone."""
        self._loop = loop
        self._flush_seconds = flush_seconds
        self._ready: deque[ThreadAnswer] = deque()
        self._looking = False  # whether a look of the loop's own is due
        self._called = False  # whether a call of the engine's thread is on its way
        self._timer: asyncio.TimerHandle | None = None

    def flush(self, answers: Sequence[ThreadAnswer], *, urgent: bool) -> None:
        """On the engine's thread: these have something new."""
        for answer in answers:
            if not answer.listed:
                answer.listed = True
                self._ready.append(answer)
        if self._ready and not self._called and (urgent or not self._looking):
            self._called = True
            self.call(self._deliver)

    def call(self, action: Callable[[], object]) -> None:
        """Have the event loop do something, if it still runs."""
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # the loop is closed
            self.closed = True

    def _deliver(self) -> None:
        """On the event loop: wake all that are ready, and look again soon if there were any."""
        self._called = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        found = False
        while self._ready:
            found = True
            answer = self._ready.popleft()
            answer.listed = False  # before it is woken: what is put from now on lists it again
            answer.wake()
        self._looking = found
        if found:
            self._timer = self._loop.call_later(self._flush_seconds, self._deliver)
        elif self._ready:  # came after the last look, before `_looking` was cleared
            self._loop.call_soon(self._deliver)
