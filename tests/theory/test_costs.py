"""What a step costs: lines between measurements, v(n) and c, overhead, and drafts that hide behind the forward."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart import theory
from headstart.base.errors import InvalidOption
from headstart.theory import DraftCost, Machine, Model, StepCosts
from headstart.theory.ssd import ssd_account

COSTS = StepCosts(((1, 1.0), (3, 1.2), (7, 2.0)), 0.1, {"d": DraftCost(0.05, 0.2, growth=0.5)})


def test_straight_lines_between_measurements_and_beyond() -> None:
    assert [COSTS.forward(n) for n in (0, 1, 2, 3, 5, 7, 12)] == pytest.approx([1.0, 1.0, 1.1, 1.2, 1.6, 2.0, 3.0])
    assert COSTS.forward(2.5) == pytest.approx(1.15), "an expectation"
    assert COSTS.forward(7, batch=4) == pytest.approx(2.3)
    assert StepCosts(((1, 2.0),)).forward(100) == 2.0


def test_more_rows_never_cost_less() -> None:
    noisy = StepCosts(((1, 2.0), (2, 1.0), (4, 5.0), (8, 4.0)))
    assert noisy.forwards == {1: 1.0, 2: 1.0, 4: 4.0, 8: 4.0}
    assert noisy.forward(1) == 1.0


def test_v_and_c_are_in_plain_steps_overhead_and_all() -> None:
    costs = replace(COSTS, overhead=0.5, row_overhead=0.1)
    assert costs.plain == pytest.approx(1.5)
    assert costs.v(3) == pytest.approx((1.2 + 0.5 + 0.2) / 1.5)
    assert costs.c("d", 4) == pytest.approx((0.05 + 0.8) / 4 / 1.5)
    assert costs.step(3, drafts={"d": (2, 1)}) == pytest.approx(costs.plain * (costs.v(3) + 2 * costs.c("d", 2)))


def test_drafts_of_a_batch_grow_with_its_requests() -> None:
    assert COSTS.draft("d", 2, 3) == pytest.approx(0.45 * 2)
    assert COSTS.draft("d", 2, 0.4) == pytest.approx(0.45), "fewer than one is still one"


def test_further_nodes_of_a_level_have_a_price_of_their_own() -> None:
    costs = replace(COSTS, drafts={"d": DraftCost(0.05, 0.2, growth=0.5, sibling=0.03)})
    assert costs.draft("d", 3, 2, siblings=5) == pytest.approx((0.05 + 0.6 + 0.15) * 1.5)
    assert costs.step(9, drafts={"d": (3, 1, 5)}) == pytest.approx(costs.step(9, drafts={"d": (3, 1)}) + 0.15)
    assert costs.c("d", 3, 5) == pytest.approx(costs.c("d", 3) + 0.15 / 3 / costs.plain)
    assert costs.drafts["d"].scaled(2).seconds(3, siblings=5) == pytest.approx(1.6)


@given(token=st.floats(0, 2), depth=st.integers(1, 8), rows=st.integers(1, 20))
def test_a_hidden_draft_takes_only_what_outlasts_the_forward(token: float, depth: int, rows: int) -> None:
    drafts = {"ahead": DraftCost(token=token, hidden=True), "d": DraftCost(token=0.1)}
    costs = replace(COSTS, drafts=drafts, overhead=0.3)
    forward, drafting = costs.forward(rows), costs.draft("ahead", depth)
    assert costs.step(rows, drafts={"ahead": (depth, 1)}) == pytest.approx(max(forward, drafting) + 0.3)
    both = costs.step(rows, drafts={"ahead": (depth, 1), "d": (2, 1)})
    assert both == pytest.approx(0.2 + max(forward, drafting) + 0.3), "a drafter that is not hidden comes first"


def test_hidden_drafts_agree_with_the_formula_for_drafting_ahead() -> None:
    """With every outcome foreseen, `theory.ssd_speedup` is tokens over the longer of verification and drafting."""
    for token in (0.1, 0.4):
        costs = StepCosts(((1, 1.0),), drafts={"d": DraftCost(token=token, hidden=True)})
        gained = 3 * costs.plain / costs.step(5, drafts={"d": (4, 1)})
        assert gained == pytest.approx(theory.ssd_speedup(1.0, 3.0, 1.0, 4 * token, 0.0))


@given(hit=st.floats(0, 1), slow=st.floats(0, 2), token=st.floats(0, 0.5), depth=st.integers(1, 6))
def test_drafts_that_are_hidden_in_part_agree_with_the_account_of_drafting_ahead(
    hit: float, slow: float, token: float, depth: int
) -> None:
    costs = StepCosts(((1, 1.0),), drafts={"d": DraftCost(token=token, hidden=hit, slowing=slow)})
    account = ssd_account(hit, token * depth, token * depth, slow=slow)
    assert costs.step(depth + 1, drafts={"d": (depth, 1)}) == pytest.approx(account.ahead)


@given(hidden=st.floats(0, 1), growth=st.floats(0, 1), requests=st.integers(1, 9))
def test_what_is_late_of_a_batch(hidden: float, growth: float, requests: int) -> None:
    """The expectation, by the number of requests whose draft was not ready."""
    expected = sum(
        math.comb(requests, m) * (1 - hidden) ** m * hidden ** (requests - m) * (1 + growth * (m - 1))
        for m in range(1, requests + 1)
    )
    assert DraftCost(token=2.0, growth=growth, hidden=hidden).late(3, requests) == pytest.approx(6 * expected)


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(ValueError, match="above 1"):
        replace(COSTS, drafts={"d": DraftCost(hidden=1.5)})


@pytest.mark.parametrize("v", [None, {1: 2.0, 5: 3.0}, {8: 4.0, 1: 1.0}])
def test_plain_steps_are_what_the_formulas_take(v: dict[int, float] | None) -> None:
    costs = StepCosts.in_plain_steps(0.2, v)
    assert (costs.c(), costs.c(depth=7)) == pytest.approx((0.2, 0.2))
    for k in (1, 4, 12):
        assert theory.speedup(0.7, k, costs.c(), costs.v) == pytest.approx(theory.speedup(0.7, k, 0.2, v))


def test_costs_of_a_roofline_are_its_own() -> None:
    from headstart.learn.what_if.question import Deployment

    machine, target = Machine(1e11, 1e13, 1e-4), Model(1e9, kv_bytes_per_token=1e5)
    for batch in (1, 3, 60, 1000):
        costs = Deployment(machine, target, Model(1e8), context=500).costs(batch)
        for rows in (1, 2, 33, 34, 99, 100, 101, 400):
            seconds = theory.forward_seconds(machine, target, rows, batch, 500)
            assert costs.forward(rows) == pytest.approx(seconds, rel=1e-12)


def test_costs_are_checked() -> None:
    for rows in ((), ((2, 0.1),), ((1, 0.1), (1, 0.2))):
        with pytest.raises(ValueError, match="one row"):
            StepCosts(rows)
    with pytest.raises(ValueError, match="positive"):
        StepCosts(((1, math.nan),))
    for wrong in ({"request": -1.0}, {"overhead": math.inf}, {"drafts": {"d": DraftCost(read=-1.0)}}):
        with pytest.raises(ValueError, match="at least 0"):
            replace(COSTS, **wrong)
    for c, v in ((-0.1, None), (0.1, {2: 1.0}), (0.1, {1: 0.0})):
        with pytest.raises(InvalidOption):
            StepCosts.in_plain_steps(c, v)
