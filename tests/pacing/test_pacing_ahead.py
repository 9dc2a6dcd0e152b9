"""A drafter that can draft beside the target: what is learnt of it, and what is decided. No model is run but a tiny
one, to be measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.ahead_life import NAME, ROWS, AheadLife
from support.tiny import random_model

import headstart as hs
from headstart.drafters import capabilities
from headstart.drafters.ahead import Ahead, AheadDrafter
from headstart.drafters.draft_model import DraftModel
from headstart.drafters.foreseeing.ahead_or_in_turn import TRIALS, AheadOrInTurn
from headstart.loading.assembly import assemble
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.pacing.costs import CurrentCosts
from headstart.pacing.decision import DraftOption, can_pay, choose
from headstart.pacing.measuring import measure
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Draft, Preparation, Seconds, Speculation, Step

TOKEN = 0.002


def costs(hidden: float = 0.0, slowing: float = 0.0, token: float = TOKEN) -> CurrentCosts:
    cost = DraftCost(0.0, token, 0.0, 0.1, hidden=hidden, slowing=slowing)
    return CurrentCosts(StepCosts(ROWS, 0.0, {NAME: cost}), [NAME])


# -- what is decided ---------------------------------------------------------------------------------------------------

K = np.arange(1, 13)
OPTION = DraftOption(0, 1.0, K, K, np.cumsum(0.8**K))


def lengths(found: CurrentCosts) -> tuple[int, list[int]]:
    """What one row drafts, and what four of them do."""
    one = choose([[OPTION]], found, batch=1, sampled=[False]).nodes[0][0]
    many = choose([[OPTION]] * 4, found, batch=4, sampled=[False] * 4).nodes
    return one, [nodes for (nodes,) in many]


def test_a_hidden_draft_gets_longer_and_one_that_slows_the_target_stays_as_it_is() -> None:
    turn, turns = lengths(costs())
    ahead, aheads = lengths(costs(hidden=0.9))
    assert ahead > turn
    assert min(aheads) > max(turns)
    assert lengths(costs(hidden=0.9, slowing=3.0)) == (turn, turns), "it drafts in turn where that is quicker"
    assert ahead > lengths(costs(hidden=0.6))[0] > turn


def test_one_that_could_not_pay_in_turn_may_pay_hidden() -> None:
    def payable(found: CurrentCosts, batch: int) -> bool:
        return can_pay(0, found, batch, K, K, False)

    for batch in (1, 4):
        assert not payable(costs(token=0.012), batch)
        assert payable(costs(token=0.012, hidden=0.99), batch)
        assert not payable(costs(token=0.012, hidden=0.99, slowing=20.0), batch)


def test_seconds_of_a_draft_are_the_quicker_way_s() -> None:
    found = costs(hidden=0.75, slowing=0.1)
    late = 0.25 * 5 * TOKEN + 0.1 * found.step(1, 6)
    assert found.draft(0, (5, 5), 1) == pytest.approx(min(5 * TOKEN, late))
    assert costs(hidden=0.75, slowing=9.0).draft(0, (5, 5), 1) == pytest.approx(5 * TOKEN)
    batch = 4 * TOKEN * (0.9 * (1 - 0.75**3) + 0.1 * 0.25 * 3)
    assert costs(hidden=0.75).draft(0, (4, 4), 3) == pytest.approx(batch), "late where any of them is"


# -- what is learnt ----------------------------------------------------------------------------------------------------


def test_the_hidden_share_and_the_slowing_are_learnt() -> None:
    """Steps with the drafter beside them, steps without, and plain ones."""
    found, rng = costs(hidden=0.6), np.random.default_rng(1)
    plain, alone = found.step(1, 1), found.step(1, 6)
    for step in range(600):
        if step % 8 == 0:
            found.observe(1, 1, 0, plain * float(np.exp(0.03 * rng.standard_normal())))
            continue
        beside = step % 64 < 52
        seconds = alone * (1.4 if beside else 1.0)
        found.observe(1, 6, 0, seconds * float(np.exp(0.03 * rng.standard_normal())), beside=0 if beside else None)
        hit = rng.random() < 0.8
        found.observe_ahead(0, (5, 5), 1, 0 if hit else 1, 0.02 * 5 * TOKEN if hit else 5 * TOKEN)
    assert found.hidden(0) == pytest.approx(0.8 * 0.98, abs=0.2)
    assert found.slowing(0) == pytest.approx(0.4, abs=0.08)
    assert found.step(1, 6) / found.step(1, 1) == pytest.approx(alone / plain, rel=0.1), "it is no shape of forwards"


def test_drafts_that_are_waited_for_are_not_hidden() -> None:
    found = costs(hidden=0.6)
    for _ in range(60):
        found.observe(1, 6, 0, 0.0106)
        found.observe_ahead(0, (5, 5), 1, 0, 4 * TOKEN)  # ready, says the drafter, and four fifths of its time to come
    assert found.hidden(0) == pytest.approx(0.2, abs=0.02)


# -- life --------------------------------------------------------------------------------------------------------------


def test_with_many_hits_and_a_target_hardly_slowed_it_drafts_longer_and_faster_than_in_turn() -> None:
    ahead, turn = (AheadLife(0.85, 0.05, TOKEN, ahead=each) for each in (True, False))
    for life in (ahead, turn):
        life.run(40)
    assert ahead.run(250) > 1.3 * turn.run(250)
    assert np.mean(ahead.nodes) > 1.5 * np.mean(turn.nodes)


@pytest.mark.parametrize("acceptance", [0.8, 0.3])
def test_where_the_target_loses_a_core_it_is_as_fast_as_in_turn_and_as_plain_decoding(acceptance: float) -> None:
    ahead, turn = (AheadLife(0.7, 0.9, 0.0006, acceptance, ahead=each) for each in (True, False))
    for life in (ahead, turn):
        life.run(60)
    found = ahead.run(500)
    assert found > 0.97, "of plain decoding"
    assert found > 0.9 * turn.run(500)
    assert np.mean(ahead.beside) < 0.3


def test_a_drafter_that_never_foresees_right_ends_up_in_turn() -> None:
    life = AheadLife(0.02, 0.15, TOKEN)
    life.run(200)
    assert np.mean(life.beside) > 0
    life.run(200)
    assert np.mean(life.beside) < 0.3


# -- the drafter's own comparison --------------------------------------------------------------------------------------


def rounds(quicker: AheadOrInTurn, count: int, ahead: float, in_turn: float) -> list[bool]:
    """So many steps of so many seconds each way; returns how each was drafted."""
    found = []
    for index in range(count):
        seconds = Seconds(draft=0.0, verify=ahead if quicker.ahead else in_turn)
        draft = Draft.chain([0] * 4)
        draft = replace(draft, source=NAME, prepared=Preparation(False, beside=quicker.ahead))
        step = Step(0, index, 9, draft, (0,), (0, 0), None, 1 + len(draft), 1, seconds, None, Speculation(True, "x"))
        found.append(quicker.ahead)
        quicker.observe(step, NAME)
    return found


@pytest.mark.parametrize(("ahead", "in_turn"), [(1.0, 1.3), (1.3, 1.0)])
def test_the_quicker_way_is_taken_and_the_other_tried_ever_more_seldom(ahead: float, in_turn: float) -> None:
    quicker = AheadOrInTurn()
    rounds(quicker, 3 * TRIALS.rounds, ahead, in_turn)
    early, late = (rounds(quicker, 1000, ahead, in_turn) for _ in range(2))
    wrong = [np.mean([each is not (ahead < in_turn) for each in found]) for found in (early, late)]
    assert 0 < wrong[1] <= wrong[0] < 0.12
    back = rounds(quicker, 3 * TRIALS.longest_stay, in_turn, ahead)
    assert back[-1] is (in_turn < ahead), "a machine that changes is found out"


def test_hiccups_do_not_decide() -> None:
    quicker = AheadOrInTurn()
    rounds(quicker, TRIALS.rounds - 2, 1.0, 1.5)
    rounds(quicker, 1, 60.0, 1.5)
    rounds(quicker, 2 * TRIALS.rounds + 2, 1.0, 1.5)
    assert quicker.ahead


def test_steps_of_others_count_for_time_and_not_for_speed() -> None:
    quicker = AheadOrInTurn()
    step = Step(0, 0, 9, Draft(), (), (0,), None, 1, 1, Seconds(draft=0, verify=9.0), None, Speculation(True, "x"))
    for _ in range(3 * TRIALS.rounds):
        quicker.observe(step, NAME)
    assert quicker.ahead, "nothing is known yet, so it is as asked for"


# -- measuring ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 2])
def test_it_is_measured_in_turn_and_beside(slots: int) -> None:
    target, model = (ModelRunner(adopt(random_model("llama", seed=seed))) for seed in (0, 1))
    inner = DraftModel(model, name="d", vocab_size=target.vocab_size, slots=slots)
    drafter = AheadDrafter(Ahead(inner))
    cache = target.new_cache(slots)
    drafter.attach(target, cache)
    asked: list[bool] = []
    propose = drafter.propose
    drafter.propose = lambda rows: asked.append(True) or propose(rows)  # type: ignore[method-assign, func-returns-value]
    found = measure(target, cache, capabilities.parts(drafter), batch=slots, seconds=0.05).costs.drafts
    cost = found[drafter.name]
    assert cost.start + cost.token > 0
    assert 0 < cost.hidden < 1
    assert cost.slowing >= 0
    assert asked
    assert drafter._worker is None, "nothing is left running"
    assert len(cache.lengths) == slots
    plain = measure(target, cache, capabilities.parts(inner), batch=slots, seconds=0.05).costs.drafts["d"]
    assert (plain.hidden, plain.slowing) == (0, 0)


def test_an_engine_is_paced_ahead() -> None:
    target, model = (ModelRunner(adopt(random_model("llama", seed=0))) for _ in range(2))
    inner = DraftModel(model, name="d", vocab_size=target.vocab_size, slots=1)
    engine = assemble(target, drafter=AheadDrafter(Ahead(inner)), max_batch_size=1)
    out = engine.generate([5, 6, 7], hs.Sampling(max_tokens=40, ignore_eos=True))
    assert len(out.tokens) == 40
