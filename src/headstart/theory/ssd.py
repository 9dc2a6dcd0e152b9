"""Speculative speculative decoding: drafting for every likely outcome while the target verifies. Formulas only.

An outcome of a round is the number k of accepted tokens and the bonus token. Drafts are made ready for F_k bonus tokens
after each k; a round whose outcome was foreseen (a hit) need not wait for its draft. All times are in units of one
verification. Source: Saguaro (arXiv:2603.03251), by notes on the paper, not its full text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from headstart.errors import InvalidOption
from headstart.theory.values import Array, Real, numbers, plain, scalar, whole


def ssd_speedup(
    hit: ArrayLike,
    tokens_hit: ArrayLike,
    tokens_miss: ArrayLike,
    ahead: ArrayLike,
    on_miss: ArrayLike,
) -> Real:
    """Over plain decoding: (h E_h + (1-h) E_m) / (h max(1, T_a) + (1-h)(1 + T_m)).

    A batch has a hit where all rows have one: h^batch.

    Args:
        hit: h, the share of rounds whose outcome was ready.
        tokens_hit: E_h, tokens per round after a hit.
        tokens_miss: E_m, tokens per round after a miss.
        ahead: T_a, the time of drafting while the target verifies, which is free as long as it takes no longer.
        on_miss: T_m, the time of drafting after a miss; 0 where nothing is drafted then (E_m = 1).
    """
    h = numbers("hit", hit, low=0, high=1)
    tokens = h * numbers("tokens_hit", tokens_hit, low=1) + (1 - h) * numbers("tokens_miss", tokens_miss, low=1)
    time = h * np.maximum(1, numbers("ahead", ahead, low=0)) + (1 - h) * (1 + numbers("on_miss", on_miss, low=0))
    return plain(tokens / time)


def ssd_bound(tokens_hit: ArrayLike, tokens_sd: ArrayLike, draft_sd: ArrayLike) -> Real:
    """The most that drafting ahead can gain over drafting in turn: (1 + T_SD) E_h / E_SD.

    tokens_sd, draft_sd: tokens per round and drafting time of ordinary speculation, E_SD / (1 + T_SD). It holds as
    long as a round with a miss is not faster than one with a hit: E_m / (1 + T_m) <= E_h.
    """
    gain = numbers("tokens_hit", tokens_hit, low=1) / numbers("tokens_sd", tokens_sd, low=1)
    return plain((1 + numbers("draft_sd", draft_sd, low=0)) * gain)


def hit_rate(fan_out: ArrayLike, r: ArrayLike) -> Real:
    """1 - F^-r: the chance that the bonus token is among F foreseen ones; misses fall as a power of F. F = 0: never.

    r is measured on a drafter's lists of likely tokens. The law is a fit; at F = 1 it gives 0.
    """
    f, power = np.broadcast_arrays(numbers("fan_out", fan_out, low=0), numbers("r", r, low=0))
    return plain(np.where(f < 1, 0.0, 1 - np.maximum(f, 1.0) ** -power))


def round_hit_rate(fan_outs: ArrayLike, alpha: float, r: float) -> float:
    """The chance that a round's outcome was ready, with F_0..F_K foreseen bonus tokens after 0..K accepted ones."""
    foreseen = numbers("fan_outs", fan_outs, low=0)
    if foreseen.ndim != 1 or not foreseen.size:
        raise InvalidOption("fan_outs is no list", hint="give F_0 to F_K, one for each number of accepted tokens")
    return float(_outcomes(scalar("alpha", alpha, low=0, high=1), foreseen.size - 1) @ hit_rate(foreseen, r))


def fan_outs(budget: int, k: int, alpha: float, r: float) -> tuple[int, ...]:
    """F_0..F_K, whole numbers that add up to `budget`, rounded by largest remainder from the best shares.

    The hit rate sum_k P_k (1 - F_k^-r) under sum F_k = B is greatest at F_k ~ P_k^(1/(1+r)), P_k = alpha^k (1 - alpha)
    the chance of k accepted tokens and P_K = alpha^K: F_k = F_0 alpha^(k/(1+r)), and
    F_K = F_0 alpha^(K/(1+r)) (1 - alpha)^(-1/(1+r)).
    """
    total = int(whole("budget", budget))
    chances = _outcomes(scalar("alpha", alpha, low=0, high=1), int(whole("k", k)))
    shares = chances ** (1 / (1 + scalar("r", r, low=0)))
    exact = total * shares / shares.sum()
    given = np.floor(exact).astype(np.int64)
    owed = np.argsort(given - exact, kind="stable")[: total - int(given.sum())]  # the largest remainders
    given[owed] += 1
    return tuple(int(f) for f in given)


def _outcomes(alpha: float, k: int) -> Array:
    """[k + 1]: the chance of 0..k accepted tokens."""
    chances = alpha ** np.arange(k + 1) * (1 - alpha)
    chances[k] = alpha**k
    return np.asarray(chances, dtype=np.float64)
