"""What goes wrong behind the bridge hurts those it concerns, is said to them, and to nobody else."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from support.bridges import Gate, bridged, job, read, until
from support.greedy import NEW, prompts, reference

import headstart as hs
from headstart.base.errors import DrafterFailed, EngineFailed, NonFiniteLogits
from headstart.drafters import Drafter, Row
from headstart.serve.events import Ended, Event, Stepped
from headstart.serve.stepping import FAILURES
from headstart.serve.worker import ThreadBridge
from headstart.types import Draft

Load = Callable[..., hs.Engine]
LONG: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True}


def failing(engine: hs.Engine, at: set[int]) -> Iterator[int]:
    """Make these steps raise, counted from 0; returns the counter."""
    original, count = engine.step, itertools.count()

    def step() -> Any:
        if next(count) in at:
            raise ZeroDivisionError("of nobody's making")
        return original()

    engine.step = step  # type: ignore[method-assign]
    return count


def test_a_step_that_raises_ends_what_ran_and_nothing_else(
    tiny: Callable[..., str], load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    engine = load("llama", max_batch_size=1)
    failing(engine, {5})

    async def scene(bridge: ThreadBridge) -> None:
        running, waiting = bridge.submit([job(prompts()[0], **LONG), job(prompts()[1], max_tokens=NEW)])
        seen: list[int] = []

        async def reading() -> None:
            async for chunks in running:
                seen.extend(token for chunk in chunks for token in chunk.tokens)
                assert all(chunk.finish_reason is None for chunk in chunks), "it did not end, it failed"

        with pytest.raises(EngineFailed, match="ZeroDivisionError") as raised:
            await reading()
        assert len(seen) == 5, "what there was by then is handed on"
        assert "nobody" not in str(raised.value), "what exactly failed is the log's"
        with pytest.raises(EngineFailed):
            await running.output()
        assert (await waiting.output()).tokens == reference(tiny("llama"))[1]
        assert bridge.failure is None

    with caplog.at_level(logging.ERROR):
        bridged(engine, scene)
    assert "of nobody's making" in caplog.text


def test_an_engine_that_keeps_failing_is_given_up(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    engine = load("llama", max_batch_size=1)
    failing(engine, set(range(3, 10**6)))

    async def scene(bridge: ThreadBridge) -> None:
        answers = bridge.submit([job([5], **LONG) for _ in range(FAILURES + 2)])
        for answer in answers:
            with pytest.raises(EngineFailed):
                await answer.output()
        assert isinstance(bridge.failure, EngineFailed)
        assert bridge.queued == 0
        with pytest.raises(EngineFailed):
            bridge.submit([job([5])])

    bridged(engine, scene)


def test_an_engine_that_lost_a_slot_is_given_up(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    engine = load("llama", max_batch_size=1)
    count = failing(engine, {3})
    release, lost = engine.cache.release, []

    def losing(slot: int, *_: Any) -> None:
        lost.append(slot)

    engine.cache.release = losing  # type: ignore[method-assign]

    async def play() -> None:
        bridge = ThreadBridge(engine)
        await bridge.start()
        answers = bridge.submit([job([5], **LONG)] * 2)
        for answer in answers:
            with pytest.raises(EngineFailed):
                await answer.output()
        assert bridge.failure is not None
        await bridge.stop(0.0)

    asyncio.run(play())
    assert next(count) == 4, "it is not tried again"
    release(lost[0])


def test_after_a_step_that_raised_no_slot_keeps_a_text(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody knows what the step has written where."""
    engine = load("llama", max_batch_size=2, prefix_cache=True)
    failing(engine, {10})
    prompt = list(range(3, 60))

    async def scene(bridge: ThreadBridge) -> None:
        cached = []
        for _ in range(2):
            (answer,) = bridge.submit([job(prompt, max_tokens=4, ignore_eos=True)])
            cached.append((await answer.output()).stats.cached_tokens)
        assert cached == [0, len(prompt) - 1]
        (answer,) = bridge.submit([job(prompt, **LONG)])
        with pytest.raises(EngineFailed):
            await answer.output()
        (answer,) = bridge.submit([job(prompt, max_tokens=4)])
        assert (await answer.output()).stats.cached_tokens == 0

    bridged(engine, scene)


def test_a_request_whose_logits_are_no_numbers_ends_alone(tiny: Callable[..., str], load: Load) -> None:
    engine = load("llama", max_batch_size=4)
    original = engine.target.forward

    @torch.inference_mode()
    def poisoned(segments: Sequence[Any], *args: Any, **options: Any) -> Any:
        forward = original(segments, *args, **options)
        row = 0
        for segment in segments:
            if 96 in segment.causal and segment.judged:
                forward.logits[row : row + segment.judged] = torch.nan
            row += segment.judged
        return forward

    engine.target.forward = poisoned  # type: ignore[method-assign]

    async def scene(bridge: ThreadBridge) -> None:
        answers = bridge.submit([job(prompts()[0], max_tokens=NEW), job([5, 96]), job(prompts()[2], max_tokens=NEW)])
        one, poison, other = [output for _, output in await asyncio.gather(*(read(each) for each in answers))]
        assert poison.finish_reason == "error"
        assert isinstance(poison.error, NonFiniteLogits)
        assert one.tokens == reference(tiny("llama"))[0]
        assert other.tokens == reference(tiny("llama"))[2]
        assert bridge.failure is None

    bridged(engine, scene)


class Raising(Drafter):
    name = "raising"
    default_budget = 4

    def __init__(self) -> None:
        self.left = 3

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        self.left -= 1
        if self.left < 0:
            raise ZeroDivisionError("a drafter's own")
        return [Draft.chain((5, 6)) for _ in rows]


def test_a_drafter_that_raises_is_dropped_and_reported(tiny: Callable[..., str], load: Load) -> None:
    engine = load("llama", Raising())

    async def scene(bridge: ThreadBridge) -> None:
        answers = bridge.submit([job(prompt, max_tokens=NEW) for prompt in prompts()])
        outputs = [await answer.output() for answer in answers]
        assert tuple(output.tokens for output in outputs) == reference(tiny("llama"))
        errors = [output.stats.speculation.error for output in outputs]
        assert any(isinstance(error, DrafterFailed) for error in errors)
        assert bridge.failure is None

    bridged(engine, scene)


class Broken:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, event: Event) -> None:
        self.calls += 1
        raise ZeroDivisionError("a subscriber's own")


def test_a_subscriber_that_raises_is_logged_once_and_the_others_go_on(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    engine = load("llama")
    broken = Broken()

    async def scene(bridge: ThreadBridge) -> None:
        (answer,) = bridge.submit([job([5], **LONG)])
        assert len((await answer.output()).tokens) == 60

    heard: list[Event] = []
    bridged(engine, scene, subscribers=[broken, heard.append])
    assert broken.calls == 1
    assert [type(event) for event in heard] == [Stepped] * (len(heard) - 1) + [Ended]
    assert caplog.text.count("Broken raised") == 1


def test_a_fault_between_steps_leaves_nobody_without_an_answer(
    load: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a bug in the thread itself."""
    engine = load("llama", max_batch_size=1)
    gate = Gate(engine)

    async def scene(bridge: ThreadBridge) -> None:
        running, waiting = bridge.submit([job([5], **LONG)] * 2)
        await until(lambda: engine.scheduler.requests() != ())
        monkeypatch.setattr(bridge._stepper, "_hand_on", lambda *_: 1 / 0)
        gate.allow(1)
        for answer in (running, waiting):
            with pytest.raises(EngineFailed):
                await answer.output()
        assert bridge.failure is not None
        assert bridge.queued == 0
        with pytest.raises(EngineFailed):
            bridge.submit([job([5])])
        gate.open()

    async def play() -> None:
        bridge = ThreadBridge(engine)
        await bridge.start()
        await asyncio.wait_for(scene(bridge), 60)
        await bridge.stop(0.0)

    asyncio.run(play())
    for request in engine.scheduler.requests():
        engine.cancel(request)


def test_an_event_loop_that_is_gone_ends_the_thread(load: Load) -> None:
    """As where a program ends without stopping its bridge."""
    engine = load("llama", max_batch_size=1)
    gate = Gate(engine)

    async def forget() -> ThreadBridge:
        bridge = ThreadBridge(engine)
        await bridge.start()
        bridge.submit([job([5], **LONG)] * 2)
        return bridge

    bridge = asyncio.run(forget())
    gate.open()
    assert bridge.thread is not None
    bridge.thread.join(60)
    assert not bridge.thread.is_alive()
