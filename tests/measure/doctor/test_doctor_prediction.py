"""Predictions on made-up numbers, with answers found by hand, and against headstart.theory."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from headstart import theory
from headstart.engine.in_turn import Round, Text
from headstart.measure.doctor.costs import Timing, fit
from headstart.measure.doctor.prediction import Prediction, alike, conditional, recut, shares
from headstart.measure.doctor.prediction import predict as predict_texts
from headstart.theory import DraftCost, StepCosts
from headstart.types import Seconds

# One row 1 s, and a tenth of a second for each row more; a draft token 0.2 s
COSTS = StepCosts(((1, 1.0), (11, 2.0)), 0.0, {"d": DraftCost(token=0.2)})


def plain(verify: float = 1.0, rest: float = 0.0) -> Round:
    return Round("", 0, 0, 0, 1, verify + rest, Seconds(draft=0.0, verify=verify))


def drafted(
    k: int, accepted: int, *, draft: float | None = None, verify: float | None = None, rest: float = 0.0
) -> Round:
    draft = 0.2 * k if draft is None else draft
    verify = 1 + 0.1 * k if verify is None else verify
    return Round("d", k, k, accepted, accepted + 1, draft + verify + rest, Seconds(draft=draft, verify=verify))


def predict(timing: Timing, rounds: list[list[Round]], k: int | None, *, tree: bool = False) -> Prediction:
    """Without the seconds in which prompts are read."""
    texts = {place: Text(rounds=tuple(prompt)) for place, prompt in enumerate(rounds)}
    return predict_texts(timing, texts, {0: Text()}, k, tree=tree)


def test_the_prompt_is_read_by_a_drafter_too() -> None:
    rounds = (drafted(2, 1),) * 3
    timing = fit(COSTS, [plain()], list(rounds))
    found = predict_texts(timing, {0: Text(6.0, rounds)}, {0: Text(4.0)}, 2)
    # six tokens in three rounds of 1.6 s, after 6 s of reading instead of 4
    assert found.speedup.value == pytest.approx((4 + 6) / (6 + 3 * 1.6))
    assert found.tokens_per_forward == 2, "reading is no round"
    # a prompt that the target alone did not read: as much faster as the other, 2 s instead of 3
    both = predict_texts(timing, {0: Text(6.0, rounds), 1: Text(3.0, rounds)}, {0: Text(4.0)}, 2)
    assert both.speedup.value == pytest.approx((4 + 6 + 2 + 6) / (6 + 3 * 1.6 + 3 + 3 * 1.6))


def test_a_pacing_that_chooses_is_predicted_as_it_chose() -> None:
    rounds = [drafted(4, 3), drafted(2, 0), plain()]
    found = predict(fit(COSTS, [plain()], rounds), [rounds], None)
    assert found.speedup.value == pytest.approx(6 / ((0.8 + 1.4) + (0.4 + 1.2) + 1))
    assert found.k == 3
    assert found.drafting == pytest.approx(2 / 3)


def test_one_round_by_hand() -> None:
    rounds = [drafted(2, 1)]
    timing = fit(COSTS, [plain()], rounds)
    # two tokens for two draft tokens and a forward of three rows: 2 / (0.4 + 1.2)
    found = predict(timing, [rounds], 2)
    assert found.speedup.value == pytest.approx(2 / 1.6)
    assert found.tokens_per_forward == 2
    member = found.members["d"]
    assert member.c == pytest.approx(0.2)
    # break-even: 1 + a + a^2 = 1.6
    assert member.break_even_alpha == pytest.approx((-1 + math.sqrt(1 + 4 * 0.6)) / 2)
    # the alpha of two tokens per round at K = 2: 1 + a + a^2 = 2
    assert member.alpha == pytest.approx((-1 + math.sqrt(5)) / 2)
    # K = 1: one accepted, then a token that may have been guessed or not; here it was not, since the draft was wrong
    assert predict(timing, [rounds], 1).speedup.value == pytest.approx(2 / (0.2 + 1.1))


def test_silent_rounds_gain_nothing_and_cost_a_plain_step() -> None:
    silent = plain()
    rounds = [drafted(2, 2), silent, silent]
    timing = fit(COSTS, [plain()], rounds)
    found = predict(timing, [rounds], 2)
    assert found.speedup.value == pytest.approx(5 / (1.6 + 2))
    assert found.drafting == pytest.approx(1 / 3)
    assert found.members["d"].alpha == 1


def test_asking_in_vain_has_its_price() -> None:
    asked = Round("", 0, 0, 0, 1, 1.3, Seconds(draft=0.3, verify=1.0))
    timing = fit(COSTS, [plain()], [asked] * 5)
    assert predict(timing, [[asked] * 5], 2).speedup.value == pytest.approx(1 / 1.3)
    assert predict(timing, [[asked] * 5], 2).members == {}


def test_deciding_not_to_draft_has_its_price() -> None:
    resting = Round("", 0, 0, 0, 1, 1.1, Seconds(draft=0.0, verify=1.0))  # a tenth of it is spent on deciding
    timing = fit(COSTS, [plain()], [resting] * 5)
    assert predict(timing, [[resting] * 5], None).speedup.value == pytest.approx(1 / 1.1)


def test_a_source_that_drafts_for_the_first_time_in_a_check_costs_a_vain_question_and_its_rows() -> None:
    asked = Round("", 0, 0, 0, 1, 1.3, Seconds(draft=0.3, verify=1.0))
    timing = fit(COSTS, [plain()], [asked] * 5)
    late = drafted(2, 1)
    # two tokens for asking (0.3) and a forward of three rows (1.2)
    assert predict(timing, [[late]], 2).speedup.value == pytest.approx(2 / 1.5)


def test_for_a_drafter_that_always_speaks_it_is_what_theory_says() -> None:
    noise = random.Random(1)
    rounds = []
    for _ in range(400):
        accepted = 0
        while accepted < 4 and noise.random() < (0.9, 0.7, 0.5, 0.8)[accepted]:
            accepted += 1
        rounds.append(drafted(4, accepted))
    timing = fit(COSTS, [plain()], rounds)
    v = dict(COSTS.rows)
    found = predict(timing, [rounds], 4)
    acceptance = shares(conditional(rounds))
    assert found.speedup.value == pytest.approx(theory.speedup_by_position(acceptance, 4, 0.2, v))
    for k in (1, 2, 3):
        pieces = recut(rounds, k, joined=False)
        by_hand = theory.speedup_by_position(shares(conditional(pieces)), k, 0.2, v)
        joined = recut(rounds, k, joined=True)
        other = theory.speedup_by_position(shares(conditional(joined)), k, 0.2, v)
        assert min(by_hand, other) * 0.999 <= predict(timing, [rounds], k).speedup.value <= max(by_hand, other) * 1.001


def test_alpha_is_below_break_even_exactly_where_it_does_not_pay() -> None:
    for accepted in range(5):
        rounds = [drafted(4, accepted), drafted(4, 1)]
        found = predict(fit(COSTS, [plain()], rounds), [rounds], 4)
        member = found.members["d"]
        assert (member.alpha < member.break_even_alpha) == (found.speedup.value < 1)


def test_a_draft_so_dear_that_no_guess_could_pay() -> None:
    rounds = [drafted(4, 4, draft=6.0)]
    member = predict(fit(COSTS, [plain()], rounds), [rounds], 4).members["d"]
    assert member.c == pytest.approx(1.5)
    assert math.isnan(member.break_even_alpha)


def test_levels_come_from_real_rounds_and_shapes_from_the_costs() -> None:
    # the machine is twice as slow as when costs were taken, drafts three times, and the rest of a step counts too
    plain_rounds = [plain(2.0, 0.1)]
    rounds = [drafted(4, 2, draft=2.4, verify=2.8, rest=0.3)]
    timing = fit(COSTS, plain_rounds, rounds)
    assert timing.plain.plain == pytest.approx(2.1)
    assert timing.step("d", 5, 4) == pytest.approx(5.5), "what was measured comes out again"
    assert timing.of("d").draft("d", 2) == pytest.approx(1.2)
    assert timing.of("d").forward(3) == pytest.approx(2.4)
    assert timing.of("d").outside(3) == pytest.approx(0.2)


def test_further_nodes_of_a_tree_are_scaled_and_predicted_with_its_levels() -> None:
    costs = replace(COSTS, drafts={"d": DraftCost(token=0.2, sibling=0.05)})
    chain, tree = drafted(4, 2, draft=1.6), Round("d", 10, 4, 2, 3, 4.2, Seconds(draft=2.2, verify=2.0))
    timing = fit(costs, [plain()], [tree])  # twice as slow as when costs were taken
    assert timing.step("d", 11, 4) == pytest.approx(4.2), "what was measured comes out again"
    assert timing.of("d").draft("d", 4) == pytest.approx(chain.parts.draft)
    assert predict(timing, [[tree]], None, tree=True).members["d"].c == pytest.approx(2.2 / 4)
    assert predict(timing, [[tree]], None, tree=True).speedup.value == pytest.approx(3 / 4.2)


def test_a_hiccup_does_not_count() -> None:
    rounds = [drafted(2, 1)] * 9 + [drafted(2, 1, verify=50.0)]
    timing = fit(COSTS, [plain()] * 9 + [plain(70.0)], rounds)
    assert predict(timing, [rounds], 2).speedup.value == pytest.approx(2 / 1.6)


def test_more_rows_never_take_less_than_a_plain_step() -> None:
    """Where plain steps were held up the whole time, no draft may look better than its tokens per forward."""
    rounds = [drafted(4, 2, verify=0.1)]
    timing = fit(COSTS, [plain(3.0)], rounds)
    assert timing.of("d").forward(5) >= 3.0
    assert predict(timing, [rounds], 4).speedup.value <= 3


def test_trees_are_predicted_as_they_were() -> None:
    tree = Round("d", 6, 3, 2, 3, 0.6 + 1.6, Seconds(draft=0.6, verify=1.6))
    timing = fit(COSTS, [plain()], [tree])
    found = predict(timing, [[tree]], 6, tree=True)
    assert (found.k, found.depth) == (6, 3)
    assert found.speedup.value == pytest.approx(3 / 2.2)
    assert found.members["d"].c == pytest.approx(0.2), "per level"


def test_batches_pay_for_their_rows() -> None:
    rounds = [drafted(2, 1)]
    timing = fit(COSTS, [plain()], rounds)
    found = predict(timing, [rounds], 2)
    assert found.batches[1] == pytest.approx(found.speedup.value)
    # eight requests: plain 8 rows, 1.7 s; drafted 24 rows, 3.3 s and 0.4 s of drafts (which grow by nothing here)
    assert found.batches[8] == pytest.approx(2 * 1.7 / (3.3 + 0.4))
    dearer = replace(COSTS, drafts={"d": DraftCost(token=0.2, growth=0.5)})
    assert predict(fit(dearer, [plain()], rounds), [rounds], 2).batches[8] == pytest.approx(
        2 * 1.7 / (3.3 + 0.4 * (1 + 0.5 * 7))
    )


def test_intervals_come_from_prompts() -> None:
    good, bad = [drafted(2, 2)] * 10, [drafted(2, 0)] * 10
    timing = fit(COSTS, [plain()], [*good, *bad])
    assert not predict(timing, [good, bad, good], 2).speedup.known, "three prompts say nothing about others"
    mixed = predict(timing, [good, bad] * 3, 2).speedup
    assert mixed.low < mixed.value < mixed.high
    assert mixed.value == pytest.approx(2 / 1.6)


@pytest.mark.parametrize(("alpha", "k"), [(0.0, 3), (0.3, 1), (0.7, 5), (0.99, 8), (1.0, 4)])
def test_alike_turns_expected_tokens_round(alpha: float, k: int) -> None:
    assert alike(theory.expected_tokens(alpha, k), k) == pytest.approx(alpha, abs=1e-9)


def test_nothing_to_compare_with() -> None:
    with pytest.raises(ValueError, match="no plain round"):
        fit(COSTS, [], [drafted(2, 1)])
    assert isinstance(fit(COSTS, [plain()], []), Timing)
