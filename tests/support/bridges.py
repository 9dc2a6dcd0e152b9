"""A `ThreadBridge` around an engine for the length of one coroutine, and how its answers are read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import headstart as hs
from headstart.serve.bridge import Answer, Job
from headstart.serve.events import Subscriber
from headstart.serve.options import Limits
from headstart.serve.worker import ThreadBridge
from headstart.types import Chunk, Output

T = TypeVar("T")
PATIENCE = 120.0
"""Seconds after which a test that hangs fails."""


def bridged(
    engine: hs.Engine,
    scene: Callable[[ThreadBridge], Awaitable[T]],
    limits: Limits | None = None,
    subscribers: Sequence[Subscriber] = (),
) -> T:
    """What the scene returns; afterwards the bridge is stopped and nothing is left in the engine."""

    async def play() -> T:
        bridge = ThreadBridge(engine, limits, subscribers)
        await bridge.start()
        try:
            return await asyncio.wait_for(scene(bridge), PATIENCE)
        finally:
            await asyncio.wait_for(bridge.stop(0.0), PATIENCE)

    found = asyncio.run(play())
    assert not engine.scheduler.requests(), "a request was left behind"
    assert engine.cache.free_slots == len(engine.cache.lengths), "a slot was not given back"
    engine.cache.check()
    return found


def job(prompt: Sequence[int], **sampling: object) -> Job:
    return Job(tuple(prompt), hs.Sampling(**sampling))  # type: ignore[arg-type]


class Gate:
    """Holds an engine's steps back until they are allowed, so that a test knows what has happened and what has not."""

    def __init__(self, engine: hs.Engine) -> None:
        self._allowed = threading.Semaphore(0)
        self._open = False
        original = engine.step

        def step() -> Any:
            if not self._open:
                self._allowed.acquire(timeout=PATIENCE)
            return original()

        engine.step = step  # type: ignore[method-assign]

    def allow(self, steps: int) -> None:
        self._allowed.release(steps)

    def open(self) -> None:
        self._open = True
        self._allowed.release()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def read(answer: Answer) -> tuple[list[Chunk], Output]:
    """All chunks and the output, which must say the same."""
    chunks = [chunk async for several in answer for chunk in several]
    output = await answer.output()
    assert "".join(chunk.text for chunk in chunks) == output.text
    assert tuple(token for chunk in chunks for token in chunk.tokens) == output.tokens
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == output.finish_reason
    return chunks, output
