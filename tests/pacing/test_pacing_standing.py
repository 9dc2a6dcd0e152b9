"""For how long decisions stand, and what they count with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.pacing_life import FLAT, event
from support.rows import a_row

from headstart.pacing.belief import Belief, SourcePrior
from headstart.pacing.constants import SETTLED_STEPS, UNKNOWN_COST
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.costs import CurrentCosts
from headstart.pacing.decision import DraftOption, choose
from headstart.pacing.group import Group
from headstart.pacing.source import Source
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Purpose
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Draft, Sampling


def test_a_lone_rows_drafts_stand_until_one_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    pacing = AdaptivePacing([Source("ngram", 8)], StepCosts(FLAT, 0.0, {"ngram": DraftCost()}), clock=lambda: 0.0)
    group, at = pacing._shared, 0
    decisions: list[int] = []
    decide = group._decide

    def noted(*args: Any) -> Any:
        decisions.append(at)
        return decide(*args)

    monkeypatch.setattr(group, "_decide", noted)
    found = [True, True, True, False, False, False, False, False, False, True, False, False]
    for at, matches in enumerate(found):
        plan = pacing.plan([a_row(0, 10 + at, 500)])
        (budget,) = plan.budgets
        assert budget.nodes
        draft = Draft((0,) * budget.nodes, tuple(range(-1, budget.nodes - 1)), source="ngram") if matches else Draft()
        pacing.observe(plan, [event(0, 10 + at, budget, draft, 0, 1, 0.0, 0.01)])
    after_a_draft = {at + 1 for at, matches in enumerate(found[:-1]) if matches}
    assert after_a_draft <= set(decisions)
    others = sorted(set(decisions) - after_a_draft - {0})
    assert others == [3 + SETTLED_STEPS]


def test_what_is_learned_when_a_decision_ends_is_no_part_of_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows with the steps for which the decision stood, and a price that grew with it would let it stand longer."""
    now = [0.0]
    pacing = AdaptivePacing([Source("ngram", 8)], StepCosts(FLAT, 0.0, {"ngram": DraftCost()}), clock=lambda: now[0])

    def taking(seconds: float, function: Any) -> Any:
        def timed(*args: Any, **options: Any) -> Any:
            now[0] += seconds
            return function(*args, **options)

        return timed

    monkeypatch.setattr(Group, "_decide", taking(0.0004, Group._decide))
    monkeypatch.setattr(Belief, "learn", taking(0.00005, Belief.learn))
    shares = []
    for at in range(100):
        plan = pacing.plan([a_row(r, 10 + at, 500) for r in range(8)])
        drafts = [Draft((0,) * b.nodes, tuple(range(-1, b.nodes - 1)), source="ngram") for b in plan.budgets]
        pacing.observe(
            plan,
            [event(r, 10 + at, b, d, 0, 8, 0, 0.01) for r, (b, d) in enumerate(zip(plan.budgets, drafts, strict=True))],
        )
        shares.append(pacing._shared.deciding_share)
    assert pacing._shared._deciding[True] == pytest.approx(0.0004, rel=0.01)
    assert max(shares) > 0.0004  # which steps pay for together


@pytest.mark.parametrize("batch", [1, 3])
def test_what_steps_show_is_believed_at_the_end_of_a_decision_as_if_it_had_been_at_each_step(batch: int) -> None:
    sources = [Source("ngram", 8), Source("tree", 8, ((1, 1), (2, 2), (4, 2), (8, 3)))]
    costs = StepCosts(FLAT, 0.0, {"ngram": DraftCost(), "tree": DraftCost(0.0, 0.0004)})
    once, each = (AdaptivePacing(sources, costs, clock=lambda: 0.0) for _ in range(2))
    rng, at, kept = np.random.default_rng(batch), [10] * batch, 0
    for number in range(120):
        plans = [pacing.plan([a_row(r, at[r], 500) for r in range(batch)]) for pacing in (once, each)]
        assert plans[0].budgets == plans[1].budgets
        steps = []
        for r, budget in enumerate(plans[0].budgets):
            name = str(rng.choice(["", "ngram", "tree"])) if budget.nodes else ""
            nodes, other = budget.max_nodes.get(name, 0), Draft((0, 0), (-1, 0), source="ngram")
            draft = Draft((0,) * nodes, tuple(range(-1, nodes - 1)), source=name) if nodes else Draft()
            draft = replace(draft, passed_over=(other,) * (name == "tree" and number % 3 == 0))
            accepted = int(rng.integers(nodes + 1))
            steps.append(event(r, at[r], budget, draft, accepted, batch, 0.0, 0.01))
            at[r] += 1 + accepted
        for plan, pacing in zip(plans, (once, each), strict=True):
            pacing.observe(plan, steps)
        kept += bool(once._shared._shown)
        each._shared.settle()
        if number % 40 == 39:
            for pacing in (once, each):
                pacing.release(0)
            assert not once._shared._shown, "later requests learn from it, too"
    assert kept > 20
    for r in range(1, batch):
        for mine, other in zip(once._states[r].beliefs, each._states[r].beliefs, strict=True):
            assert mine.weights == other.weights
    for mine, other in zip(once._shared.priors, each._shared.priors, strict=True):
        assert (mine.weights, mine.rounds, mine.coverage(True, 1)) == (
            other.weights, other.rounds, other.coverage(True, 1)
        )  # fmt: skip


def test_no_distributions_are_kept_until_a_decision_ends() -> None:
    pacing = AdaptivePacing([Source("draft", 4)], StepCosts(FLAT, 0.0, {"draft": DraftCost()}), clock=lambda: 0.0)
    for at in range(90):
        plan = pacing.plan([a_row(0, 10 + at, 500)])
        chain = Draft.chain([0] * plan.budgets[0].nodes, torch.ones(plan.budgets[0].nodes, 2))
        pacing.observe(plan, [event(0, 10 + at, plan.budgets[0], replace(chain, source="draft"), 0, 1, 0.0, 0.01)])
        assert not pacing._shared._shown
    assert pacing._shared._priors[0].rounds > 20


def test_the_share_of_steps_with_a_draft_nears_that_of_the_long_run() -> None:
    prior = SourcePrior(Source("ngram", 8).sizes)
    for _ in range(200):  # stretches of four steps with a draft, and of eight without
        for step in range(12):
            prior.answered(0 < step <= 4, step < 4)
    now = [prior.coverage(drafted, 1) for drafted in (False, True)]
    assert now[0] < 0.25 < 0.6 < now[1]
    for steps in (4, 16, 1000):
        later = [prior.coverage(drafted, steps) for drafted in (False, True)]
        assert now[0] < later[0] < later[1] < now[1]
        now = later
    assert now[1] - now[0] < 0.01
    chances = [prior.coverage(drafted, 1) for drafted in (False, True)]
    share, total = chances[0], 0.0
    for _ in range(16):
        total += share
        share = (1 - share) * chances[0] + share * chances[1]
    assert prior.coverage(False, 16) == pytest.approx(total / 16)


@pytest.mark.parametrize(("purpose", "distributions"), [(Purpose.DRAFT, 5), (Purpose.TOKEN, 2)])
def test_a_walk_counts_the_distributions_up_to_the_first_miss(
    purpose: Purpose, distributions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under rule "coupled", whose drawn drafts are walked like any other; "exact" has all of a drawn draft's."""
    pacing = AdaptivePacing([Source("draft", 8)], StepCosts(FLAT, 0.0, {"draft": DraftCost()}), clock=lambda: 0.0)
    seen: list[int] = []
    observe = pacing._shared.costs.observe

    def noted(batch: int, rows: float, sampled: int, *rest: Any) -> Any:
        seen.append(sampled)
        return observe(batch, rows, sampled, *rest)

    monkeypatch.setattr(pacing._shared.costs, "observe", noted)
    sampling_state = SamplingState(Sampling(temperature=1.0), (), 9, frozenset())
    plan = pacing.plan([replace(a_row(0, 10, 500), sampling_state=sampling_state, purpose=purpose)])
    draft = Draft.chain((0,) * 4, torch.full((4, 9), 1 / 9))
    pacing.observe(plan, [event(0, 10, plan.budgets[0], draft, 1, 1, 0.0, 0.01)])
    assert seen == [distributions]


class Ticking:
    """A clock that goes on by so many seconds whenever it is read."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now = seconds, 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def decisions_of_a_lone_row(seconds: float, *, reproducible: bool = False, steps: int = 400) -> int:
    """Decisions in so many steps of 10 ms with a judged draft each, where each look at the clock takes so long."""
    costs = StepCosts(FLAT, 0.0, {"ngram": DraftCost()})
    pacing = AdaptivePacing([Source("ngram", 8)], costs, clock=Ticking(seconds))
    count = 0
    decide = Group._decide

    def counted(self: Group, *args: Any) -> Any:
        nonlocal count
        count += 1
        return decide(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Group, "_decide", counted)
        for at in range(steps):
            plan = pacing.plan([a_row(0, 10 + at, 500, reproducible=reproducible)])
            (budget,) = plan.budgets
            draft = Draft.chain((0,) * budget.nodes)
            draft = replace(draft, source="ngram")
            pacing.observe(plan, [event(0, 10 + at, budget, draft, min(2, len(draft)), 1, 0.0, 0.01)])
    return count


def test_a_decision_that_takes_long_stands_for_some_judged_drafts() -> None:
    quick, slow = decisions_of_a_lone_row(1e-6), decisions_of_a_lone_row(0.001)
    assert quick == 400  # 10 us of 10 ms: there is a decision after each draft
    assert 100 <= slow < 120  # after the first few, every fourth


def test_no_clock_says_how_long_a_reproducible_rows_decision_stands() -> None:
    quick, slow = (decisions_of_a_lone_row(seconds, reproducible=True) for seconds in (1e-6, 0.001))
    assert quick == slow
    assert 200 <= slow < 205


def test_steps_in_which_nothing_is_drafted_or_learnt_take_no_thought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their plan is one and the same, and what such a step takes is observed once."""
    pacing = AdaptivePacing([Source("draft", 4)], StepCosts(FLAT, 0.0, {"draft": DraftCost(0.1)}), clock=lambda: 0.0)
    plans, seen = [], list[Any]()
    observe = pacing._shared.costs.observe_thinking

    def noted(*args: Any, **named: Any) -> None:
        seen.append(args)
        observe(*args, **named)

    monkeypatch.setattr(pacing._shared.costs, "observe_thinking", noted)
    for at in range(200):
        plan = pacing.plan([a_row(0, 10 + at, 500)])
        plans.append(plan)
        pacing.observe(plan, [event(0, 10 + at, plan.budgets[0], Draft(), 0, 1, 0.0, 0.01)])
    assert all(plan.budgets[0].nodes == 0 for plan in plans[100:])
    assert len({id(plan) for plan in plans[100:]}) < 25
    assert len(seen) < 60


def test_asking_for_nothing_has_to_be_paid_for() -> None:
    """A source that matches one token in ten, and is asked at each of them."""
    nodes = depths = np.arange(1, 9)
    gains = np.cumsum(0.6 ** np.arange(1, 9))
    for start, drafts in ((0.0, True), (0.0001, True), (0.002, False)):
        costs = CurrentCosts(StepCosts(FLAT, 0.0, {"ngram": DraftCost(start)}), ["ngram"])
        option = DraftOption(0, 0.1, nodes, depths, gains)
        found = choose([[option]], costs, batch=1, sampled=[False])
        assert any(map(any, found.nodes)) is drafts
        always = choose([[replace(option, coverage=1.0)]], costs, batch=1, sampled=[False])
        assert always.nodes[0][0] > 0
        unknown = choose([[replace(option, asked=False)]], costs, batch=1, sampled=[False])
        assert unknown.nodes[0][0] > 0  # how often it has none is not known yet


def test_a_reason_is_put_in_words_again_when_its_chances_have_moved() -> None:
    pacing = AdaptivePacing([Source("ngram", 8)], StepCosts(FLAT, 0.0, {"ngram": DraftCost()}), clock=lambda: 0.0)
    pacing.plan([a_row(0, 10, 500)])
    state = pacing._states[0]
    made: list[float] = []

    def words(chances: list[float]) -> str:
        made.extend(chances)
        return str(chances)

    state.beliefs[0]._weights = [0.0] * 4 + [1.0] + [0.0] * 5
    first = state.reason_of([3], words)
    state.beliefs[0]._weights = [0.0] * 4 + [0.8, 0.2] + [0.0] * 4
    assert state.reason_of([3], words) == first
    state.beliefs[0]._weights = [0.0] * 5 + [1.0] + [0.0] * 4
    assert state.reason_of([3], words) != first
    assert made == pytest.approx([0.6, 0.72])
    state.reason_of([4], words)
    assert len(made) == 3


def test_a_source_that_does_not_pay_for_asking_keeps_no_other_out() -> None:
    """The first of a list is asked at each token and matches one in twenty."""
    nodes = depths = np.arange(1, 9)
    gains = np.cumsum(0.6 ** np.arange(1, 9))
    costs = CurrentCosts(
        StepCosts(FLAT, 0.0, {"seldom": DraftCost(0.002), "often": DraftCost(0.0005)}), ["seldom", "often"]
    )
    seldom, often = DraftOption(0, 0.05, nodes, depths, gains), DraftOption(1, 0.9, nodes, depths, gains)
    both = choose([[seldom, often]], costs, batch=1, sampled=[False])
    alone = choose([[often]], costs, batch=1, sampled=[False])
    assert both.nodes[0][0] == 0 < both.nodes[0][1]
    assert both.rate == pytest.approx(alone.rate)
    better = replace(seldom, source=1, gains=2 * gains)  # asked after the other, and better where it matches
    costs = CurrentCosts(
        StepCosts(FLAT, 0.0, {"often": DraftCost(0.0005), "seldom": DraftCost(0.004)}), ["often", "seldom"]
    )
    ((first, second),) = choose([[replace(often, source=0), better]], costs, batch=1, sampled=[False]).nodes
    assert first > 0 == second


def test_an_interrupted_first_decision_is_not_taken_for_the_rule() -> None:
    group = AdaptivePacing([Source("draft", 4)], StepCosts(FLAT, 0.0, {"draft": DraftCost()}))._shared
    for batch in (1, 4):
        group.decided_in(10.0, batch)
        assert group._deciding[batch > 1] < 2 * UNKNOWN_COST * group.costs.step_now(batch)
