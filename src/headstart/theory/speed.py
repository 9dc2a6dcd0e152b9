"""Speedup over the baseline: tokens per round over what the round costs, in units of one plain step.

    speedup = E / (v(K+1) / v(1) + cK)

c: one draft step, in plain steps. v(n): what a target forward of n rows costs; without it a forward of any width costs
one plain step, which is the textbook case. Sources: Leviathan et al. (arXiv:2211.17192), theorem 3.8, for the textbook
case; Sequoia (arXiv:2402.12374) for a verification that grows with its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from headstart.base.errors import InvalidOption
from headstart.theory.rounds import by_position, expected_tokens, expected_tokens_by_position
from headstart.theory.values import Array, Real, numbers, plain, scalar, whole

VerifyCost = Mapping[int, float] | Callable[[Any], Any] | None
"""v(n). None: one plain step whatever the width. A mapping {rows: cost}, with 1 among the rows, in any unit:
interpolated linearly, and extrapolated with its last slope. Or a function of one number of rows."""

_HALVINGS = 64  # more than the bits of a float64 in [0, 1]
_ROUNDING = 1e-12


class BestK(NamedTuple):
    """The draft length with the greatest speedup; k = 0 and 1.0 mean: do not speculate."""

    k: int
    speedup: float


def verify_cost(v: VerifyCost, rows: ArrayLike) -> Real:
    """v(rows) / v(1).

    Raises:
        InvalidOption: rows below 1, a mapping without 1, or a cost that is not a positive number.
    """
    n = whole("rows", rows, low=1)
    if v is None:
        return plain(np.ones_like(n))
    if isinstance(v, Mapping):
        return plain(_interpolated(v, n))
    distinct, where = np.unique(n, return_inverse=True)
    costs = _positive([v(int(one)) for one in (1, *distinct)])
    return plain((costs[1:] / costs[0])[where].reshape(n.shape))


def speedup(alpha: ArrayLike, k: ArrayLike, c: ArrayLike, v: VerifyCost = None) -> Real:
    """E(alpha, K) / (v(K+1)/v(1) + cK), by broadcasting; 1 at K = 0.

    Raises:
        InvalidOption: alpha outside [0, 1], k < 0 or not whole, c < 0, or a v that is no cost.
    """
    return plain(expected_tokens(alpha, k) / round_cost(k, c, v))


def speedup_by_position(acceptance: ArrayLike, k: ArrayLike, c: ArrayLike, v: VerifyCost = None) -> Real:
    """`speedup` with conditional acceptances [..., n] by position; k and c broadcast against [...]."""
    return plain(expected_tokens_by_position(acceptance, k) / round_cost(k, c, v))


def round_cost(k: ArrayLike, c: ArrayLike, v: VerifyCost = None) -> Real:
    """v(K+1)/v(1) + cK: what a round costs, in plain steps."""
    n = whole("k", k)
    return plain(verify_cost(v, n + 1) + numbers("c", c, low=0) * n)


def tree_speedup(
    tokens: ArrayLike, nodes: ArrayLike, levels: ArrayLike, level: ArrayLike, v: VerifyCost = None
) -> Real:
    """tokens / (v(nodes+1)/v(1) + level * levels): a tree drafts one level after the other and verifies all its nodes.

    tokens: expected per round, the bonus included. level: what drafting one level costs, in plain steps.
    """
    e = numbers("tokens", tokens, low=1)
    cost = verify_cost(v, whole("nodes", nodes) + 1) + numbers("level", level, low=0) * whole("levels", levels)
    return plain(e / cost)


def break_even_alpha(k: ArrayLike, c: ArrayLike, v: VerifyCost = None) -> Real:
    """The acceptance at which drafting K tokens costs as much as it saves: below it, plain decoding is faster.

    nan where not even a perfect draft pays; 0 where any draft does.
    """
    cost = np.asarray(round_cost(k, c, v))
    n = np.broadcast_to(whole("k", k), cost.shape)
    low, high = np.zeros(cost.shape), np.ones(cost.shape)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        pays = expected_tokens(middle, n) >= cost
        low, high = np.where(pays, low, middle), np.where(pays, middle, high)
    found = np.where(cost <= 1, 0.0, np.where(cost == n + 1, 1.0, high))
    return plain(np.where(cost > n + 1, np.nan, found))


def best_k(acceptance: ArrayLike, c: ArrayLike, v: VerifyCost = None, *, most: int = 16) -> BestK:
    """The best draft length from 0 to `most`; the shortest of several. acceptance: one alpha, or [n] by position."""
    ks = np.arange(int(whole("most", most)) + 1)
    cost = scalar("c", c, low=0)
    if np.ndim(acceptance) == 0:
        gains = speedup(acceptance, ks, cost, v)
    elif np.ndim(acceptance) == 1:
        gains = speedup_by_position(by_position(acceptance), ks, cost, v)
    else:
        raise InvalidOption(
            f"acceptance has shape {list(np.shape(acceptance))}", hint="give one alpha, or one list by position"
        )
    k = int((gains >= gains.max() * (1 - _ROUNDING)).argmax())
    return BestK(k, float(gains[k]))


def alpha_k_table(alphas: ArrayLike, ks: ArrayLike, c: ArrayLike, v: VerifyCost = None) -> Array:
    """Speedups [len(alphas), len(ks)]."""
    table: Array = speedup(np.atleast_1d(alphas)[:, None], np.atleast_1d(ks)[None, :], scalar("c", c), v)
    return table


def alpha_c_table(alphas: ArrayLike, cs: ArrayLike, k: ArrayLike, v: VerifyCost = None) -> Array:
    """Speedups [len(alphas), len(cs)]."""
    table: Array = speedup(np.atleast_1d(alphas)[:, None], scalar("k", k), np.atleast_1d(cs)[None, :], v)
    return table


def _interpolated(v: Mapping[int, float], rows: Array) -> Array:
    """The mapping at `rows`, over its value at 1; beyond its last two entries, along the line through them."""
    given = whole("rows of v", list(v), low=1)
    if 1 not in given:
        raise InvalidOption("v has no cost for 1 row", hint="v is {rows: cost}, and costs are compared with v[1]")
    order = np.argsort(given)
    known, costs = given[order], _positive(list(v.values()))[order]
    slope = (costs[-1] - costs[-2]) / (known[-1] - known[-2]) if len(known) > 1 else 0.0
    beyond = np.maximum(rows - known[-1], 0)
    return _positive((np.interp(rows, known, costs) + slope * beyond) / costs[0])


def _positive(costs: ArrayLike) -> Array:
    found = numbers("v", costs)
    if (found <= 0).any():
        raise InvalidOption(f"v={float(found.min()):g} is not a cost", hint="a forward of n rows costs more than 0")
    return found
