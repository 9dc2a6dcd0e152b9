"""Replicas under the same traffic: alike ones are left alone, one that differs is named."""

from __future__ import annotations

import json

import numpy as np
import pytest

from headstart.base.errors import InvalidFile
from headstart.fleet.watch.counters import record_of, restored
from headstart.fleet.watch.replicas import BATCHES, Comparison

CHANCES = (0.85, 0.8, 0.7)


def window(rng: np.random.Generator, chances: tuple[float, ...], drafts: int = 200) -> list[tuple[int, int]]:
    """Drafts of requests of forty: the tokens of one request are alike, so that they are no independent trials."""
    ease, tested = rng.normal(0, 0.05, drafts // 40), np.full(drafts // 40, 40)
    counts = []
    for chance in chances:
        accepted = rng.binomial(tested, np.clip(chance + ease, 0, 1))
        counts.append((int(tested.sum()), int(accepted.sum())))
        tested = accepted
    return counts


def compared(windows: int, seed: int, *worse: float) -> Comparison:
    rng, comparison = np.random.default_rng(seed), Comparison()
    for _ in range(windows):
        comparison.add({name: window(rng, CHANCES) for name in ("a", "b")} | {"c": window(rng, worse or CHANCES)})
    return comparison


def test_alike_replicas_are_left_alone() -> None:
    found = [compared(BATCHES, seed).found for seed in range(20)]
    assert not any(found)


def test_the_replica_that_accepts_less_is_named_with_its_position() -> None:
    comparison = compared(2 * BATCHES, 0, 0.85, 0.65, 0.7)
    worst = comparison.found[0]
    assert (worst.replica, worst.position) == ("c", 2)
    assert worst.high < -0.01
    assert "accepts 6" in worst.words


def test_of_two_replicas_the_worse_one_is_named() -> None:
    rng = np.random.default_rng(0)
    for worse in ("a", "b"):
        comparison = Comparison()
        for _ in range(BATCHES):
            comparison.add({name: window(rng, (0.6,) if name == worse else (0.85,)) for name in ("a", "b")})
        assert [each.replica for each in comparison.found] == [worse]


def test_a_window_in_which_one_was_idle_is_no_comparison() -> None:
    comparison = Comparison()
    comparison.add({"a": [(10, 5)], "b": [(0, 0)]})
    comparison.add({"a": [(10, 5)]})
    assert not comparison.batches


def test_another_fleet_begins_anew() -> None:
    comparison = Comparison()
    comparison.add({"a": [(10, 5)], "b": [(10, 5)]})
    comparison.add({"a": [(10, 5)], "c": [(10, 5)]})
    assert [set(batch) for batch in comparison.batches] == [{"a", "c"}]


def test_it_goes_on_from_its_record() -> None:
    whole, rng = compared(BATCHES + 7, 5), np.random.default_rng(5)
    parted = Comparison()
    for _ in range(BATCHES + 7):
        parted = restored(Comparison, json.loads(json.dumps(record_of(parted))))
        parted.add({name: window(rng, CHANCES) for name in ("a", "b", "c")})
    assert parted == whole
    assert json.dumps(parted.batches) == json.dumps(whole.batches)


def test_a_damaged_record_is_an_error_with_a_hint() -> None:
    with pytest.raises(InvalidFile, match="merged"):
        restored(Comparison, {**record_of(Comparison()), "merged": "many"})
