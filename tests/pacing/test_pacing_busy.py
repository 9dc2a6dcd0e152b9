"""Pacing on a machine that other work keeps busy: forwards wait for it now and then, whatever their number of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.pacing_life import STEEP, Life

from headstart.pacing.costs import CurrentCosts
from headstart.theory.costs import StepCosts

ROWS = tuple((n, 0.01 * v) for n, v in ((1, 1.0), (2, 1.03), (4, 1.14), (8, 1.31), (16, 2.33), (32, 4.37)))
"""Of the bundled target, but for the level."""


def waiting(share: float, steps: float) -> Callable[[np.random.Generator], float]:
    """Such a share of the forwards waits, for so many plain steps on average, and a few of them much longer."""
    return lambda rng: 0.01 * rng.exponential(steps) if rng.random() < share else 0.0


def drafted(life: Life, steps: int, right: float) -> float:
    """Share of the steps that had a draft, of those after the first few."""
    life.run(30, {"ngram": right})
    return float(np.mean([nodes > 0 for nodes in life.run(steps, {"ngram": right})]))


@pytest.mark.parametrize(("share", "steps"), [(0.2, 10), (0.5, 10), (0.8, 10), (0.5, 500)])
def test_waiting_for_other_work_does_not_end_speculation_that_pays(share: float, steps: float) -> None:
    """A wait comes to drafts and to plain steps alike, so it is no reason to draft less. One life in thirty rests for a
    while, because its few plain steps did not wait."""
    idle = [drafted(Life({"ngram": 0.0007}, ROWS, seed=seed), 300, 0.4) for seed in range(6)]
    busy = [
        drafted(Life({"ngram": 0.0007}, ROWS, waits=waiting(share, steps), seed=seed), 300, 0.4) for seed in range(24)
    ]
    assert min(idle) > 0.9
    assert sum(busy) / len(busy) > 0.92, busy
    assert np.median(busy) > 0.95, busy


def test_forwards_that_truly_grow_end_it_on_a_busy_machine_too() -> None:
    """The profile says that rows are nearly free; each costs as much as the first."""
    found = []
    for seed in range(12):
        life = Life({"ngram": 0.0007}, ROWS, waits=waiting(0.1, 10), seed=seed)
        life.truth = CurrentCosts(StepCosts(STEEP, 0.0, life.costs.drafts), life.names)
        life.run(300, {"ngram": 0.3})
        found.append(drafted(life, 100, 0.3))
    assert max(found) < 0.15, found
    assert sum(found) / len(found) < 0.05, found


def test_one_hiccup_on_an_idle_machine_changes_nothing() -> None:
    life = Life({"ngram": 0.0007}, ROWS)
    life.run(100, {"ngram": 0.4})
    life.waits = lambda rng: 5.0
    life.run(1, {"ngram": 0.4})
    life.waits = lambda rng: 0.0
    assert drafted(life, 100, 0.4) > 0.9


def test_one_slow_draft_does_not_end_a_source_for_good() -> None:
    """A draft waited for other work, and seemed to cost more than it could ever bring."""
    shares = []
    for seed in range(8):
        life = Life({"head": 0.002}, ROWS, waits=waiting(0.5, 300), seed=seed)
        life.draft_waits = waiting(0.05, 300)
        life.run(30, {"head": 0.75})
        shares.append(np.mean([nodes > 0 for nodes in life.run(400, {"head": 0.75})]))
    assert min(shares) > 0.7, shares
