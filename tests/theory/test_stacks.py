"""What a stack costs and gains: the recursion against rounds that are drawn, and the cases that are known."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.base.errors import InvalidOption
from headstart.theory import best_k, draft_steps, speedup, stacked_speedup, verify_cost

ROWS = {1: 1.0, 2: 1.05, 4: 1.2, 8: 1.5, 16: 2.4}


def simulated(k: int, alpha: float, c: float, guesses: int, rounds: int = 6_000) -> float:
    """The mean cost of drafts of k tokens, where each round guesses so many, or one less than is wanted."""
    draws = np.random.default_rng(0)
    costs = [verify_cost(ROWS, j + 1) + c * j for j in range(guesses + 1)]
    total = 0.0
    for _ in range(rounds):
        left = k
        while left:
            j = min(guesses, left - 1)
            wrong = np.flatnonzero(draws.random(j) >= alpha)
            total += costs[j]
            left -= 1 + (int(wrong[0]) if wrong.size else j)
    return total / rounds


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
def test_the_expected_cost_is_that_of_rounds_that_are_drawn(alpha: float) -> None:
    """With one guess there is nothing to choose; of more, the best schedule is no worse than a fixed one."""
    assert draft_steps(6, alpha, 0.02, ROWS, most=1)[6] == pytest.approx(simulated(6, alpha, 0.02, 1), rel=0.015)
    best = draft_steps(6, alpha, 0.02, ROWS, most=4)[6]
    fixed = [simulated(6, alpha, 0.02, guesses) for guesses in (1, 2, 3, 4)]
    assert best <= min(fixed) * 1.015
    assert best >= min(fixed) * 0.93, "which guesses to make at the end of a draft changes little"


def test_known_cases() -> None:
    np.testing.assert_allclose(draft_steps(5, 0.0, 0.1), range(6), err_msg="guesses that are never right are not made")
    np.testing.assert_allclose(draft_steps(5, 1.0, 0.0), [0, 1, 1, 1, 1, 1], err_msg="right and free: one step")
    np.testing.assert_allclose(draft_steps(4, 0.7, 9.0, ROWS), range(5), err_msg="too dear to guess")
    assert stacked_speedup(0.8, 5, 0.3, draft_steps(5, 0.0, 0.1)) == pytest.approx(speedup(0.8, 5, 0.3))


def test_a_stack_makes_a_good_and_slow_drafter_pay() -> None:
    """A copy on 4 bits that is right at 0.95 and costs 0.4 of a step, guessed for at 0.7 by what costs 0.05 of it."""
    alone = best_k(0.95, 0.4, ROWS)
    steps = draft_steps(15, 0.7, 0.05, ROWS)
    stacked = max(stacked_speedup(0.95, k, 0.4, steps, ROWS) for k in range(16))
    assert alone.speedup < 1.75
    assert stacked > 1.25 * alone.speedup


def test_a_deeper_stack_takes_the_costs_of_the_one_below() -> None:
    """Where the lowest drafter is worth nothing, the stack of three is the stack of two."""
    below = 0.2 * draft_steps(15, 0.0, 1.0)
    np.testing.assert_allclose(draft_steps(8, 0.8, below, ROWS), draft_steps(8, 0.8, 0.2, ROWS))
    quicker = 0.2 * draft_steps(15, 0.6, 0.02, ROWS)
    assert draft_steps(8, 0.8, quicker, ROWS)[8] < draft_steps(8, 0.8, 0.2, ROWS)[8]


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidOption, match="alpha"):
        draft_steps(4, 1.2, 0.1)
    with pytest.raises(InvalidOption, match="steps are known of drafts up to 3"):
        stacked_speedup(0.8, 5, 0.3, draft_steps(3, 0.5, 0.1))
