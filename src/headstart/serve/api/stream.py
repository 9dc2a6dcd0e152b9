"""An answer as server-sent events: the response that streams, pings while silent, and ends when its client does.

The client may go away while its answers are waited for: every wait here ends when it does, and its requests with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from starlette.responses import Response

from headstart.base.errors import HeadstartError
from headstart.serve.api.answering.writer import Answering
from headstart.serve.api.errors import failure_of
from headstart.serve.bridge import Answer
from headstart.types import Chunk, Output

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


_SELDOM = 0.1
"""Seconds between two reads of chunks that are only counted. They are read, since a step may hold large tensors."""


class ClientGone(Exception):
    """The client closed the connection."""


@asynccontextmanager
async def attended(receive: Receive, answers: Sequence[Answer]) -> AsyncIterator[asyncio.Task[None]]:
    """Answers of one client: a task that ends when it goes away. However this block ends, nothing of them runs on."""
    gone = asyncio.create_task(_until_gone(receive))
    try:
        yield gone
    finally:
        for answer in answers:
            answer.cancel()  # does nothing where it has ended
        gone.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await gone


async def flushes(
    answers: Sequence[Answer], gone: asyncio.Task[None], silence: float, *, first: float | None = None
) -> AsyncIterator[tuple[int, Sequence[Chunk] | None] | None]:
    """(choice, its new chunks) as they come, (choice, None) at its end, and None after so many seconds without any.

    first: the seconds before the first None, if they differ.

    Raises:
        ClientGone: it has gone; also while the answers wait or their prompts are read.
        HeadstartError: the engine failed.
    """
    iterators = [aiter(answer) for answer in answers]
    pending = {_next(each): choice for choice, each in enumerate(iterators)}
    patience = silence if first is None else first
    try:
        while pending:
            done, _ = await asyncio.wait({*pending, gone}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            patience = silence
            if gone in done:
                raise ClientGone
            if not done:
                yield None
            for task in [each for each in pending if each in done]:
                choice = pending.pop(task)
                try:
                    chunks = task.result()
                except StopAsyncIteration:
                    yield choice, None
                    continue
                pending[_next(iterators[choice])] = choice
                yield choice, chunks
    finally:
        for task in pending:
            task.cancel()


async def outputs(
    answers: Sequence[Answer], gone: asyncio.Task[None], take: Callable[[int, Sequence[Chunk]], None]
) -> list[Output]:
    """The whole outputs. take: is shown the chunks meanwhile, seldom: they are only counted, and waking costs time.

    Raises:
        ClientGone, HeadstartError: as `flushes`; also the error of a request that ended with one.
    """
    readers = [asyncio.create_task(_read(answer, partial(take, choice))) for choice, answer in enumerate(answers)]
    everything = asyncio.gather(*readers)
    try:
        either: set[asyncio.Future[Any]] = {everything, gone}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not everything.done():
            raise ClientGone
        return everything.result()
    finally:
        for reader in readers:
            reader.cancel()
        with suppress(asyncio.CancelledError, HeadstartError):
            await everything


async def _read(answer: Answer, take: Callable[[Sequence[Chunk]], None]) -> Output:
    ended = asyncio.create_task(output_of(answer))
    try:
        async for chunks in answer:
            take(chunks)
            await asyncio.wait({ended}, timeout=_SELDOM)
        return await ended
    finally:
        ended.cancel()
        with suppress(asyncio.CancelledError, HeadstartError):
            await ended


async def output_of(answer: Answer) -> Output:
    """The output of an answer that has ended.

    Raises:
        HeadstartError: it ended with an error.
    """
    output = await answer.output()
    if output.error is not None:
        raise output.error
    return output


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _next(iterator: AsyncIterator[Sequence[Chunk]]) -> asyncio.Task[Sequence[Chunk]]:
    async def step() -> Sequence[Chunk]:
        return await anext(iterator)

    return asyncio.create_task(step())


Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_PATIENCE = 0.5
"""Seconds that the status of a stream waits for its first tokens: what is wrong shows there, and becomes the status."""
LONGEST = 0.05
"""Seconds between two tokens, however slow the model is."""
_SHARE = 0.8
"""Of the time measured: so that showing never falls behind writing."""
log = logging.getLogger("headstart.serve")


def note(error: BaseException, what: str) -> None:
    """Log an error that is a bug: its kind and place, since its words could hold a prompt. The rest at level debug."""
    if isinstance(error, HeadstartError):
        return
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].name}, line {frames[-1].lineno}" if frames else "an unknown place"
    log.error("%s failed: %s in %s", what, type(error).__name__, place)
    log.debug("%s failed", what, exc_info=error)


class Pace:
    """`speculation.smooth`: the tokens of a burst shown evenly over the time that a burst takes.

    It says how long to wait behind each piece, from how long the last bursts took.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._each = 0.0

    def burst(self, pieces: int) -> float:
        """A burst of so many pieces has come: the seconds to wait behind each of them."""
        now = time.monotonic()
        if self._last is not None and pieces:
            each = (now - self._last) / pieces
            self._each = each if self._each == 0.0 else 0.5 * (self._each + each)
        self._last = now
        return min(_SHARE * self._each, LONGEST) if pieces > 1 else 0.0


class EventStream(Response):
    """A response that sends one answer as events. The answers have been submitted already.

    ping_seconds: of silence after which a comment tells proxies that the connection lives.
    stall_seconds: that the client may take for one event before it counts as gone.
    before_end: what is done before the client learns that its answer is complete.
    """

    def __init__(
        self, writer: Answering, answers: Sequence[Answer], *, ping_seconds: float, stall_seconds: float,
        before_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._before_end = before_end
        self._writer, self._answers = writer, answers
        self._ping, self._stall = ping_seconds, stall_seconds
        self._begun = False
        self._pace = Pace() if writer.form.smooth else None

    async def __call__(self, _scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        async with attended(receive, self._answers) as gone:
            try:
                await self._events(gone, send)
            except (ClientGone, OSError, TimeoutError):
                return  # the client is gone
            except Exception as error:
                if not self._begun:
                    raise  # an answer with a status of its own
                note(error, "a stream")
                await self._all(send, self._writer.failed(failure_of(error)))
            await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self, gone: asyncio.Task[None], send: Send) -> None:
        async for found in flushes(self._answers, gone, self._ping, first=min(_PATIENCE, self._ping)):
            if found is None:
                await (self._data(send, self._writer.ping) if self._begun else self._begin(send))
                continue
            choice, chunks = found
            if chunks is not None:
                events = self._writer.feed(choice, chunks)
            else:
                events = self._writer.finish(choice, await output_of(self._answers[choice]))
                if self._before_end is not None:
                    await self._before_end()
            if events and not self._begun:
                await self._begin(send)
            await (self._all(send, events) if chunks is None else self._burst(send, events))
        if self._writer.end:  # an empty piece would end the body
            await self._data(send, self._writer.end)

    async def _begin(self, send: Send) -> None:
        self._begun = True
        await self._send(send, {"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await self._all(send, self._writer.open())

    async def _burst(self, send: Send, events: Sequence[Mapping[str, Any]]) -> None:
        if self._pace is None:
            await self._all(send, events)
            return
        wait = self._pace.burst(len(events))
        for each in events:
            await self._data(send, self._writer.encode(each))
            await asyncio.sleep(wait)

    async def _all(self, send: Send, events: Sequence[Mapping[str, Any]]) -> None:
        if events:
            await self._data(send, b"".join(map(self._writer.encode, events)))

    async def _data(self, send: Send, data: bytes) -> None:
        await self._send(send, {"type": "http.response.body", "body": data, "more_body": True})

    async def _send(self, send: Send, message: MutableMapping[str, Any]) -> None:
        async with asyncio.timeout(self._stall):
            await send(message)
