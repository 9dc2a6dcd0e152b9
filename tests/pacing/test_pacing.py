"""Decisions of the adaptive pacing, with made-up costs and made-up guesses: no model is run here."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pacing_simulation as simulation
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pacing_stepwise import StepwisePacing
from support.pacing_life import FLAT, STEEP, Life, event
from support.rows import a_row

from headstart.base.errors import InvalidOption
from headstart.pacing import FixedPacing, decision
from headstart.pacing.belief import Belief, SourcePrior
from headstart.pacing.constants import FIRST_ROUNDS, MIN_TIME_SHARE, PRECISION, REFRESH_STEPS, SETTLED_STEPS
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.costs import CurrentCosts
from headstart.pacing.decision import DraftOption, choose
from headstart.pacing.source import Source
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Budget, Draft, Seconds

# -- what is decided ---------------------------------------------------------------------------------------------------


def test_a_perfect_draft_gets_long() -> None:
    life = Life({"draft": 0.001})
    life.run(10, {"draft": 1.0})
    assert life.step({"draft": 1.0})[0].nodes == 12


def test_a_useless_draft_is_stopped_and_probed_within_two_percent() -> None:
    life = Life({"draft": 0.0013})
    life.run(20, {"draft": 0.0})
    assert life.plain / life.spent > 0.9  # what learning it cost
    life.spent = life.plain = 0.0
    nodes = life.run(1000, {"draft": 0.0})
    assert 1 - life.plain / life.spent < 0.02
    assert set(nodes) == {0, 1}
    assert sum(nodes) > 5, "it must be tried now and then"
    budgets = [life.step({"draft": 0.0})[0] for _ in range(400)]
    assert all(budget.idle.startswith("not guessing now: checking 2 rows costs 1.0") for budget in budgets)
    reasons = [budget.reason for budget in budgets]
    assert any("costs more than it gives; probing every" in reason for reason in reasons)
    assert any(reason.startswith("K=1: probing draft") for reason in reasons)


def test_a_draft_slower_than_the_target_is_never_asked_once_that_is_known() -> None:
    life = Life({"draft": 0.012})
    # One more where three in a row have not yet shown its costs
    assert FIRST_ROUNDS <= sum(life.run(300, {"draft": 1.0})) <= FIRST_ROUNDS + 1
    assert set(life.run(1000, {"draft": 1.0})) == {0}
    (budget,) = life.step({"draft": 1.0})
    price = "checking 2 rows costs 1.01 baseline steps here, drafting 1.19: too much even if every guess were right"
    assert budget.reason == f"K=0: {price}"
    assert budget.idle == f"not guessing now: {price}"


def test_a_seed_does_not_pay_for_getting_to_know_a_source() -> None:
    life = Life({"draft": 0.012})
    budgets = [life.pacing.plan([a_row(0, 10 + i, 500, reproducible=True)]).budgets[0] for i in range(300)]
    assert not any(budget.nodes for budget in budgets)


@pytest.mark.parametrize("read", [0.0, 0.0001])
def test_drafts_that_are_cheaper_than_their_profile_says_are_found_out(read: float) -> None:
    """By its profile, which was measured beside other work, a drafted token takes longer than a step of the target."""
    life = Life({"draft": 0.012}, read=8 * read)
    quick = StepCosts(FLAT, 0.0, {"draft": DraftCost(0.0, 0.0015, read, 0.1)})
    life.truth = CurrentCosts(quick, life.names)
    for _ in range(20):
        life.answer(80, 96, {"draft": 0.9})
    life.spent = life.plain = 0.0
    for _ in range(4):
        life.answer(80, 96, {"draft": 0.9})
    assert life.plain / life.spent > 1.5


def test_a_copy_of_the_target_is_believed_to_guess_well_before_it_has() -> None:
    """A stack's profile is measured on a text that nobody wrote, on which its own drafter is of little use: by it, a
    token takes several times as long as on the texts that come."""
    stack = StepCosts(FLAT, 0.0, {"self-int4": DraftCost(0.0013, 0.0011)})
    life = Life({"self-int4": 0.0065}, read=0.0002, same_model={"self-int4"})
    life.truth = CurrentCosts(stack, life.names)
    for _ in range(4):
        life.answer(130, 96, {"self-int4": 0.95})
    assert life.plain / life.spent > 2.5
    useless = Life({"self-int4": 0.0065}, same_model={"self-int4"})
    useless.run(400, {"self-int4": 0.0})
    assert useless.plain / useless.spent > 0.95  # what finding out costs is soon forgotten


def test_a_context_to_read_does_not_keep_a_lone_draft_from_beginning() -> None:
    """It is read once, here for 1.2 target steps; the first draft alone would not be worth that."""
    life = Life({"draft": 0.003}, read=0.0003)
    life.positions = [40]
    assert life.step({"draft": 0.95})[0].nodes > 0
    life.run(30, {"draft": 0.95})
    assert life.plain / life.spent > 1.5


@pytest.mark.parametrize("right", [0.95, 0.8])
def test_a_list_is_not_behind_a_draft_that_has_the_context_to_read(right: float) -> None:
    """A copying source in front that seldom has anything to say leaves the model behind it nearly as quick as alone."""
    sources, acceptance = {"copy": 0.0, "model": 0.0025}, {"copy": 0.3, "model": right}
    both = Life(sources, read=0.0005, coverage={"copy": 0.1})
    alone = Life({"model": 0.0025}, read=0.0005)
    for life in (both, alone):
        for _ in range(6):
            life.answer(80, 96, acceptance)
    speed, of_model = both.plain / both.spent, alone.plain / alone.spent
    assert of_model > 1.25
    assert speed > 0.88 * of_model


def test_a_context_that_no_answer_pays_for_is_not_read() -> None:
    """Short answers and a long text: reading it would take longer than all drafts of the answer save."""
    life = Life({"copy": 0.0, "model": 0.0025}, read=0.0008, coverage={"copy": 0.3})
    for _ in range(4):
        life.answer(400, 24, {"copy": 0.9, "model": 0.95})
    assert life.plain / life.spent > 1.0


def test_a_context_is_read_for_the_rest_of_the_text_however_little_a_step_may_draft() -> None:
    """Reading 98 tokens takes five plain steps: of use to a text with 96 to come, and not to one with 7."""
    drafted = {}
    for left in (7, 96):
        row = replace(a_row(0, 100, 6), left=left)
        (budget,) = Life({"draft": 0.0015}, read=0.0005).pacing.plan([row]).budgets
        drafted[left] = budget.nodes
    assert drafted[7] == 0 < drafted[96]


def test_more_rows_draft_less_where_rows_cost_time() -> None:
    lengths = []
    for batch in (1, 4, 16):
        life = Life({"draft": 0.001}, rows=((1, 0.01), (8, 0.0105), (16, 0.012), (32, 0.022), (64, 0.044)), batch=batch)
        life.run(60, {"draft": 0.85})
        lengths.append(np.mean([b.nodes for b in life.step({"draft": 0.85})]))
    assert lengths[0] > lengths[1] > lengths[2]


def test_sources_are_paced_apart() -> None:
    """A source that guesses badly is passed over for the one behind it, and comes back when the text changes."""
    life = Life({"ngram": 0.0, "lm": 0.001})
    life.run(60, {"ngram": 0.05, "lm": 0.9})
    caps = [life.step({"ngram": 0.05, "lm": 0.9})[0].max_nodes for _ in range(100)]
    assert np.mean([each["ngram"] == 0 and each["lm"] >= 4 for each in caps]) > 0.8
    assert any(each["ngram"] == 1 for each in caps), "it must be tried now and then"
    assert any("ngram off" in life.step({"ngram": 0.05, "lm": 0.9})[0].reason for _ in range(20))
    life.run(100, {"ngram": 0.99, "lm": 0.9})
    caps = [life.step({"ngram": 0.99, "lm": 0.9})[0].max_nodes for _ in range(20)]
    assert np.mean([each["ngram"] >= 8 for each in caps]) > 0.8


def test_a_free_source_that_is_passed_over_gets_its_turn_when_it_would_have_been_right() -> None:
    """Probing it would displace the better one's draft; what it would have said costs nothing to know."""
    life = Life({"free": 0.0, "dear": 0.0003}, limit=16)
    for _ in range(80):
        life.step({"free": 0.0, "dear": 0.85})
    steps = [life.step({"free": 0.0, "dear": 0.85})[0].max_nodes["free"] for _ in range(60)]
    assert set(steps) == {0, 1}, "it is passed over, and tried now and then"
    while life.step({"free": 0.0, "dear": 0.85})[0].max_nodes["free"]:
        pass
    caps = []
    for _ in range(8):  # now the text repeats itself
        plan = life.pacing.plan([a_row(0, life.positions[0], 500)])
        (budget,) = plan.budgets
        caps.append(budget.max_nodes["free"])
        if caps[-1]:
            break
        draft = Draft((0,) * budget.nodes, tuple(range(-1, budget.nodes - 1)), source="dear")
        draft = replace(draft, passed_over=(replace(Draft.chain([0] * 8), source="free"),))
        life.pacing.observe(plan, [event(0, life.positions[0], budget, draft, budget.nodes, 1, 0.003, 0.011)])
        life.positions[0] += budget.nodes + 1
    assert caps[-1] > 8


def test_a_change_of_text_is_followed() -> None:
    life = Life({"draft": 0.0013})
    life.run(30, {"draft": 0.97})
    falling = life.run(6, {"draft": 0.0})
    assert falling[0] >= 8
    assert falling[-1] <= 1
    life.run(100, {"draft": 0.0})
    back = life.run(60, {"draft": 0.97})
    first = next(i for i, nodes in enumerate(back) if nodes)
    assert first < 40
    assert max(back[first : first + 5]) >= 6, "one probe that holds is believed"


def test_a_machine_unlike_its_profile_is_found_out() -> None:
    """The profile calls a forward of many rows expensive; it is not. And the other way round."""
    dear = tuple((n, 0.01 * (1 + 0.3 * (n - 1))) for n, _ in FLAT)
    for profile, truth, long in ((dear, FLAT, True), (FLAT, STEEP, False)):
        life = Life({"draft": 0.0005}, rows=profile)
        life.truth = CurrentCosts(StepCosts(truth, 0.0, life.costs.drafts), life.names)
        life.run(300, {"draft": 0.9})
        mean = np.mean(life.run(50, {"draft": 0.9}))
        assert mean > 4 if long else mean < 1, mean


# -- the bounds of a budget --------------------------------------------------------------------------------------------

numbers = st.floats(0.0, 1.0)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_budgets_never_exceed_room_or_limit(data: st.DataObject) -> None:
    limits = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))
    names = [f"source {i}" for i in range(len(limits))]
    costs = StepCosts(
        data.draw(st.sampled_from([FLAT, STEEP])),
        data.draw(st.floats(0, 0.01)),
        {n: DraftCost(*data.draw(st.tuples(*[st.floats(0, 0.02)] * 3)), 0.3) for n in names},
    )
    ticks = itertools.count(0.0, 1e-5)  # a clock whose decisions take as long in each run
    pacing = AdaptivePacing(
        [Source(n, limit) for n, limit in zip(names, limits, strict=True)], costs, clock=ticks.__next__
    )
    positions = dict.fromkeys(range(data.draw(st.integers(1, 4))), 5)
    for _ in range(data.draw(st.integers(1, 12))):
        rows = [
            a_row(r, at, data.draw(st.integers(0, 20)), reproducible=bool(r % 2)) for r, at in positions.items()
        ]  # fmt: skip
        plan = pacing.plan(rows)
        budgets, steps = plan.budgets, []
        assert len(budgets) == len(rows)
        for row, budget in zip(rows, budgets, strict=True):
            assert 0 <= budget.nodes <= row.room
            assert all(budget.max_nodes[n] <= limit for n, limit in zip(names, limits, strict=True) if budget.max_nodes)
            assert budget.nodes == max(budget.max_nodes.values(), default=0)
            assert bool(budget.reason) == (row.room > 0)
            k = data.draw(st.integers(0, budget.nodes))
            source = next((n for n, cap in budget.max_nodes.items() if cap >= k > 0), "")
            draft = Draft((0,) * k, tuple(range(-1, k - 1)), source=source) if source else Draft()
            accepted = data.draw(st.integers(0, len(draft)))
            steps.append(
                event(
                    row.request,
                    len(row.tokens),
                    budget,
                    draft,
                    accepted,
                    len(rows),
                    data.draw(numbers),
                    data.draw(numbers),
                )
            )
            positions[row.request] += accepted + 1
        pacing.observe(plan, steps)


@given(
    st.lists(numbers, min_size=1, max_size=8), st.floats(0, 0.01), st.floats(0, 0.005), st.sampled_from([FLAT, STEEP])
)
@settings(max_examples=100, deadline=None)
def test_one_row_gets_the_best_length(kept: Sequence[float], token: float, start: float, rows: Any) -> None:
    """Against every length in turn; and two such rows get no less than one of the lengths for both."""
    survival = list(itertools.accumulate(kept, lambda a, b: a * b))
    costs = CurrentCosts(StepCosts(rows, 0.0, {"s": DraftCost(start, token)}), ["s"])
    k = np.arange(1, len(survival) + 1)
    option = DraftOption(0, 1.0, k, k, np.cumsum(survival))
    choice = choose([[option]], costs, batch=1, sampled=[False])

    def rate(k: int) -> float:
        return (1 + sum(survival[:k])) / (costs.step(1, 1 + k) + (start + token * k if k else 0))

    best = max(rate(k) for k in range(len(survival) + 1))
    assert rate(choice.nodes[0][0]) >= best / (1 + PRECISION) - 1e-9
    pair = choose([[option], [option]], costs, batch=2, sampled=[False] * 2)

    def rate_of_both(k: int) -> float:
        drafting = costs.in_turn(0, (k, k), 2) if k else 0.0
        return 2 * (1 + sum(survival[:k])) / (costs.step(2, 2 * (1 + k)) + drafting)

    best = max(rate_of_both(k) for k in range(len(survival) + 1))
    assert [nodes == pair.nodes[0] for nodes in pair.nodes] == [True, True]
    assert rate_of_both(pair.nodes[0][0]) >= best / (1 + 2 * PRECISION)


@pytest.mark.parametrize("coverage", [0.05, 0.5, 0.95])
def test_a_source_drafts_as_if_it_were_alone_where_those_before_it_have_no_draft(coverage: float) -> None:
    """However much the one before it brings when it has a draft: its steps are others."""
    costs = CurrentCosts(
        StepCosts(FLAT, 0.0, {"copy": DraftCost(), "model": DraftCost(0.002, 0.002)}), ["copy", "model"]
    )
    k = np.arange(1, 13)
    copy, model = DraftOption(0, coverage, k, k, 0.95 * k), DraftOption(1, 1.0, k, k, np.cumsum(0.7**k))
    ((alone,),) = choose([[replace(model, source=1)]], costs, batch=1, sampled=[False]).nodes
    assert alone > 0
    assert choose([[copy, model]], costs, batch=1, sampled=[False]).nodes == [[12, alone]]


def test_a_source_that_had_a_draft_is_likelier_to_have_the_next() -> None:
    """Text repeats itself in stretches; what it did in another request says little about the beginning of this one."""
    prior = SourcePrior(((1, 1),))
    for _ in range(10):
        belief = Belief(prior)
        for drafted in [False] * 12 + [True] * 6:
            before = belief.coverage()
            belief.answered(drafted)
    assert before > 0.8
    assert Belief(prior).coverage() < 0.2


@given(st.lists(st.floats(0.05, 0.98), min_size=2, max_size=3), st.floats(0, 0.003), st.sampled_from([FLAT, STEEP]))
@settings(max_examples=60, deadline=None)
def test_unlike_rows_get_nearly_the_best_lengths(rights: Sequence[float], token: float, rows: Any) -> None:
    """Against every choice of lengths for all rows."""
    costs = CurrentCosts(StepCosts(rows, 0.0, {"s": DraftCost(0.0, token, 0.0, 0.1)}), ["s"])
    k, batch = np.arange(1, 7), len(rights)
    gains = [np.cumsum(right**k) for right in rights]
    options = [[DraftOption(0, 1.0, k, k, gain)] for gain in gains]

    def rate(lengths: Sequence[int]) -> float:
        tokens = batch + sum(float(gain[each - 1]) for gain, each in zip(gains, lengths, strict=True) if each)
        live = [sum(each > depth for each in lengths) for depth in range(max(lengths))]
        drafting = sum(token * (1 + 0.1 * (requests - 1)) for requests in live)
        return tokens / (costs.step(batch, batch + sum(lengths)) + drafting)

    best = max(rate(lengths) for lengths in itertools.product(range(7), repeat=batch))
    chosen = choose(options, costs, batch=batch, sampled=[False] * batch)
    assert rate([nodes for (nodes,) in chosen.nodes]) >= 0.95 * best


@given(
    st.lists(st.tuples(st.floats(0.02, 0.9), st.floats(0.02, 0.9)), min_size=2, max_size=6),
    st.floats(0, 0.004),
    st.floats(0, 0.5),
    st.booleans(),
    st.sampled_from([FLAT, STEEP]),
)
@settings(max_examples=150, deadline=None)
def test_a_batch_that_is_given_up_early_would_have_drafted_nothing(
    rights: Sequence[tuple[float, float]], token: float, coverage: float, drawn: bool, rows: Any
) -> None:
    costs = CurrentCosts(
        StepCosts(rows, 0.001, {"copy": DraftCost(point_masses=True), "model": DraftCost(0.0, token, 0.0, 0.3)}),
        ["copy", "model"],
    )
    k, batch = np.arange(1, 7), len(rights)
    options = [
        [DraftOption(0, coverage, k, k, np.cumsum(copy**k)), DraftOption(1, 1.0, k, k, np.cumsum(model**k))]
        for copy, model in rights
    ]
    asked = {"batch": batch, "sampled": [drawn] * batch}
    found = choose(options, costs, **asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "_hopeless", lambda *_: False)
        assert choose(options, costs, **asked).nodes == found.nodes


def test_a_decision_that_takes_long_stands_for_longer() -> None:
    """Deciding takes a small share of a batch's time, whatever a decision takes."""
    stood = {}
    half = MIN_TIME_SHARE * StepCosts(FLAT, 0.0, {}).step(4, 4) * REFRESH_STEPS / 2
    for seconds in (1e-6, half, 1e-2):
        ticks = itertools.count(0.0, seconds)
        sources = [Source("s", 4)]
        pacing = AdaptivePacing(
            sources, StepCosts(FLAT, 0.0, {"s": DraftCost()}), clock=lambda ticks=ticks: next(ticks)
        )
        group = pacing._shared
        rows = [a_row(number, 3, 8) for number in range(4)]
        for _ in range(3):
            pacing.plan(rows)
        stood[seconds] = group._holds
    assert stood[1e-6] <= SETTLED_STEPS < stood[half] < stood[1e-2] <= REFRESH_STEPS


def test_a_batch_drafts_only_where_that_pays_for_the_thinking_too() -> None:
    costs = CurrentCosts(StepCosts(FLAT, 0.0, {"s": DraftCost(0.0, 0.0)}), ["s"])
    k = np.arange(1, 4)
    rows = [[DraftOption(0, 1.0, k, k, np.cumsum(0.2**k))] for _ in range(4)]

    def drafts() -> bool:
        return any(any(nodes) for nodes in choose(rows, costs, batch=4, sampled=[False] * 4).nodes)

    assert drafts()
    step = costs.step(4, 4)
    for _ in range(7):  # the first ones only set the level
        costs.observe(4, 4, 0, step)
    for _ in range(60):
        costs.observe_thinking(4, True, 0.5 * step)
    assert costs.thinking(4, drafting=True) == pytest.approx(0.5 * step, rel=0.01)
    assert costs.thinking(8, drafting=True) == pytest.approx(step, rel=0.01)
    assert not drafts()
    for _ in range(60):
        costs.observe_thinking(4, False, 0.45 * step)
    assert drafts(), "thinking takes nearly as long without drafts"


def test_thinking_without_drafts_is_never_thought_to_take_longer_than_with_them() -> None:
    """Nobody sees it while all steps have drafts, and they would have them for ever."""
    costs = CurrentCosts(StepCosts(FLAT), [])
    step = costs.step(8, 8)
    for _ in range(8):
        costs.observe(8, 8, 0, step)
    costs.observe_thinking(8, False, 3 * step)  # interrupted
    costs.observe_thinking(8, True, 0.02 * step)
    assert costs.thinking(8, drafting=False) <= costs.thinking(8, drafting=True) == pytest.approx(0.02 * step)
    costs.observe_thinking(8, True, 0.03 * step, tried=True)
    assert costs.thinking(8, drafting=True) == pytest.approx(0.02 * step), "a trial takes more thought than others"


def test_what_a_batch_shares_is_paid_for_by_the_few_rows_that_have_a_draft() -> None:
    """Each draft brings 0.8 tokens for the price of a tenth of one, but two of eight rows have one, and deciding for
    all of them takes a third of a step."""
    costs = CurrentCosts(StepCosts(FLAT, 0.0, {"s": DraftCost(0.0, 0.0)}), ["s"])
    step = costs.step(8, 8)
    for _ in range(8):
        costs.observe(8, 8, 0, step)
    for _ in range(60):
        costs.observe_thinking(8, True, 0.35 * step)
        costs.observe_thinking(8, False, 0.01 * step)

    def drafts(coverage: float) -> bool:
        k = np.arange(1, 2)
        rows = [[DraftOption(0, coverage, k, k, np.array([0.8]))] for _ in range(8)]
        return any(any(nodes) for nodes in choose(rows, costs, batch=8, sampled=[False] * 8).nodes)

    assert drafts(1.0)
    assert not drafts(0.25)


# -- the other pacings -------------------------------------------------------------------------------------------------


def test_a_first_decision_that_was_interrupted_is_not_what_decisions_take() -> None:
    costs = CurrentCosts(StepCosts(FLAT), [])
    for _ in range(8):
        costs.observe(1, 1, 0, costs.step(1, 1))
    costs.observe_thinking(1, True, 0.02)
    assert costs.thinking(1, drafting=True) <= 0.25 * costs.step(1, 1)
    for _ in range(200):
        costs.observe_thinking(1, True, 0.004)
    assert costs.thinking(1, drafting=True) == pytest.approx(0.004, rel=0.01), (
        "if they do take that long, it is found out"
    )


def test_a_step_takes_what_is_not_its_forward_too() -> None:
    """Choosing who runs and writing down what was decided: the dearer a step is, the better drafts pay."""
    pacing = AdaptivePacing([Source("draft", 4)], StepCosts(FLAT), clock=lambda: 0.0)
    for position in range(10, 90):
        plan = pacing.plan([a_row(0, position, 500)])
        step = event(0, position, plan.budgets[0], Draft(), 0, 1, 0.0, 0.01)
        pacing.observe(plan, [replace(step, seconds=Seconds(plan=0.001, verify=0.009, sample=0.001, commit=0.002))])
    assert pacing._shared.costs.step(1, 1) == pytest.approx(0.013, rel=0.02)


def test_fixed_and_stepwise() -> None:
    row = a_row(3, 10, 5)
    assert FixedPacing(4).plan([row, row]).budgets == [Budget(4, "K=4, fixed")] * 2
    with pytest.raises(InvalidOption, match="num_speculative_tokens"):
        FixedPacing(-1)
    pacing = StepwisePacing()
    for accepted, reached in ((True, 10), (False, 2)):
        for _ in range(30):
            plan = pacing.plan([row])
            (budget,) = plan.budgets
            k = budget.nodes
            draft = Draft.chain([0] * k)
            pacing.observe(plan, [event(3, 10, budget, draft, k if accepted else 0, 1, 0.1, 0.1)])
        assert pacing.plan([row]).budgets[0].nodes == reached
    pacing.release(3)
    assert pacing.plan([row]).budgets[0].nodes == 5


def test_costs_are_checked() -> None:
    with pytest.raises(ValueError, match="one row"):
        StepCosts(((2, 0.1),))
    with pytest.raises(ValueError, match="positive"):
        StepCosts(((1, float("nan")),))
    with pytest.raises(ValueError, match="at least 0"):
        StepCosts(FLAT, 0.0, {"x": DraftCost(-1.0)})
    with pytest.raises(ValueError, match="draft nothing"):
        AdaptivePacing([Source("x", 0)], StepCosts(FLAT))


# -- the simulator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [simulation.WORLDS[0], simulation.WORLDS[2]], ids=lambda world: world.name)
def test_simulated_text_that_switches(world: simulation.World) -> None:
    """Within 15% of an oracle that knows the best K of each stretch, on 1,000 tokens; the benchmark asks for more."""
    process = simulation.switching(0.95, 0.05)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        alphas = [process(rng, 2100)]
        found = simulation.contenders(world, alphas)
        ours, oracle, simple = (
            simulation.speed(world, found[name], alphas, 1000, seed) for name in ("adaptive", "oracle", "stepwise")
        )
        assert ours > 0.85 * oracle
        assert ours > simple


@pytest.mark.parametrize("batch", [1, 3])
def test_point_masses_are_charged_for_distributions_only_as_far_as_they_are_accepted(batch: int) -> None:
    """Guesses that are seldom right cost a sampled row hardly a distribution, unless they were drawn from distributions
    of their own."""
    chosen = {}
    for point_masses in (False, True):
        cost = DraftCost(0.0, 0.0, point_masses=point_masses)
        costs = CurrentCosts(StepCosts(((1, 1.0), (33, 1.32)), 0.0, {"s": cost}, sampled_row=0.05), ["s"])
        nodes = np.arange(1, 9)
        option = DraftOption(0, 1.0, nodes, nodes, (0.5**nodes).cumsum())
        if batch == 1:
            choice = choose([[option]], costs, batch=1, sampled=[True])
        else:
            choice = choose([[option]] * batch, costs, batch=batch, sampled=[True] * batch)
        chosen[point_masses] = choice.nodes[0][0]
    assert 0 < chosen[False] < chosen[True]
