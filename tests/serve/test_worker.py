"""One thread steps the engine; every job gets its own answer, whatever the others do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.bridges import Gate, bridged, job, read, until
from support.greedy import NEW, prompts, reference

import headstart as hs
from headstart.base.errors import InvalidOption, Overloaded, ServerStopping
from headstart.serve.bridge import Bridge, Job, TracedChunk
from headstart.serve.options import Limits
from headstart.serve.worker import ThreadBridge

Load = Callable[..., hs.Engine]
LONG: dict[str, Any] = {"max_tokens": 90, "ignore_eos": True}


def test_answers_are_those_of_generate(tiny: Callable[..., str], load: Load) -> None:
    engine = load("llama", "ngram", max_batch_size=3)

    async def scene(bridge: ThreadBridge) -> None:
        front: Bridge = bridge  # it keeps the protocol
        answers = front.submit([job(prompt, max_tokens=NEW) for prompt in prompts()])
        read_all = await asyncio.gather(*(read(answer) for answer in answers))
        assert tuple(output.tokens for _, output in read_all) == reference(tiny("llama"))
        assert all(output.stats.queue_seconds >= 0 for _, output in read_all)
        assert bridge.queued == 0
        assert bridge.failure is None

    bridged(engine, scene)


def test_the_engine_is_called_on_one_thread_alone(load: Load) -> None:
    engine = load("llama", "ngram")
    seen: set[str] = set()
    for name in ("submit", "step", "cancel"):
        original = getattr(engine, name)

        def noting(*args: Any, _original: Any = original) -> Any:
            seen.add(threading.current_thread().name)
            return _original(*args)

        setattr(engine, name, noting)

    async def scene(bridge: ThreadBridge) -> None:
        one, other = bridge.submit([job(prompts()[0], **LONG), job(prompts()[1], max_tokens=4)])
        await read(other)
        one.cancel()
        assert (await one.output()).finish_reason == "cancelled"

    bridged(engine, scene)
    assert seen == {"headstart-engine"}


def test_an_output_may_be_had_without_reading_chunks(load: Load) -> None:
    engine = load("llama")

    async def scene(bridge: ThreadBridge) -> None:
        (answer,) = bridge.submit([job(prompts()[0], max_tokens=5, ignore_eos=True)])
        assert len((await answer.output()).tokens) == 5
        assert len((await answer.output()).tokens) == 5, "as often as one likes"
        chunks, _ = await read(answer)
        assert chunks, "and the chunks are still there"

    bridged(engine, scene, Limits(max_unread_tokens=1, max_unread_seconds=0.0))


@pytest.mark.parametrize("when", ["queued", "reading", "decoding", "ended"])
def test_cancelling_at_any_moment_frees_the_slot(when: str, load: Load) -> None:
    engine = load("llama", max_batch_size=1, prefill_chunk=1)
    gate = Gate(engine)

    async def scene(bridge: ThreadBridge) -> None:
        before = bridge.submit([job([5], **LONG)]) if when == "queued" else ()
        (answer,) = bridge.submit([job(range(3, 60), max_tokens=40, ignore_eos=True)])
        gate.allow(2)
        await until(lambda: bridge.queued == len(before))
        if when in ("decoding", "ended"):
            gate.allow(100 if when == "ended" else 60)
            async for _ in answer:
                break
        if when == "ended":
            await answer.output()
        answer.cancel()
        answer.cancel()
        gate.open()
        output = await answer.output()
        assert output.finish_reason == ("length" if when == "ended" else "cancelled")
        if when in ("queued", "reading"):
            assert output.tokens == ()
        for other in before:
            assert len((await other.output()).tokens) == 90, "the others are not concerned"
        assert [slot.request for slot in bridge.slots()] == [None]
        assert bridge.queued == 0

    bridged(engine, scene)


def test_what_nobody_waits_for_any_more_is_not_done(load: Load) -> None:
    """And the engine's thread goes on."""
    engine = load("llama")
    done: list[int] = []

    async def scene(bridge: ThreadBridge) -> None:
        held, go_on = threading.Event(), threading.Event()

        def holds() -> None:
            held.set()
            go_on.wait(30)

        first = asyncio.ensure_future(bridge.between_steps(holds))
        await asyncio.to_thread(held.wait, 30)
        second = asyncio.ensure_future(bridge.between_steps(lambda: done.append(2)))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        go_on.set()
        await bridge.between_steps(lambda: done.append(3))
        (answer,) = bridge.submit([job(prompts()[0], max_tokens=5, ignore_eos=True)])
        assert len((await answer.output()).tokens) == 5

    bridged(engine, scene)
    assert done == [3]


def test_each_job_is_drafted_for_as_it_asks(load: Load) -> None:
    engine = load("llama", "ngram")

    async def scene(bridge: ThreadBridge) -> None:
        options: list[dict[str, Any]] = [{}, {"enabled": False}, {"max_draft_tokens": 1}, {"sources": ("x",)}]
        prompt, sampling = (5, 6, 5, 6, 5, 6), hs.Sampling(max_tokens=30, ignore_eos=True)
        answers = [bridge.submit([Job(prompt, sampling, hs.Drafting(**each))])[0] for each in options]
        most = [max(len(chunk.step.draft) for chunk in (await read(answer))[0]) for answer in answers[:3]]
        assert most[0] > 1
        assert most[1:] == [0, 1]
        with pytest.raises(InvalidOption, match="'x'"):
            await answers[3].output()

    bridged(engine, scene)


def test_a_job_that_asks_for_it_is_recorded_and_no_other(load: Load) -> None:
    """Each chunk comes with the lines of its steps, those of a prompt that is read in pieces with the first."""
    engine = load("llama", "ngram", prefill_chunk=3)

    async def scene(bridge: ThreadBridge) -> None:
        traced, plain, cancelled = bridge.submit(
            [
                Job(tuple(prompts()[2]), hs.Sampling(max_tokens=NEW), trace=True),
                job(prompts()[1], max_tokens=NEW),
                Job(tuple(prompts()[0]), hs.Sampling(**LONG), trace=True),
            ]
        )
        chunks, output = await read(traced)
        cancelled.cancel()
        others, _ = await read(plain)
        assert not any(isinstance(chunk, TracedChunk) for chunk in others)
        lines = [line for chunk in chunks for line in chunk.lines]  # type: ignore[attr-defined]
        assert [line["type"] for line in lines[:2]] == ["trace", "request"]
        steps = [line for line in lines if line["type"] == "step"]
        assert [step["i"] for step in steps] == list(range(len(steps)))
        assert sum(step["procedure"] == "read" for step in steps) == output.stats.prefill_forwards > 0
        assert tuple(token for step in steps for token in step["emitted"]) == output.tokens
        assert lines[-1]["type"] == "end"
        for chunk in chunks:
            mine = [line for line in chunk.lines if line.get("emitted")]  # type: ignore[attr-defined]
            assert [line["i"] for line in mine] == [chunk.step.index]
        ended, _ = await read(cancelled)
        assert ended[-1].lines[-1]["finish_reason"] == "cancelled"  # type: ignore[attr-defined]

    bridged(engine, scene)
    assert not engine._loop.recorders._recorders, "no recorder stays behind"


def test_jobs_of_one_call_are_taken_all_or_none(load: Load) -> None:
    engine = load("llama")

    async def scene(bridge: ThreadBridge) -> None:
        answers = bridge.submit([job([5], **LONG), job([5], stop_token_ids=[10_000])])
        for answer in answers:
            with pytest.raises(InvalidOption, match="stop_token_ids"):
                await answer.output()
            with pytest.raises(InvalidOption, match="stop_token_ids"):
                await read(answer)
        assert bridge.queued == 0
        (fine,) = bridge.submit([job([5], max_tokens=2)])
        await read(fine)

    bridged(engine, scene)


def test_the_queue_is_bounded_by_requests(load: Load) -> None:
    engine = load("llama", max_batch_size=2)
    gate = Gate(engine)

    async def scene(bridge: ThreadBridge) -> None:
        answers = list(bridge.submit([job([5], **LONG) for _ in range(5)]))
        gate.allow(1)
        await until(lambda: bridge.queued == 3)
        with pytest.raises(Overloaded, match="wait") as refused:
            bridge.submit([job([5])])
        assert 1 <= refused.value.retry_after <= 120
        with pytest.raises(Overloaded):
            bridge.submit([job([5])] * 5)
        with pytest.raises(InvalidOption, match="6 texts, and at most 5 can run and wait"):
            bridge.submit([job([5])] * 6)
        answers[4].cancel()
        gate.allow(1)
        await answers[4].output()
        answers += bridge.submit([job([5], max_tokens=1)])
        gate.open()
        for answer in answers:
            await answer.output()
        assert bridge.queued == 0

    bridged(engine, scene, Limits(max_waiting_requests=3))


@pytest.mark.parametrize(("service", "retry_after"), [(0.001, 1.0), (6.0, 9.0), (1000.0, 120.0)])
def test_retry_after_is_what_the_queue_is_likely_to_take(service: float, retry_after: float, load: Load) -> None:
    engine = load("llama", max_batch_size=2)
    gate = Gate(engine)

    async def scene(bridge: ThreadBridge) -> None:
        bridge.submit([job([5], **LONG) for _ in range(5)])
        gate.allow(1)
        await until(lambda: bridge.queued == 3)
        assert bridge._stepper is not None
        bridge._stepper.runs.service_seconds = service
        with pytest.raises(Overloaded) as refused:
            bridge.submit([job([5])])
        assert refused.value.retry_after == retry_after, "three wait for two slots"
        gate.open()

    bridged(engine, scene, Limits(max_waiting_requests=3))


def test_the_queue_is_bounded_by_prompt_tokens(load: Load) -> None:
    engine = load("llama", max_batch_size=1)
    gate = Gate(engine)

    async def scene(bridge: ThreadBridge) -> None:
        running, waiting = bridge.submit([job([5], **LONG)])[0], bridge.submit([job([5] * 30)])[0]
        with pytest.raises(Overloaded):
            bridge.submit([job([5] * 11)])
        small = bridge.submit([job([5] * 9)])[0]
        gate.open()
        for answer in (running, waiting, small):
            answer.cancel()
            await answer.output()
        (alone,) = bridge.submit([job([5] * 60, max_tokens=1)])
        assert (await alone.output()).finish_reason == "length", "one prompt may always wait alone"

    bridged(engine, scene, Limits(max_waiting_prompt_tokens=40))


@pytest.mark.parametrize("own", [True, False], ids=["the job's", "the server's"])
def test_deadlines_end_with_what_there_is(own: bool, load: Load) -> None:
    engine = load("llama", max_batch_size=1)
    original = engine.step

    def slow() -> Any:
        time.sleep(0.01)
        return original()

    engine.step = slow  # type: ignore[method-assign]

    async def scene(bridge: ThreadBridge) -> None:
        deadline = time.monotonic() + 0.2 if own else None
        asked = [Job((5,), hs.Sampling(**LONG), deadline=deadline) for _ in range(2)]
        running, waiting = [await answer.output() for answer in bridge.submit(asked)]
        assert running.finish_reason == waiting.finish_reason == "cancelled"
        assert 0 < len(running.tokens) < 90
        assert waiting.tokens == ()
        assert waiting.stats.prefill_forwards == 0

    bridged(engine, scene, Limits(max_request_seconds=None if own else 0.2))


def test_a_job_whose_deadline_has_passed_is_never_read(load: Load) -> None:
    engine = load("llama")

    async def scene(bridge: ThreadBridge) -> None:
        (answer,) = bridge.submit([Job((5,), deadline=time.monotonic() - 1)])
        output = await answer.output()
        assert output.finish_reason == "cancelled"
        assert output.stats.target_forwards == 0

    bridged(engine, scene)


def test_a_client_that_stops_reading_is_cancelled_and_the_others_are_not(load: Load) -> None:
    engine = load("llama", max_batch_size=2)
    engine.subscribe(lambda _: time.sleep(0.002))  # a client that does read can keep up, however quick the machine

    async def scene(bridge: ThreadBridge) -> None:
        slow, fine = bridge.submit([job([5], **LONG), job([5], **LONG)])
        async for _ in slow:
            break  # and never again
        assert len((await read(fine))[1].tokens) == 90
        assert (await slow.output()).finish_reason == "cancelled"
        assert len((await slow.output()).tokens) < 90

    bridged(engine, scene, Limits(max_unread_tokens=40, max_unread_seconds=0.0))


def test_stopping_waits_for_what_runs_and_refuses_what_comes(load: Load) -> None:
    engine = load("llama")

    async def scene(bridge: ThreadBridge) -> None:
        (answer,) = bridge.submit([job([5], **LONG)])
        stopping = asyncio.create_task(bridge.stop(60.0))
        await asyncio.sleep(0)
        with pytest.raises(ServerStopping):
            bridge.submit([job([5])])
        assert (await answer.output()).finish_reason == "length"
        await stopping
        await bridge.stop(0.0)
        with pytest.raises(ServerStopping):
            bridge.submit([job([5])])

    bridged(engine, scene)


def test_stopping_ends_what_takes_too_long_with_what_it_has(load: Load) -> None:
    engine = load("llama", max_batch_size=1)

    async def scene(bridge: ThreadBridge) -> None:
        answers = bridge.submit([job([5], **LONG), job([5], **LONG)])
        async for _ in answers[0]:
            break
        await bridge.stop(0.0)
        outputs = [await answer.output() for answer in answers]
        assert [output.finish_reason for output in outputs] == ["cancelled"] * 2
        assert 0 < len(outputs[0].tokens) < 90

    bridged(engine, scene)


def test_a_stopped_bridge_can_be_started_again(load: Load) -> None:
    engine = load("llama")

    async def scene(bridge: ThreadBridge) -> list[tuple[int, ...]]:
        found = []
        for _ in range(2):
            (answer,) = bridge.submit([job(prompts()[0], max_tokens=8)])
            found.append((await answer.output()).tokens)
            await bridge.stop(1.0)
            await bridge.start()
        return found

    first, second = bridged(engine, scene)
    assert first == second
