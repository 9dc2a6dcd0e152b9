"""Audits at their edges: texts that stop early, short drafts, first tokens without a choice, odd greedy tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from support.audit_toys import Distribution, ToyReference, ToySubject, powered

from headstart.base.errors import ContextExceeded
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.sampled import SIZING, audit_sampling
from headstart.measure.audit.subject import Ask, Completion
from headstart.types import Sampling

PLAN = AuditPlan(max_samples=192, batch=32, sample_tokens=6, effect=0.2, level=0.05, replicates=30)


@dataclass
class Cut:
    """A subject whose texts are cut to one token now and then."""

    inner: ToySubject
    name: str = "cut"

    def sample(self, asks: Sequence[Ask]) -> list[Completion]:
        whole = self.inner.sample(asks)
        return [replace(each, tokens=each.tokens[:1]) if i % 3 == 0 else each for i, each in enumerate(whole)]

    def describe(self) -> dict[str, Any]:
        return {}


class Short(ToyReference):
    """A draft whose context ends after five tokens."""

    def distributions(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Distribution:
        if len(prompt) + len(tokens) > 5:
            raise ContextExceeded("too long", hint="shorter")
        return super().distributions(prompt, tokens, sampling)


def test_texts_that_stop_early_are_no_crash() -> None:
    reference = ToyReference()
    result = audit_sampling(Cut(ToySubject(reference)), reference, PLAN.asks([[1, 2], [3]]), PLAN)
    assert result.completions > 0
    assert result.tokens > 0


def test_a_draft_with_a_shorter_context_is_listened_to_as_far_as_it_goes() -> None:
    reference = ToyReference()
    result = audit_sampling(ToySubject(reference), reference, PLAN.asks([[1, 2, 3]]), PLAN, draft=Short(seed=1))
    assert result.verdict != "not lossless"


def test_an_accusing_audit_draws_on_to_size_the_difference() -> None:
    reference = ToyReference()
    result = audit_sampling(
        ToySubject(reference, wrong=powered(3.0)),
        reference,
        PLAN.asks([[1, 2]]),
        replace(PLAN, max_samples=2000),
    )
    assert result.verdict == "not lossless"
    won = [evidence >= 1 / PLAN.level for _, evidence, _ in result.curve]
    first = won.index(True)
    assert len(won) == first + SIZING
    assert result.bound > 0


def test_an_audit_that_had_one_look_still_says_how_many_completions_it_takes() -> None:
    reference = ToyReference()
    asks = PLAN.asks([[1, 2], [3]])
    few = audit_sampling(ToySubject(reference), reference, asks, replace(PLAN, max_samples=32))
    assert few.verdict == "undecided"
    assert few.needed is not None
    assert any(f"takes about {few.needed} completions" in reason for reason in few.reasons)
    enough = audit_sampling(ToySubject(reference), reference, asks, replace(PLAN, max_samples=4000))
    assert enough.verdict == "lossless"
    assert enough.completions / 3 <= few.needed <= 3 * enough.completions
