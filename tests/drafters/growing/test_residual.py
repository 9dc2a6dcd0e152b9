"""Leaving a residual: drawn from the distribution that it is judged with, where it belongs, and with more of it
left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.sampled_distribution import p_value

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.drafters import Row
from headstart.drafters.growing.grow import GrowingChain, Residual, grow_chains
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise, Purpose
from headstart.types import Budget, Sampling

LOGITS = torch.tensor([2.0, 1.5, 0.5, 0.0, -1.0, -3.0])
LAW = LOGITS.softmax(-1)


def chain(residual: Residual | None, *, seed: int = 0, temperature: float = 1.0, purpose: Any = Purpose.DRAFT) -> Any:
    distribution = SamplingState(Sampling(temperature=temperature), (), len(LOGITS), frozenset())
    row = Row(0, (1, 2), distribution, Noise(seed), purpose=purpose, budget=Budget(2))
    return GrowingChain(row, 2, None, residual)


def drawn(residual: Residual | None, **options: Any) -> Any:
    made = chain(residual, **options)
    grow_chains([made], lambda live: LOGITS.repeat(len(live), 1))
    return made.draft()


def test_the_likeliest_tokens_keep_their_share_and_the_others_gain() -> None:
    lowered = Residual(0.5, 2).lower(LAW)
    assert float(lowered.sum()) == pytest.approx(1)
    ratio = (lowered / LAW).tolist()
    assert ratio[0] == pytest.approx(ratio[1])
    assert ratio[2] == pytest.approx(2 * ratio[0])
    assert (LAW - lowered).clamp(min=0).nonzero().flatten().tolist() == [0, 1], "the residual lies on them alone"
    torch.testing.assert_close(Residual(1.0, 2).lower(LAW), LAW)


def test_tokens_are_drawn_from_the_distribution_that_stands_beside_them() -> None:
    residual = Residual(0.4, 2)
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(4000):
        draft = drawn(residual, seed=seed)
        torch.testing.assert_close(draft.q[0], residual.lower(LAW))
        counts[draft.tokens[:1]] += 1
    lowered, before = ({(token,): float(each) for token, each in enumerate(q)} for q in (residual.lower(LAW), LAW))
    assert p_value(counts, lowered) > 1e-4
    assert p_value(counts, before) < 1e-9, "the test would see the distribution it was before"


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"purpose": Purpose.TOKEN}])
def test_greedy_drafts_and_the_rule_coupled_are_left_alone(options: dict[str, Any]) -> None:
    for seed in range(20):
        assert drawn(Residual(0.1), seed=seed, **options).tokens == drawn(None, seed=seed, **options).tokens


def test_it_is_an_option_of_the_engine(tiny: Callable[..., str]) -> None:
    path, draft = tiny("llama"), tiny("llama", noise=0.05)
    options: dict[str, Any] = {"pacing": "fixed", "dtype": "float32", "rule": "exact"}
    distributions = []
    for residual in (None, 0.3):
        engine = hs.load(path, draft, draft_residual=residual, **options)
        engine.subscribe(lambda step: distributions.append(step.draft.q) if len(step.draft) else None)
        output = engine.generate([5, 9, 12], Sampling(max_tokens=4, temperature=1, seed=3))
        assert output.stats.speculation.error is None
    assert distributions[0].max() > distributions[-1].max()
    with pytest.raises(InvalidOption, match="chains"):
        hs.load(path, draft, draft_residual=0.3, draft_tree="sampled", **options)
    for wrong in (0, 1.5, "x"):
        with pytest.raises(InvalidOption):
            hs.load(path, draft, draft_residual=wrong, **options)
