"""Audits at their edges: texts that stop early, short drafts, first tokens without a choice, odd greedy tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.audit_toys import Law, ToyReference, ToySubject, powered

from headstart.errors import ContextExceeded
from headstart.insight.audit.sampled import SIZING, SampledSettings, audit_sampling
from headstart.insight.audit.servers.compare import PairSettings, compare_endpoints
from headstart.insight.audit.subject import Completion
from headstart.types import Sampling, TokenLogprob

SETTINGS = SampledSettings(max_samples=192, batch=32, max_tokens=6, effect=0.2, level=0.05, replicates=30)


@dataclass
class Cut:
    """A subject whose texts are cut to one token now and then."""

    inner: ToySubject
    name: str = "cut"

    def sample(self, prompt: Sequence[int], sampling: Sampling, count: int) -> list[Completion]:
        whole = self.inner.sample(prompt, sampling, count)
        return [replace(each, tokens=each.tokens[:1]) if i % 3 == 0 else each for i, each in enumerate(whole)]

    def describe(self) -> dict[str, Any]:
        return {}


class Short(ToyReference):
    """A draft whose context ends after five tokens."""

    def laws(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Law:
        if len(prompt) + len(tokens) > 5:
            raise ContextExceeded("too long", hint="shorter")
        return super().laws(prompt, tokens, sampling)


class Fixed(ToySubject):
    """Every text begins with the same token."""

    def sample(self, prompt: Sequence[int], sampling: Sampling, count: int) -> list[Completion]:
        texts = super().sample(prompt, sampling, count)
        return [replace(each, tokens=(1, *each.tokens[1:])) for each in texts]


def test_texts_that_stop_early_are_no_crash() -> None:
    reference = ToyReference()
    result = audit_sampling(Cut(ToySubject(reference)), reference, [[1, 2], [3]], SETTINGS)
    assert result.completions > 0
    assert result.record()["total_variation"]["beginnings"]


def test_a_draft_with_a_shorter_context_is_listened_to_as_far_as_it_goes() -> None:
    reference = ToyReference()
    result = audit_sampling(ToySubject(reference), reference, [[1, 2, 3]], SETTINGS, suspect=Short(seed=1))
    assert result.verdict != "not lossless"


def test_an_accusing_audit_draws_on_to_size_the_difference() -> None:
    reference = ToyReference()
    seen = []
    result = audit_sampling(
        ToySubject(reference, wrong=powered(3.0)),
        reference,
        [[1, 2]],
        replace(SETTINGS, max_samples=2000),
        lambda progress: seen.append(progress.evidence >= 1 / SETTINGS.level),
    )
    assert result.verdict == "not lossless"
    first = seen.index(True)
    assert len(seen) == first + SIZING
    assert result.bound > 0


def test_without_a_choice_at_the_first_token_two_servers_are_not_cleared() -> None:
    reference = ToyReference()
    sides = [Fixed(reference, seed=1), Fixed(reference, seed=2, wrong=powered(1.4))]
    settings = PairSettings(max_samples=40, batch=20, max_tokens=3, effect=0.3)
    result = compare_endpoints(*sides, [[1, 2]], settings, greedy=False)
    assert result.power is None
    assert result.verdict == "undecided"


@pytest.mark.parametrize(("margin", "penalty", "verdict"), [(-5.0, 1.0, "not lossless"), (-5.0, 1.2, "undecided")])
def test_a_greedy_token_that_its_own_server_finds_unlikely(margin: float, penalty: float, verdict: str) -> None:
    """With penalties raw log-probabilities say nothing about the choice."""

    @dataclass
    class Greedy:
        token: int
        name: str = "greedy"

        def sample(self, prompt: Sequence[int], sampling: Sampling, count: int) -> list[Completion]:
            tops = (TokenLogprob(self.token, margin - 0.1, {0: -0.1, 1: margin - 0.1}),)
            return [Completion((self.token,), "length", "ab"[self.token], tops)] * count

        def describe(self) -> dict[str, Any]:
            return {}

    settings = PairSettings(sampling=Sampling(temperature=1.0, repetition_penalty=penalty))
    result = compare_endpoints(Greedy(1), Greedy(0), [[5]], settings, sampled=False)
    assert result.verdict == verdict, result.reasons
    assert np.isfinite([each.margin or 0.0 for each in result.greedy]).all()


def test_an_audit_that_had_one_look_still_says_how_many_completions_it_takes() -> None:
    reference = ToyReference()
    prompts = [[1, 2], [3]]
    few = audit_sampling(ToySubject(reference), reference, prompts, replace(SETTINGS, max_samples=32))
    assert few.verdict == "undecided"
    assert few.needed is not None
    assert any(f"takes about {few.needed} completions" in reason for reason in few.reasons)
    enough = audit_sampling(ToySubject(reference), reference, prompts, replace(SETTINGS, max_samples=4000))
    assert enough.verdict == "lossless"
    assert enough.completions / 3 <= few.needed <= 3 * enough.completions
