"""Prompts that are read beside requests that write: so little in each step that those do not wait long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headstart as hs
from headstart.engine.chunks import LEAST, MOST_SECONDS, Chunks

PROMPT = [7 + number % 80 for number in range(100)]


@pytest.mark.parametrize("plain", [0.0, 0.02, 0.09, 0.4])
@pytest.mark.parametrize("each", [1e-4, 1e-3, 4e-3])
def test_a_step_takes_as_long_as_it_may(each: float, plain: float) -> None:
    """each: seconds of a token, beside those of a forward without any."""
    chunks = Chunks(512, bounded=True)
    for _ in range(30):
        chunks.took(0, plain)
        chunks.took(chunks.tokens(beside=True), plain + each * chunks.tokens(beside=True))
    least, most = (max(MOST_SECONDS * share - plain, plain) / each for share in (0.78, 0.88))
    assert max(LEAST, min(512, least)) - 1 <= chunks.tokens(beside=True) <= max(LEAST, min(512, most)) + 1
    assert chunks.tokens(beside=False) == 512


@pytest.mark.parametrize("each", [1e-4, 1e-3, 4e-3])
def test_nobody_waits_for_the_first_long_prompt_either(each: float) -> None:
    """Before it is known how fast prompts are read, and whatever was read before."""
    chunks = Chunks(512, bounded=True)
    for _ in range(12):
        chunks.took(0, 0.02)
        assert 0.02 + each * chunks.tokens(beside=True) <= MOST_SECONDS
        chunks.took(chunks.tokens(beside=True), 0.02 + each * chunks.tokens(beside=True))


def read(chunks: Chunks, each: float, doubled: int, scatter: Callable[[int], float] = lambda _: 1.0) -> list[float]:
    """The seconds of the steps in which 3,600 tokens are read. each: seconds of the first token; at the place `doubled`
    one takes twice as long. scatter: of which step, what its seconds are multiplied by."""
    found: list[float] = []
    at = 0
    while at < 3600:
        chunks.took(0, 0.008)
        count = min(3600 - at, chunks.tokens(beside=True, at=at))
        seconds = 0.008 + each * count * (1 + (at + count / 2) / doubled)
        found.append(seconds * scatter(len(found)))
        chunks.took(count, found[-1])
        at += count
    return found


def test_tokens_far_behind_in_a_text_cost_more() -> None:
    """Where prompts are read so fast that a few pieces are a whole one, each costs much more than the one before it."""
    chunks = Chunks(512, bounded=True)
    read(chunks, 8e-5, 800)
    second = read(chunks, 8e-5, 800)
    assert max(second) <= 0.092
    assert min(second[3:-1]) >= 0.075, "and no less is read than may be, but for the most of a step and the end"


def test_steps_that_scatter_aim_lower() -> None:
    chunks = Chunks(512, bounded=True)
    scattering = [read(chunks, 3.1e-4, 1600, lambda step: 1.35 if step % 9 == 4 else 1.0) for _ in range(4)]
    late = [sum(seconds > MOST_SECONDS for seconds in each) for each in scattering]
    assert late[0] > 0
    assert late[2] + late[3] <= 1, "a margin has been learnt"
    for _ in range(12):
        quiet = read(chunks, 3.1e-4, 1600)
    assert max(quiet) >= 0.08, "and is unlearnt"


def test_steps_that_cannot_be_shorter_teach_no_margin() -> None:
    chunks, other = (Chunks(512, bounded=True) for _ in range(2))
    for _ in range(40):
        chunks.took(chunks.tokens(beside=True), 0.2)
    for each in (chunks, other):
        for _ in range(12):
            each.took(each.tokens(beside=True), each.tokens(beside=True) * 1e-3)
    assert chunks.tokens(beside=True) >= 0.95 * other.tokens(beside=True)


def test_pieces_that_nobody_waits_for_teach_no_margin() -> None:
    chunks = Chunks(512, bounded=True)
    for _ in range(8):  # a prompt that is read alone, its pieces longer than any that others wait for
        chunks.took(chunks.tokens(beside=False), 1e-3 * 512)
    assert 1e-3 * chunks.tokens(beside=True) == pytest.approx(MOST_SECONDS / 1.25, rel=0.05)


def test_short_prompts_say_nothing_of_long_ones() -> None:
    chunks = Chunks(512, bounded=True)
    chunks.took(LEAST, 1e-3)
    before = chunks.tokens(beside=True)
    assert before > LEAST
    for _ in range(10):
        chunks.took(12, 0.05)
    assert chunks.tokens(beside=True) == before


def test_a_step_that_was_disturbed_is_forgotten() -> None:
    chunks = Chunks(512, bounded=True)
    for _ in range(6):
        chunks.took(chunks.tokens(beside=True), 0.02)
    assert chunks.tokens(beside=True) == 512
    chunks.took(512, 60.0)
    assert 200 <= chunks.tokens(beside=True) <= 256
    for _ in range(2):
        chunks.took(chunks.tokens(beside=True), 0.02)
    assert chunks.tokens(beside=True) == 512


def test_a_small_chunk_stays_one() -> None:
    chunks = Chunks(5, bounded=True)
    for seconds in (10.0, 1e-6):
        chunks.took(5, seconds)
        assert chunks.tokens(beside=True) == 5


def test_nothing_is_bounded_where_bits_depend_on_it() -> None:
    chunks = Chunks(512, bounded=False)
    chunks.took(512, 10.0)
    assert chunks.tokens(beside=True) == 512


def test_who_writes_does_not_wait_for_a_long_prompt(load: Callable[..., hs.Engine]) -> None:
    sampling = hs.Sampling(max_tokens=12, ignore_eos=True)
    engine = load("llama", max_batch_size=2, prefill_chunk=64)
    alone = [engine.generate(prompt, sampling).tokens for prompt in ([5, 6], PROMPT)]
    writer = engine.submit([5, 6], sampling)
    engine.step()
    for _ in range(9):
        engine.scheduler.chunks.took(64, 64.0)  # as if this machine were that slow
    reader = engine.submit(PROMPT, sampling)
    assert [step.rows for step in engine.step()] == [1, LEAST]
    while engine.running:
        engine.step()
    assert [request.output for request in (writer, reader)] == alone


def test_a_prompt_alone_is_read_whole(load: Callable[..., hs.Engine]) -> None:
    engine = load("llama", max_batch_size=2, prefill_chunk=64)
    engine.scheduler.chunks.took(64, 64.0)
    for _ in range(2):
        engine.submit(PROMPT, hs.Sampling(max_tokens=2))
    assert [step.rows for step in engine.step()] == [64]
    while engine.running:
        engine.step()
