"""Fan-outs: as many as there are branches, where outcomes are likely; and learnt from what comes."""

from __future__ import annotations

import random

import pytest

from headstart.drafters import Foreseen
from headstart.drafters.foreseeing.outcomes import PLACES, Outcomes
from headstart.theory.ssd import fan_outs, round_hit_rate
from headstart.types import Draft

CHAIN = Draft.chain((1, 2, 3, 4, 5))
TREE = Draft((1, 2, 3, 4, 5, 6), (-1, -1, 0, 0, 1, 2))


@pytest.mark.parametrize("draft", [CHAIN, TREE, Draft.chain((7,))], ids=["chain", "tree", "one token"])
@pytest.mark.parametrize("branches", [1, 2, 8, 30])
def test_fan_outs_add_up_to_the_branches(draft: Draft, branches: int) -> None:
    found = Outcomes(branches).fan_outs(draft)
    assert len(found) == len(draft) + 1
    assert sum(found) == branches
    assert all(0 <= each <= PLACES for each in found)


def test_no_more_is_foreseen_than_is_ranked() -> None:
    assert Outcomes(1000).fan_outs(CHAIN) == [PLACES] * 6


def test_they_fall_with_depth_but_for_the_end() -> None:
    """A chain is rejected at its first token more often than at any later one; its end is reached by all that are not
    rejected."""
    outcomes = Outcomes(24)
    found = outcomes.fan_outs(CHAIN)
    assert found[:-1] == sorted(found[:-1], reverse=True)
    assert found[0] > found[-2]
    for count in range(300):
        outcomes.learn(Foreseen(last=CHAIN, node=4, rank=count % 6))
    assert outcomes.fan_outs(CHAIN)[-1] == max(outcomes.fan_outs(CHAIN))


def test_a_sibling_that_comes_later_is_given_less() -> None:
    found = Outcomes(24).fan_outs(TREE)
    assert found[1] > found[2], "after the first child and after the second"


def learnt(branches: int, alpha: float, r: float, k: int = 5, rounds: int = 4000) -> Outcomes:
    """From rounds whose places fall off as a power: the bonus token is beyond the first F with the chance F^-r."""
    rng = random.Random(1)
    outcomes, draft = Outcomes(branches), Draft.chain(range(k))
    for _ in range(rounds):
        depth = 0
        while depth < k and rng.random() < alpha:
            depth += 1
        place = int((1 - rng.random()) ** (-1 / r)) - 1
        # the first place is never hit in that distribution, as 1 - 1^-r is 0: they are counted from the second
        rank = place - 1 if 0 < place <= PLACES else None
        outcomes.learn(Foreseen(last=draft, node=depth - 1, rank=rank))
    return outcomes


@pytest.mark.parametrize(("alpha", "r"), [(0.6, 1.0), (0.8, 0.7), (0.4, 1.5)])
def test_they_hit_about_as_often_as_the_best_of_theory(alpha: float, r: float) -> None:
    """Where places follow a power law, whose fan-outs `theory` writes down. Both are whole numbers, and what
    is learnt is noisy, so that they are compared by what they are for: the chance of a hit."""
    branches, k = 24, 5
    found = learnt(branches, alpha, r).fan_outs(Draft.chain(range(k)))
    assert sum(found) == branches
    best = round_hit_rate(fan_outs(branches + k + 1, k, alpha, r), alpha, r)
    assert round_hit_rate([each + 1 for each in found], alpha, r) > best - 0.04


def test_places_are_learnt() -> None:
    """A drafter whose bonus token after a rejection is always its second gets two outcomes there, and no more."""
    outcomes = Outcomes(13)
    assert outcomes.fan_outs(CHAIN)[0] > 2
    for count in range(1000):
        outcomes.learn(Foreseen(last=CHAIN, node=count % 5 - 1, rank=1))
    assert outcomes.fan_outs(CHAIN) == [2, 2, 2, 2, 2, 3], "what is left goes to the end, of which nothing was learnt"


def test_a_token_that_was_not_ranked_makes_no_place_likelier() -> None:
    outcomes = Outcomes(8)
    assert outcomes.learn(Foreseen(last=CHAIN, node=1, rank=None)) == 2
    assert sum(outcomes.fan_outs(CHAIN)) == 8
