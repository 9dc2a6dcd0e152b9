"""The event loop is woken rarely: once for all that is new, and at once only where a client waits for its first word
or its end. A loop of this test's own, which runs nothing by itself, shows every call."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from support.bridges import Gate, bridged, job, read

import headstart as hs
from headstart.serve.bridge import Job
from headstart.serve.options import Limits
from headstart.serve.outbox import Outbox, ThreadAnswer
from headstart.serve.runs import Run
from headstart.serve.worker import ThreadBridge

Load = Callable[..., hs.Engine]


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Keeps what it is asked to do."""

    def __init__(self) -> None:
        self.closed = False
        self.calls: list[Callable[[], object]] = []
        self.later: list[tuple[Timer, Callable[[], object]]] = []

    def call_soon_threadsafe(self, action: Callable[[], object]) -> None:
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self.calls.append(action)

    call_soon = call_soon_threadsafe

    def call_later(self, seconds: float, action: Callable[[], object]) -> Timer:
        assert seconds == 0.25
        self.later.append((Timer(), action))
        return self.later[-1][0]

    def turn(self) -> None:
        """Do what is due now."""
        calls, self.calls = self.calls, []
        for action in calls:
            action()

    def tick(self) -> None:
        """Let the time of the timers come."""
        timers, self.later = self.later, []
        for timer, action in timers:
            if not timer.cancelled:
                action()


class Woken(ThreadAnswer):
    def __init__(self) -> None:
        super().__init__(Job((5,)), 0.0, lambda answer: None)
        self.times = 0

    def wake(self) -> None:
        self.times += 1


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def outbox(loop: Loop) -> Outbox:
    return Outbox(loop, 0.25)  # type: ignore[arg-type]


def test_while_the_loop_looks_for_itself_nobody_wakes_it(loop: Loop, outbox: Outbox) -> None:
    one, other = Woken(), Woken()
    outbox.flush([one], urgent=True)
    loop.turn()
    assert one.times == 1
    for _ in range(5):
        outbox.flush([one, other], urgent=False)
    assert loop.calls == [], "it looks again by itself"
    loop.tick()
    assert (one.times, other.times) == (2, 1), "once each, however often something came"
    loop.tick()  # finds nothing, and looks no more
    assert loop.later == []
    outbox.flush([other], urgent=False)
    assert len(loop.calls) == 1, "so it must be woken"


def test_what_is_urgent_does_not_wait_for_the_next_look(loop: Loop, outbox: Outbox) -> None:
    one = Woken()
    outbox.flush([one], urgent=False)
    loop.turn()
    outbox.flush([one], urgent=True)
    outbox.flush([one], urgent=True)
    assert len(loop.calls) == 1, "two that are urgent are one call"
    loop.turn()
    assert one.times == 2
    assert sum(not timer.cancelled for timer, _ in loop.later) == 1, "there is never more than one look to come"


def test_what_comes_between_the_last_look_and_the_word_of_it_is_not_lost(loop: Loop, outbox: Outbox) -> None:
    """The engine's thread still believes that the loop looks, which has just seen that there is nothing."""
    one = Woken()
    outbox.flush([one], urgent=False)
    loop.turn()

    class Late(type(outbox._ready)):  # type: ignore[misc]
        def __bool__(self) -> bool:
            self.asked = getattr(self, "asked", 0) + 1
            if self.asked == 1:
                return False  # the look finds nothing; and only now something comes
            if self.asked == 2:
                outbox.flush([one], urgent=False)
            return len(self) > 0

    outbox._ready = Late()
    loop.tick()
    loop.turn()
    assert one.times == 2


def test_a_loop_that_is_closed_is_noticed(loop: Loop, outbox: Outbox) -> None:
    loop.closed = True
    assert not outbox.closed
    outbox.flush([Woken()], urgent=True)
    assert outbox.closed


def test_the_first_token_comes_at_once_and_the_rest_together(load: Load) -> None:
    engine = load("llama")
    gate = Gate(engine)

    async def scene(bridge: ThreadBridge) -> None:
        (answer,) = bridge.submit([job([5], max_tokens=60, ignore_eos=True)])
        gate.allow(1)
        batches = []
        began = asyncio.get_running_loop().time()
        async for chunks in answer:
            batches.append(len(chunks))
            gate.open()
        looks = asyncio.get_running_loop().time() - began  # one a second
        assert batches[0] == 1
        assert sum(batches) == 60
        assert len(batches) <= 3 + looks

    bridged(engine, scene, Limits(flush_seconds=1.0))


def test_nothing_is_left_of_answers_that_nobody_holds(load: Load) -> None:
    engine = load("llama", "ngram", max_batch_size=2)

    async def scene(bridge: ThreadBridge) -> list[weakref.ref[Any]]:
        held = []
        for at in range(12):
            answer, other = bridge.submit([job([5], max_tokens=6), job([6], max_tokens=60)])
            held += [weakref.ref(answer), weakref.ref(other)]
            await read(answer)
            other.cancel()
            if at % 2:
                await other.output()
        return held

    held = bridged(engine, scene)
    gc.collect()
    assert [ref for ref in held if ref() is not None] == []
    assert not [thing for thing in gc.get_objects() if type(thing) is Run]
