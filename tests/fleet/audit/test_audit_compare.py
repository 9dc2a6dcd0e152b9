"""Two subjects without a reference: equal ones are hardly ever accused, unequal ones are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from support.audit_toys import ToyReference, ToySubject, ask_by_ask, powered

from headstart.base.errors import InvalidOption, InvalidPrompt
from headstart.fleet.audit.compare import compare_subjects
from headstart.fleet.audit.two_sample_bet import TwoSampleBet
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.subject import Ask, Completion
from headstart.types import Sampling, TokenLogprob

P = np.array([0.4, 0.3, 0.2, 0.1])


@dataclass
class Chain:
    """Tokens 0 to 3, each drawn from p, rolled by the one before it. Greedy texts are `cold`."""

    p: Any
    seed: int
    cold: tuple[int, ...] = (1, 2, 3)
    margin: float = 5.0
    name: str = "chain"
    generator: Any = field(init=False)

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)

    def sample(self, asks: Sequence[Ask]) -> list[Completion]:
        return ask_by_ask(asks, lambda ask: self._one(ask.sampling))

    def _one(self, sampling: Sampling) -> Completion:
        if sampling.greedy:
            tops = tuple(TokenLogprob(t, -0.1, {t: -0.1, (t + 1) % 4: -0.1 - self.margin}) for t in self.cold)
            return Completion(self.cold, "length", "".join(map(str, self.cold)), tops)
        tokens = [0]
        for _ in range(sampling.max_tokens):
            tokens.append(int(self.generator.choice(4, p=np.roll(self.p, tokens[-1]))))
        return Completion(tuple(tokens[1:]), "length", "".join("abcd"[t] for t in tokens[1:]))

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


def plan(**options: Any) -> AuditPlan:
    return AuditPlan(**({"sample_tokens": 4, "max_samples": 600, "effect": 0.3, "batch": 50} | options))


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_stated() -> None:
    """400 comparisons of equal distributions at level 0.1, looked at after each of 120 pairs."""
    generator = np.random.default_rng(5)
    alarms = 0
    for _ in range(400):
        uniform = TwoSampleBet()
        for _ in range(120):
            a, b = (tuple(generator.choice(4, size=2, p=P).tolist()) for _ in range(2))
            uniform.add(0, a, b)
        alarms += uniform.best >= 10
    assert alarms <= 400 * 0.1 + 3 * np.sqrt(400 * 0.1 * 0.9)


def test_the_capital_is_fair() -> None:
    """Its mean under equality is 1: averaged over many short games, none of which can win much."""
    generator = np.random.default_rng(6)
    ends = []
    for _ in range(4000):
        uniform = TwoSampleBet()
        for _ in range(6):
            a, b = (tuple(generator.choice(3, size=1).tolist()) for _ in range(2))
            uniform.add(0, a, b)
        ends.append(uniform.capital)
    assert np.mean(ends) == pytest.approx(1, abs=4 * np.std(ends) / np.sqrt(len(ends)))


def test_equal_distributions_are_cleared() -> None:
    result = compare_subjects(Chain(P, 1), Chain(P, 2), [[1], [2]], plan())
    assert result.verdict == "lossless", result.reasons
    assert result.power is not None
    assert result.power >= 0.9
    assert result.pairs < 600, "it stops when sure"
    assert all(tv <= floor * 1.5 for _, tv, floor in result.distances)


@pytest.mark.parametrize(
    "p",
    [np.array([0.1, 0.3, 0.2, 0.4]), np.array([0.7, 0.2, 0.07, 0.03])],
    ids=["another token", "colder"],
)
@pytest.mark.parametrize("by_text", [False, True])
def test_unequal_distributions_are_told(p: Any, by_text: bool) -> None:
    result = compare_subjects(Chain(P, 1), Chain(p, 2), [[1]], plan(), by_text=by_text)
    assert result.verdict == "not lossless"
    assert result.most_evidence >= 100
    assert "which server wrote which" in result.reasons[0]
    _, tv, floor = result.distances[0]
    assert tv > floor


@pytest.mark.slow
def test_too_few_samples_say_how_many_are_needed() -> None:
    result = compare_subjects(Chain(P, 1), Chain(P, 2), [[1]], plan(effect=0.15, max_samples=100))
    assert result.verdict == "undecided"
    assert result.needed is not None
    assert result.needed > 100
    assert f"about {result.needed} pairs" in " ".join(result.reasons)
    enough = compare_subjects(Chain(P, 3), Chain(P, 4), [[1]], plan(effect=0.15, max_samples=3 * result.needed))
    assert enough.verdict == "lossless"


def test_greedy_texts() -> None:
    def compared(**options: Any) -> Any:
        other = Chain(P, 2, cold=(1, 3, 3))
        return compare_subjects(Chain(P, 1, **options), other, [[1]], plan(sampled=False))

    bug, tie = compared(margin=5.0), compared(margin=0.02)
    assert (bug.verdict, tie.verdict) == ("not lossless", "undecided")
    assert bug.greedy[0].position == 1
    assert bug.greedy[0].margin == pytest.approx(5.0)
    assert "near-tie cannot be told" in " ".join(tie.reasons)
    assert compare_subjects(Chain(P, 1), Chain(P, 2), [[1]], plan(sampled=False)).verdict == "lossless"


class Fixed(ToySubject):
    """Every text begins with the same token."""

    def sample(self, asks: Sequence[Ask]) -> list[Completion]:
        return [replace(each, tokens=(1, *each.tokens[1:])) for each in super().sample(asks)]


def test_without_a_choice_at_the_first_token_two_servers_are_not_cleared() -> None:
    reference = ToyReference()
    sides = [Fixed(reference, seed=1), Fixed(reference, seed=2, wrong=powered(1.4))]
    few = AuditPlan(max_samples=40, batch=20, sample_tokens=3, effect=0.3)
    result = compare_subjects(*sides, [[1, 2]], replace(few, greedy=False))
    assert result.power is None
    assert result.verdict == "undecided"


@pytest.mark.parametrize(("margin", "penalty", "verdict"), [(-5.0, 1.0, "not lossless"), (-5.0, 1.2, "undecided")])
def test_a_greedy_token_that_its_own_server_finds_unlikely(margin: float, penalty: float, verdict: str) -> None:
    """With penalties raw log-probabilities say nothing about the choice."""

    @dataclass
    class Greedy:
        token: int
        name: str = "greedy"

        def sample(self, asks: Sequence[Ask]) -> list[Completion]:
            tops = (TokenLogprob(self.token, margin - 0.1, {0: -0.1, 1: margin - 0.1}),)
            return [Completion((self.token,), "length", "ab"[self.token], tops)] * len(asks)

        def describe(self) -> dict[str, Any]:
            return {}

    penalised = plan(sampling=Sampling(temperature=1.0, repetition_penalty=penalty), sampled=False)
    result = compare_subjects(Greedy(1), Greedy(0), [[5]], penalised)
    assert result.verdict == verdict, result.reasons
    assert np.isfinite([each.margin or 0.0 for each in result.greedy]).all()


def test_bad_input() -> None:
    with pytest.raises(InvalidPrompt):
        compare_subjects(Chain(P, 1), Chain(P, 2), [], plan())
    with pytest.raises(InvalidOption):
        AuditPlan(level=0.0)
