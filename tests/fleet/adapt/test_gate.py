"""The gate lets a better drafter through, and neither an equal nor a worse one; how often by mistake is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import headstart as hs
from headstart.base.traffic import Exchange
from headstart.fleet.adapt.gate import LEAST, Pair, Side, judge, measure
from headstart.fleet.adapt.split import HeldOut


def side(tokens: int, forwards: int) -> Side:
    return Side(tokens, forwards, (forwards,), (min(forwards, tokens - forwards),))


def simulated(seed: int, conversations: int, *, gain: float = 0.0, turns: int = 1) -> list[Pair]:
    """Pairs of prompts that differ in difficulty and length, each drafter with its own luck.

    Forwards are drawn for every prompt; a gain makes all of the new drafter's forwards fewer.
    """
    random = np.random.default_rng(seed)
    pairs = []
    for number in range(conversations):
        ease = random.beta(4, 3)
        for _ in range(turns):
            tokens = int(random.integers(16, 129))
            rates = [1 + 3 * ease, (1 + 3 * ease) * (1 + gain)]
            forwards = [max(1, int(random.normal(tokens / rate, 0.8 * (tokens / rate) ** 0.5))) for rate in rates]
            sides = [side(tokens, min(tokens, each)) for each in forwards]
            pairs.append(Pair(f"{number}", 10, 0.0, 0, *sides))
    return pairs


def test_a_gain_passes_and_a_loss_or_nothing_does_not() -> None:
    better = judge(simulated(0, 60, gain=0.2), resamples=400)
    assert (better.passed, better.verdict) == (True, "better")
    assert 0 < better.difference.low < better.difference.value < better.difference.high
    assert better.ratio.low > 1
    worse = judge(simulated(0, 60, gain=-0.2), resamples=400)
    assert (worse.passed, worse.verdict) == (False, "worse")
    same = [replace(pair, new=pair.old) for pair in simulated(1, 60)]
    equal = judge(same, resamples=400)
    assert (equal.passed, equal.verdict, equal.difference.low) == (False, "no gain proved", 0.0)


def test_the_figures_are_of_all_prompts_together() -> None:
    pairs = [Pair("a", 5, 0.0, 0, side(10, 5), side(10, 4)), Pair("b", 5, 0.0, 1, side(90, 45), side(90, 30))]
    gain = judge(pairs, resamples=50)
    assert (gain.old.value, gain.new.value) == (2.0, 100 / 34)
    assert gain.ratio.value == pytest.approx(50 / 34)
    assert gain.old_by_position[0].value == 1.0
    assert (gain.prompts, gain.conversations) == (2, 2)


def test_few_conversations_prove_nothing() -> None:
    assert judge(simulated(0, LEAST, gain=0.5), resamples=100).passed
    assert not judge(simulated(0, LEAST - 1, gain=0.5), resamples=100).passed
    turns = judge(simulated(0, 4, gain=0.5, turns=20), resamples=100)
    assert (turns.prompts, turns.conversations, turns.passed) == (80, 4, False)
    assert not judge([]).passed


@pytest.mark.parametrize(("conversations", "turns"), [(20, 1), (40, 3)])
def test_a_drafter_without_a_gain_seldom_passes(conversations: int, turns: int) -> None:
    """At most about one in forty; the bound leaves room for three standard errors of 100 trials."""
    passed = sum(judge(simulated(n, conversations, turns=turns), resamples=150).passed for n in range(100, 200))
    assert passed <= 100 * (0.025 + 3 * (0.025 * 0.975 / 100) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("conversations", "turns"), [(20, 1), (40, 3)])
def test_the_level_of_the_gate(conversations: int, turns: int) -> None:
    trials = 400
    passed = sum(judge(simulated(n, conversations, turns=turns), resamples=500).passed for n in range(trials))
    print(f"{passed} of {trials} passed without a gain: {conversations} conversations of {turns}")
    assert passed <= trials * (0.025 + 3 * (0.025 * 0.975 / trials) ** 0.5)


Load = Callable[..., hs.Engine]


@pytest.fixture
def held_out() -> list[HeldOut]:
    random = np.random.default_rng(0)
    prompts = random.integers(3, 97, (24, 12)).tolist()
    return [HeldOut(Exchange(tuple(p), (1,) * 12, 0.7 * (n % 2)), str(n)) for n, p in enumerate(prompts)]


def test_a_worse_drafter_is_refused_and_a_better_one_passes(
    tiny: Callable[..., str], load: Load, held_out: list[HeldOut]
) -> None:
    """A draft that is the target with a little noise, against the same with much."""
    fixed = {"pacing": "fixed", "num_speculative_tokens": 3, "max_batch_size": 8, "draft_tree": "none"}
    good = load("llama", tiny("llama", noise=0.005), **fixed)
    bad = load("llama", tiny("llama", noise=0.1), **fixed)
    done: list[int] = []
    there = measure(bad, good, held_out, max_tokens=10, advance=done.append)
    assert done == [8, 16, 24]
    assert [pair.temperature for pair in there] == [0.0, 0.7] * 12
    assert all(pair.old.tokens <= 10 for pair in there)
    gain = judge(there, resamples=200)
    assert gain.passed, gain
    back = [replace(pair, old=pair.new, new=pair.old) for pair in there]
    assert judge(back, resamples=200).verdict == "worse"
    equal = measure(bad, bad, held_out, max_tokens=10)
    assert all(pair.old == pair.new for pair in equal), "the same seeds, the same drafter"
    assert not judge(equal, resamples=200).passed
    greedy = measure(bad, good, held_out[:2], max_tokens=3, temperature=0.0)
    assert [pair.temperature for pair in greedy] == [0.0, 0.0]
