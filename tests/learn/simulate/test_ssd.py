"""Rounds on two lanes: the formula where its assumptions hold, less where they do not, no time lost, published runs."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import theory
from headstart.base.errors import InvalidOption
from headstart.learn.simulate.ssd import SsdRun, simulate_ssd
from headstart.learn.simulate.ssd_inputs import LaneCosts, SsdPlan, account

ROUNDS = 500
PLAN = SsdPlan((0.8,), k=4, fan_out=(3,), hits=(0.4, 0.6, 0.75))
FREE = LaneCosts({1: 10.0}, {1: 1.0})
"""Hardware of its own: the glue and four levels take half of a verification."""


def gain(plan: SsdPlan, costs: LaneCosts, **changes: Any) -> float:
    """Over drafting in turn, with the same acceptance drawn for both."""
    ahead = simulate_ssd(plan, costs, rounds=ROUNDS, seed=1, **changes)
    return ahead.rate.value / simulate_ssd(plan, costs, rounds=ROUNDS, seed=1, ahead=False).rate.value


# -- where the formula's assumptions hold ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "hits"),
    [
        (FREE, (0.4, 0.6, 0.75)),
        (dataclasses.replace(FREE, hand_over=0.5), (0.4, 0.6, 0.75)),
        (LaneCosts({1: 10.0}, {1: 2.0}, slow=0.3, draft_slow=0.3), (0.0, 0.0, 0.5)),  # fills the verification exactly
        (LaneCosts({1: 10.0}, {1: 1.0}, slow=0.3, draft_slow=0.5, split=True), (0.9,)),
        (LaneCosts({1: 10.0}, {1: 4.0}), (1.0,)),  # drafts outlast the verification, and are waited for
        (LaneCosts({1: 10.0}, {1: 1.0}, slow=0.4, draft_slow=0.2), (0.75,)),  # shared for a part of the verification
    ],
)
def test_a_round_costs_what_the_formula_says(costs: LaneCosts, hits: tuple[float, ...]) -> None:
    plan = dataclasses.replace(PLAN, hits=hits, late="wait")
    run, formula = simulate_ssd(plan, costs, rounds=ROUNDS), account(plan, costs)
    share = run.hits / ROUNDS
    assert share == pytest.approx(plan.hit_rate, abs=0.06)
    exact = formula.missing - (costs.hand_over / 10)
    per_miss = exact / (1 - plan.hit_rate) if plan.hit_rate < 1 else 0.0  # the run's own share of misses, no noise
    expected = formula.ahead - exact + per_miss * (1 - share)
    assert run.round_time / 10 == pytest.approx(expected, rel=1e-6)
    assert run.tokens_per_round == pytest.approx(plan.tokens, abs=0.2)
    in_turn = simulate_ssd(plan, costs, rounds=ROUNDS, ahead=False)
    assert in_turn.round_time / 10 == pytest.approx(1 + formula.hidden)
    assert gain(plan, costs) == pytest.approx(formula.gain, rel=0.03)


def test_the_formula_of_speedups_is_the_simulator_s() -> None:
    """`theory.ssd_speedup`, fed with the simulator's own hit rate and tokens."""
    run = simulate_ssd(dataclasses.replace(PLAN, late="wait"), FREE, rounds=ROUNDS)
    e = run.tokens_per_round
    assert run.rate.value * 10 == pytest.approx(theory.ssd_speedup(run.hits / ROUNDS, e, e, 0.5, 0.4), rel=1e-6)


def test_a_drafter_without_branches_is_drafting_in_turn() -> None:
    plan = dataclasses.replace(PLAN, fan_out=(0,))
    ahead, in_turn = (simulate_ssd(plan, FREE, rounds=300, ahead=flag) for flag in (True, False))
    assert (ahead.tokens, ahead.time, ahead.hits) == (in_turn.tokens, pytest.approx(in_turn.time), 0)


def test_every_outcome_foreseen_hides_the_drafts() -> None:
    run = simulate_ssd(dataclasses.replace(PLAN, hits=(1.0,)), FREE, rounds=300)
    assert run.round_time == pytest.approx(10)
    assert run.hit_rate == 1
    assert run.whole == 300


def test_rows_of_a_batch_hit_independently() -> None:
    """All must hit where all are drafted anew: h^B. Drafting for the missed rows alone is theory's batch formula."""
    for drafted in ("all", "missed", "nothing"):
        plan = dataclasses.replace(PLAN, batch=3, hits=(0.8,), drafted=drafted, late="wait")
        run = simulate_ssd(plan, FREE, rounds=ROUNDS)
        bare = plan.tokens if drafted != "nothing" else 1.0
        expected = theory.ssd_batch(0.8, 3, plan.tokens, bare, 0.5, 0.4, drafted=drafted)
        assert run.rate.value * 10 / 3 == pytest.approx(expected, rel=0.05), drafted


# -- where they do not -------------------------------------------------------------------------------------------------


def test_verifications_that_vary_cost_more_than_their_mean() -> None:
    """The mean of the longer of two is more than the longer of the means: a draft as long as the mean verification is
    free on paper, and is waited for in half of the rounds."""
    plan = dataclasses.replace(PLAN, hits=(1.0,), late="wait")
    costs = LaneCosts({1: 10.0}, {1: 2.0})
    assert account(plan, costs).waiting == 0
    assert simulate_ssd(plan, costs, rounds=ROUNDS).target["wait"] == pytest.approx(0, abs=1e-6)
    varied = simulate_ssd(plan, dataclasses.replace(costs, jitter=0.3), rounds=ROUNDS)
    assert varied.target["verify"] / ROUNDS == pytest.approx(10, rel=0.03), "their mean has not changed"
    assert varied.round_time > 10.8


def test_a_stop_at_a_forward_s_boundary_costs_the_rest_of_the_forward() -> None:
    """Forwards of 3 against a verification of 10: the fourth, a level, ends at 12; the formula stops at once."""
    plan = dataclasses.replace(PLAN, hits=(0.0,))
    run = simulate_ssd(plan, LaneCosts({1: 10.0}, {1: 3.0}), rounds=300)
    assert run.target["wait"] == pytest.approx(300 * 2)
    assert account(plan, LaneCosts({1: 10.0}, {1: 3.0})).waiting == 0


def test_a_drafter_that_is_late_serves_what_it_has() -> None:
    """Three levels of four are ready: shorter drafts at no wait, or the fourth now, or all branches waited for."""
    costs = LaneCosts({1: 10.0}, {1: 1.0, 2: 2.5, 99: 2.5}, glue={1: 2.5})
    runs = {
        late: simulate_ssd(dataclasses.replace(PLAN, hits=(1.0,), late=late), costs, rounds=ROUNDS)
        for late in ("serve", "finish", "wait")
    }
    assert {late: round(run.round_time, 6) for late, run in runs.items()} == {"serve": 10, "finish": 11, "wait": 12.5}
    assert runs["serve"].tokens_per_round == pytest.approx(theory.expected_tokens(0.8, 3), abs=0.2)
    assert runs["finish"].tokens_per_round == pytest.approx(theory.expected_tokens(0.8, 4), abs=0.2)
    assert runs["serve"].whole == 0 == runs["finish"].whole


def test_the_more_a_machine_is_shared_the_more_it_loses() -> None:
    gains = [gain(PLAN, dataclasses.replace(FREE, slow=s, split=True)) for s in (0.0, 0.3, 0.9)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.2
    assert gains[-1] < 1


# -- no time is lost ---------------------------------------------------------------------------------------------------

PLANS = st.builds(
    SsdPlan,
    acceptance=st.lists(st.floats(0, 1), min_size=1, max_size=3).map(tuple),
    k=st.integers(1, 4),
    fan_out=st.integers(0, 4).map(lambda f: (f,)),
    hits=st.floats(0, 2),
    batch=st.integers(1, 3),
    late=st.sampled_from(["serve", "finish", "wait"]),
    drafted=st.sampled_from(["all", "missed", "nothing"]),
)
COSTS = st.builds(
    LaneCosts,
    verify=st.floats(0.5, 5).map(lambda v: {1: v, 8: 1.5 * v}),
    level=st.floats(0.05, 3).map(lambda c: {1: c, 30: 2 * c}),
    hand_over=st.floats(0, 0.5),
    slow=st.floats(0, 1.5),
    draft_slow=st.floats(0, 1.5),
    split=st.booleans(),
    jitter=st.sampled_from([0.0, 0.4]),
)


@settings(max_examples=60, deadline=None)
@given(PLANS, COSTS, st.booleans())
def test_time_is_conserved_and_no_lane_does_two_things_at_once(plan: SsdPlan, costs: LaneCosts, ahead: bool) -> None:
    run = simulate_ssd(plan, costs, rounds=20, keep=20, ahead=ahead)
    assert sum(run.target.values()) == pytest.approx(run.time)
    assert min(run.target.values()) >= -1e-9
    assert sum(run.draft.values()) <= run.time * (1 + 1e-9)
    assert run.hits + run.misses == (20 * plan.batch if ahead else 0)
    assert 20 * plan.batch <= run.tokens <= 20 * plan.batch * (plan.k + 1)
    for lane in ("target", "draft"):
        spans = sorted((s for s in run.spans if s.lane == lane), key=lambda s: s.start)
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(spans))
    _target_waits_for_the_draft_it_verifies(run)


def _target_waits_for_the_draft_it_verifies(run: SsdRun) -> None:
    """Nothing is handed over or drafted now while the target verifies."""
    verifying = [s for s in run.spans if s.lane == "target"]
    for span in run.spans:
        if span.kind in ("hand over", "draft now"):
            assert not any(v.start < span.end - 1e-9 and span.start < v.end - 1e-9 for v in verifying)


def test_the_same_seed_gives_the_same_run_and_another_another() -> None:
    costs = dataclasses.replace(FREE, jitter=0.2)
    assert simulate_ssd(PLAN, costs, rounds=50, seed=3) == simulate_ssd(PLAN, costs, rounds=50, seed=3)
    assert simulate_ssd(PLAN, costs, rounds=50, seed=3) != simulate_ssd(PLAN, costs, rounds=50, seed=4)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SsdPlan((0.8,), 4, (3, 3)), "fan_out has 2"),
        (lambda: SsdPlan((0.8,), 4, hits=(0.5, 0.4)), "does not rise"),
        (lambda: SsdPlan((1.8,), 4), "acceptance=1.8"),
        (lambda: SsdPlan((0.8,), 0), "k=0"),
        (lambda: SsdPlan((0.8,), 4, late="never"), "late='never'"),  # type: ignore[arg-type]
        (lambda: LaneCosts({2: 1.0}, {1: 1.0}), "verify: costs must begin"),
        (lambda: LaneCosts({1: 1.0}, {1: -1.0}), "level"),
        (lambda: LaneCosts({1: 1.0}, {1: 1.0}, slow=-1), "slow=-1"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        make()
