"""Waiting for answers while the client may go away: every wait here ends when it does, and its requests with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from headstart.base.errors import HeadstartError
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
