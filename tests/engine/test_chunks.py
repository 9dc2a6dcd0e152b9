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
    right = max(LEAST, min(512, max(MOST_SECONDS - plain, plain) / each))
    assert chunks.tokens(beside=True) == pytest.approx(right, rel=0.05, abs=1)
    assert chunks.tokens(beside=False) == 512


@pytest.mark.parametrize("each", [1e-4, 1e-3, 4e-3])
def test_nobody_waits_for_the_first_long_prompt_either(each: float) -> None:
    """Before it is known how fast prompts are read, and whatever was read before."""
    chunks = Chunks(512, bounded=True)
    for _ in range(12):
        chunks.took(0, 0.02)
        assert 0.02 + each * chunks.tokens(beside=True) <= 0.1
        chunks.took(chunks.tokens(beside=True), 0.02 + each * chunks.tokens(beside=True))


def test_short_prompts_say_nothing_of_long_ones() -> None:
    chunks = Chunks(512, bounded=True)
    chunks.took(LEAST, 1e-3)
    for _ in range(10):
        chunks.took(0, 0.04)
        chunks.took(12, 0.05)
    assert chunks.tokens(beside=True) == 2 * LEAST


def test_a_step_that_was_disturbed_is_forgotten() -> None:
    chunks = Chunks(512, bounded=True)
    for _ in range(6):
        chunks.took(chunks.tokens(beside=True), 0.02)
    assert chunks.tokens(beside=True) == 512
    chunks.took(512, 60.0)
    assert chunks.tokens(beside=True) == 256
    chunks.took(256, 0.02)
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
