"""The expected hit rate against outcomes that are drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    from ssd_hits import MOST, Hits, distributions
finally:
    sys.path.pop(0)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_the_expected_hit_rates_are_those_of_drawn_outcomes(temperature: float) -> None:
    """One position: s from q, kept with min(1, p/q), else the bonus token from the residual; ranks without s."""
    noise = np.random.default_rng(0)
    target, draft = noise.normal(0, 1.5, (1, 12)), noise.normal(0, 1.5, (1, 12))
    hits = Hits()
    hits.add(target, draft, temperature)
    found = hits.record()
    p, q = distributions(target, temperature)[0], distributions(draft, temperature)[0]
    order = (-draft[0]).argsort()
    rounds, rejected, inside, full = 20_000, 0, np.zeros(MOST), np.zeros(MOST)
    residual = np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()
    guesses, uniforms = noise.choice(12, rounds, p=q), noise.random(rounds)
    bonuses, plains = noise.choice(12, rounds, p=residual), noise.choice(12, rounds, p=p)
    for s, uniform, bonus, other in zip(guesses, uniforms, bonuses, plains, strict=True):
        full[list(order).index(other) :] += 1
        if uniform * q[s] >= p[s]:
            rejected += 1
            inside[[token for token in order if token != s].index(bonus) :] += 1
    assert found["alpha"] == pytest.approx(1 - rejected / rounds, abs=0.02)
    np.testing.assert_allclose(found["hits"], inside / rejected, atol=0.02)
    np.testing.assert_allclose(found["hits_full"], full / rounds, atol=0.02)


def test_greedy_distributions_are_the_ranks_of_the_likeliest_token() -> None:
    """The draft finds the target's token first, third and second: one kept, two missed."""
    target = np.eye(4)[[0, 0, 0]]
    draft = np.array([[3.0, 2, 1, 0], [1, 3, 2, 0], [2, 3, 1, 0]])
    hits = Hits()
    wide = [np.pad(each, ((0, 0), (0, 8)), constant_values=-9.0) for each in (target, draft)]
    hits.add(*wide, 0.0)
    found = hits.record()
    assert found["alpha"] == pytest.approx(1 / 3)
    assert found["hits"][:3] == pytest.approx([0.5, 1, 1])
    assert found["hits_full"][:3] == pytest.approx([1 / 3, 2 / 3, 1])
