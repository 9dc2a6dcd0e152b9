"""Published runs of drafting ahead come out of the simulator; predictions say what they must."""

from __future__ import annotations

import pytest

from headstart import theory
from headstart.learn.simulate.placements import Placement, acceptance_of, llama_70b, placements, predictions, qwen_32b

ROUNDS = 500


def gain(placement: Placement, rounds: int = ROUNDS) -> float:
    return placement.ahead(rounds, keep=0).rate.value / placement.in_turn(rounds, keep=0).rate.value


def test_acceptance_is_read_back_from_tokens() -> None:
    assert acceptance_of(theory.expected_tokens(0.83, 6), 6) == pytest.approx(0.83)


@pytest.mark.parametrize(
    ("tokens_per_second", "published"),
    [(161.8, 1.58), (176, 1.60), (138, 1.55), (145, 1.55), (188, 1.60)],
    ids=["mean", "HumanEval", "UltraFeedback", "Alpaca", "GSM8k"],
)
def test_the_paper_s_gain_with_a_70b_target_comes_out(tokens_per_second: float, published: float) -> None:
    """Alpha is taken from the published speed of drafting in turn alone; the gain of drafting ahead follows."""
    assert gain(llama_70b(tokens_per_second)) == pytest.approx(published, rel=0.05)


def test_the_paper_s_speeds_come_out() -> None:
    placement = llama_70b()
    assert 1000 * placement.in_turn(ROUNDS).rate.value == pytest.approx(161.8, rel=0.03)
    assert 1000 * placement.ahead(ROUNDS).rate.value == pytest.approx(255.8, rel=0.04)


def test_what_was_assumed_of_the_70b_pair_moves_the_gain_by_little() -> None:
    """A draft level of 1.8 or 2.2 ms, which nobody published: within 8% of 1.58 all the same."""
    gains = [gain(llama_70b(level=level)) for level in (1.8, 2.2)]
    assert gains[0] < gains[1]
    assert gains == pytest.approx([1.58, 1.58], rel=0.08)


@pytest.mark.parametrize(("k", "measured"), [(4, 210.9), (5, 193.6), (6, 175.3), (7, 158.6)])
def test_longer_drafts_that_outlast_the_verification_lose_as_measured(k: int, measured: float) -> None:
    """Tokens/s of the published engine with a 32B target, whose lanes were timed; alpha is from drafting in turn."""
    assert 1000 * qwen_32b(k).ahead(ROUNDS).rate.value == pytest.approx(measured, rel=0.07)


def test_every_placement_says_where_its_figures_come_from() -> None:
    names = [one.name for one in placements()]
    assert len(set(names)) == len(names)
    assert all(one.known and one.assumed for one in placements())


def test_predictions_keep_their_bounds_and_their_order() -> None:
    gains = {one.name: gain(one, 300) for one in predictions()}
    for one in predictions():
        in_turn = one.in_turn(50)
        bound = (1 + in_turn.target["draft now"] / in_turn.target["verify"]) / (1 + one.costs.slow * one.costs.split)
        assert gains[one.name] <= bound * 1.1, one.name
    two, streams, card, near, weak, cores = gains.values()
    assert two > streams > weak > cores, "sharing costs"
    assert min(two, card, near) > 1.1, "hardware of its own pays"
    assert 0.95 < streams < 1.25
    assert cores < weak < 1.05
