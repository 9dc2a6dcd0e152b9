"""Drafting ahead on paper: the slow-down by sharing a machine, the account of a round, the break-even, batches."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart import theory
from headstart.base.errors import InvalidOption

SHARES, TIMES = st.floats(0, 1), st.floats(0, 3)


def test_sharing_the_machine_slows_every_round_down() -> None:
    """By hand: h = 3/4, E = 4, T_a = 1/2, T_m = 1, s = 1/4: 4 / (3/4 x 5/4 + 1/4 x 9/4) = 4 / 1.5."""
    assert theory.ssd_speedup(0.75, 4, 4, 0.5, 1, 0.25) == pytest.approx(4 / 1.5)
    assert theory.ssd_speedup(0.75, 4, 4, 2.0, 1, 0.25) == pytest.approx(4 / (0.75 * 2 + 0.25 * 2.25)), "waits"
    assert theory.ssd_bound(4, 4, 1, 0.25) == pytest.approx(2 / 1.25)
    np.testing.assert_allclose(theory.ssd_speedup(1, 4, 4, 0, 0, [0.0, 1.0]), [4, 2])


@given(SHARES, st.floats(1, 9), TIMES, TIMES, TIMES)
def test_the_speedup_keeps_its_bound_under_sharing(h: float, e: float, in_turn: float, ahead: float, s: float) -> None:
    gained = theory.ssd_speedup(h, e, e, ahead, in_turn, s) * (1 + in_turn) / e
    assert gained <= theory.ssd_bound(e, e, in_turn, s) + 1e-9


@given(SHARES, TIMES, TIMES, TIMES, TIMES)
def test_the_account_of_a_round_is_the_formula_term_by_term(
    h: float, in_turn: float, ahead: float, on_miss: float, s: float
) -> None:
    account = theory.ssd_account(h, in_turn, ahead, on_miss, s)
    gained = theory.ssd_speedup(h, 3, 3, ahead, on_miss, s) / (3 / (1 + in_turn))
    assert account.gain == pytest.approx(gained)
    costs = account.sharing + account.waiting + account.missing
    assert account.ahead - (1 + in_turn) == pytest.approx(costs - account.hidden, abs=1e-9)
    assert account.pays == (costs < account.hidden) or math.isclose(costs, account.hidden, abs_tol=1e-9)
    assert getattr(account, account.largest) == max(account.sharing, account.waiting, account.missing)


def test_the_account_says_what_costs() -> None:
    assert theory.ssd_account(0.8, 0.1, 0.9, slow=0.6).largest == "sharing"
    assert theory.ssd_account(0.9, 0.5, 1.6).largest == "waiting"
    assert theory.ssd_account(0.1, 0.5, 0.9).largest == "missing"
    assert theory.ssd_account(0.5, 0.4, 0.9).missing == pytest.approx(0.2), "a miss drafts as a round in turn does"


@given(TIMES, TIMES, TIMES, TIMES)
def test_the_break_even_parts_gain_from_loss(in_turn: float, ahead: float, on_miss: float, s: float) -> None:
    least = theory.break_even_hit(in_turn, ahead, on_miss, s)
    if math.isnan(least):
        assert theory.ssd_account(1.0, in_turn, ahead, on_miss, s).gain <= 1 + 1e-9
        return
    assert 0 <= least <= 1
    for h in np.linspace(0, 1, 5):
        gain = theory.ssd_account(float(h), in_turn, ahead, on_miss, s).gain
        assert gain >= 1 - 1e-9 if h >= least else gain <= 1 + 1e-9


def test_the_break_even_by_hand() -> None:
    """Drafting in turn takes 1/2, hidden it slows the verification by 1/10: 1/10 of the time against h x 1/2 saved."""
    assert theory.break_even_hit(0.5, 0.9, 0.5, 0.1) == pytest.approx(0.2)
    assert theory.break_even_hit(0.5, 0.9, 0.5) == 0, "on hardware of its own it never loses"
    assert math.isnan(theory.break_even_hit(0.1, 0.9, 0.1, 0.2)), "not even with every outcome foreseen"


def test_a_batch_of_one_is_a_row() -> None:
    alone = theory.ssd_speedup(0.8, 4, 4, 0.9, 0.5, 0.1)
    for drafted in ("all", "missed"):
        assert theory.ssd_batch(0.8, 1, 4, 4, 0.9, 0.5, 0.1, drafted) == pytest.approx(alone)
    assert theory.ssd_batch(0.8, 1, 4, 4, 0.9, 0.5, 0.1, "nothing") == pytest.approx((0.8 * 4 + 0.2) / 1.1)


def test_a_batch_waits_for_its_slowest_row() -> None:
    """By hand, two rows: both hit 16/25; one missed 8/25; both 1/25."""
    assert theory.batch_hit_rate(0.8, 2) == pytest.approx(0.64)
    together = theory.ssd_batch(0.8, 2, 4, 4, 1, lambda rows: 0.25 * rows, drafted="all")
    assert together == pytest.approx(4 / (0.64 + 0.36 * 1.5))
    alone = theory.ssd_batch(0.8, 2, 4, 4, 1, lambda rows: 0.25 * rows, drafted="missed")
    assert alone == pytest.approx(4 / (0.64 + 0.32 * 1.25 + 0.04 * 1.5))


@given(SHARES, st.integers(1, 40), st.floats(1, 8), TIMES, TIMES)
def test_drafting_for_the_missed_rows_alone_is_never_worse(
    h: float, batch: int, e: float, growth: float, s: float
) -> None:
    def late(rows: int) -> float:
        return 0.5 + growth * rows

    every = theory.ssd_batch(h, batch, e, e, 1 + s, late, s, "all")
    assert theory.ssd_batch(h, batch, e, e, 1 + s, late, s, "missed") >= every - 1e-9


def test_in_a_large_batch_nobody_should_wait_for_the_misses() -> None:
    """Some row always misses, so that waiting costs every round its drafting: past some size bare rows are better."""
    better = [
        theory.ssd_batch(0.85, b, 4, 4, 1, 1.0, drafted="nothing") > theory.ssd_batch(0.85, b, 4, 4, 1, 1.0)
        for b in (1, 2, 4, 16, 64)
    ]
    assert better == sorted(better)
    assert better[-1]
    cheap = [theory.ssd_batch(0.85, 1, 4, 4, 1, 0.1, drafted=who) for who in ("missed", "nothing")]
    assert cheap[0] > cheap[1], "alone, a cheap draft is worth waiting for"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: theory.ssd_speedup(0.5, 2, 2, 0, 0, -0.1), "slow=-0.1"),
        (lambda: theory.ssd_batch(0.5, 0, 2, 2, 0, 0), "batch=0"),
        (lambda: theory.ssd_batch(0.5, 2, 2, 2, 0, 0, drafted="some"), "drafted='some'"),  # type: ignore[arg-type]
        (lambda: theory.break_even_hit(-1, 0, 0), "draft_sd=-1"),
        (lambda: theory.ssd_account(2, 0, 0), "hit=2"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        call()
