"""A stack on paper: a draft model that has a drafter of its own writes a draft in fewer, wider steps.

A draft model without one takes a step for each of the K tokens. With a drafter that guesses up to j tokens, of which
each is right with chance alpha, the model writes a draft in rounds, and the last round guesses no more than is still
wanted. The number of tokens that are still to be written is a Markov chain, so the expected cost is a recursion:

    C(0) = 0,   C(n) = min over j < n of v(j+1)/v(1) + d(j) + sum over a of P(a accepted of j) C(n - a - 1)

in plain steps of the draft model, where d(j) is the drafter's own draft of j tokens: c j, or the C of the next model
down, times what a step of that costs. The tokens are the draft model's own, so the acceptance by the outer target stays
what it was, and a stack pays wherever C(K) < K:

    speedup = E(alpha, K) / (v(K+1)/v(1) + c C(K)).

The formulas are this project's own; E and v are those of `speed`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from headstart.base.errors import InvalidOption
from headstart.theory.rounds import expected_tokens
from headstart.theory.speed import VerifyCost, verify_cost
from headstart.theory.values import Array, Real, numbers, plain, scalar, whole


def draft_steps(
    k: int, alpha: float, c: float | Sequence[float] | Array, v: VerifyCost = None, *, most: int = 16
) -> Array:
    """[k + 1]: what a draft of 0, 1, ..., k tokens costs in expectation, in plain steps of the model that writes it.

    alpha: chance that a guess for this model is right. c: what a guessed token costs, in the same steps; or [m + 1]
    what guesses of 0, 1, ..., m tokens cost, for a drafter that is a stack itself. v: a forward of this model by rows.
    most: tokens that are guessed at once, at most. Each round guesses as many as make the rest cheapest.

    Raises:
        InvalidOption: a value out of its range.
    """
    n, right, longest = int(whole("k", k)), scalar("alpha", alpha, low=0, high=1), int(whole("most", most))
    guess = _guess_costs(c, longest)
    longest = min(longest, len(guess) - 1)
    rounds = np.atleast_1d(verify_cost(v, np.arange(longest + 1) + 1)) + guess[: longest + 1]
    steps = np.zeros(n + 1)
    for left in range(1, n + 1):
        found = []
        for j in range(min(longest, left - 1) + 1):
            accepted = right ** np.arange(j + 1) * np.append(np.full(j, 1 - right), 1.0)
            found.append(rounds[j] + accepted @ steps[left - 1 - j : left][::-1])
        steps[left] = min(found)
    return steps


def stacked_speedup(
    alpha: ArrayLike, k: int, c: ArrayLike, steps: Sequence[float] | Array, v: VerifyCost = None
) -> Real:
    """E(alpha, K) / (v(K+1)/v(1) + c steps[K]), by broadcasting; 1 at K = 0.

    alpha: chance that the outer target accepts a token of the draft. c: one plain step of the draft model, in plain
    steps of the target. steps: of `draft_steps`. v: a forward of the target by rows.
    """
    n = int(whole("k", k))
    if n >= len(steps):
        raise InvalidOption(f"k={n}, and steps are known of drafts up to {len(steps) - 1}", hint="make them longer")
    cost = verify_cost(v, n + 1) + numbers("c", c, low=0) * float(steps[n])
    return plain(expected_tokens(alpha, n) / cost)


def _guess_costs(c: float | Sequence[float] | Array, longest: int) -> Array:
    costs = numbers("c", c, low=0)
    return costs * np.arange(longest + 1) if costs.ndim == 0 else costs
