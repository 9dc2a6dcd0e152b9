"""Speculative speculative decoding: drafting for every likely outcome while the target verifies. Formulas only.

An outcome of a round is the number k of accepted tokens and the bonus token. Drafts are made ready for F_k bonus tokens
after each k; a round whose outcome was foreseen (a hit) need not wait for its draft. All times are in units of one
verification that has the machine to itself. Source: Saguaro (arXiv:2603.03251), by notes on the paper, not its full
text; the slow-down by sharing a machine and the account of a round are additions of headstart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from headstart.base.errors import InvalidOption
from headstart.base.options import check_choice, check_number
from headstart.theory.values import Array, Real, numbers, plain, scalar, whole

Drafted = Literal["all", "missed", "nothing"]
"""Who is drafted for when some rows of a batch missed: all rows again, the missed ones, or none (a missed row then
verifies without a draft and emits one token)."""


def ssd_speedup(
    hit: ArrayLike,
    tokens_hit: ArrayLike,
    tokens_miss: ArrayLike,
    ahead: ArrayLike,
    on_miss: ArrayLike,
    slow: ArrayLike = 0.0,
) -> Real:
    """Speedup over the baseline: (h E_h + (1-h) E_m) / (h max(1 + s, T_a) + (1-h)(1 + s + T_m)).

    Args:
        hit: h, the share of rounds whose outcome was ready; for a batch see `batch_hit_rate`.
        tokens_hit: E_h, tokens per round after a hit.
        tokens_miss: E_m, tokens per round after a miss.
        ahead: T_a, the time of drafting while the target verifies, which is free as long as it takes no longer.
        on_miss: T_m, the time of drafting after a miss; 0 where nothing is drafted then (E_m = 1).
        slow: s, how much longer a verification takes because the drafter works beside it: 0 on hardware of its own.
    """
    h = numbers("hit", hit, low=0, high=1)
    s = numbers("slow", slow, low=0)
    tokens = h * numbers("tokens_hit", tokens_hit, low=1) + (1 - h) * numbers("tokens_miss", tokens_miss, low=1)
    found = np.maximum(1 + s, numbers("ahead", ahead, low=0))
    time = h * found + (1 - h) * (1 + s + numbers("on_miss", on_miss, low=0))
    return plain(tokens / time)


def ssd_bound(tokens_hit: ArrayLike, tokens_sd: ArrayLike, draft_sd: ArrayLike, slow: ArrayLike = 0.0) -> Real:
    """The most that drafting ahead can gain over drafting in turn: (1 + T_SD) / (1 + s) E_h / E_SD.

    tokens_sd, draft_sd: tokens per round and drafting time of ordinary speculation, E_SD / (1 + T_SD). It holds as
    long as a round with a miss is not faster than one with a hit: E_m / (1 + s + T_m) <= E_h / (1 + s).
    """
    gain = numbers("tokens_hit", tokens_hit, low=1) / numbers("tokens_sd", tokens_sd, low=1)
    return plain((1 + numbers("draft_sd", draft_sd, low=0)) / (1 + numbers("slow", slow, low=0)) * gain)


@dataclass(frozen=True, slots=True)
class SsdAccount:
    """Where the time of a round goes, against drafting in turn; in verifications, with E_h = E_m = E_SD.

    A round takes 1 + T_SD in turn, and 1 + s + h (T_a - 1 - s)+ + (1-h) T_m when drafting ahead: the two differ by
    `hidden` less the three costs, term by term.
    """

    hidden: float
    """T_SD: the drafting that a round in turn waits for, and that is to be hidden."""
    sharing: float
    """s: what each verification takes longer because the drafter works beside it."""
    waiting: float
    """h (T_a - 1 - s)+: waiting for drafts that take longer than the verification."""
    missing: float
    """(1-h) T_m: drafting after a miss."""

    @property
    def ahead(self) -> float:
        """The time of a round that is drafted ahead."""
        return 1 + self.sharing + self.waiting + self.missing

    @property
    def gain(self) -> float:
        """The speedup over drafting in turn; below 1 it loses."""
        return (1 + self.hidden) / self.ahead

    @property
    def pays(self) -> bool:
        return self.gain > 1

    @property
    def largest(self) -> Literal["sharing", "waiting", "missing"]:
        """The term that costs most."""
        terms: tuple[Literal["sharing", "waiting", "missing"], ...] = ("sharing", "waiting", "missing")
        return max(terms, key=lambda name: float(getattr(self, name)))


def ssd_account(
    hit: float, draft_sd: float, ahead: float, on_miss: float | None = None, slow: float = 0.0
) -> SsdAccount:
    """Does drafting ahead pay against drafting in turn, and if not, which term costs? Arguments as `ssd_speedup`.

    on_miss: T_m; by default T_SD: a miss drafts as a round in turn does.
    """
    h, s = scalar("hit", hit, low=0, high=1), scalar("slow", slow, low=0)
    in_turn = scalar("draft_sd", draft_sd, low=0)
    missed = in_turn if on_miss is None else scalar("on_miss", on_miss, low=0)
    waiting = h * max(0.0, scalar("ahead", ahead, low=0) - 1 - s)
    return SsdAccount(in_turn, s, waiting, (1 - h) * missed)


def break_even_hit(draft_sd: ArrayLike, ahead: ArrayLike, on_miss: ArrayLike, slow: ArrayLike = 0.0) -> Real:
    """The hit rate above which drafting ahead beats drafting in turn; 0 where it always does, nan where it never does.

    From 1 + T_SD = h max(1 + s, T_a) + (1-h)(1 + s + T_m), with as many tokens after a hit as after a miss.
    """
    s = numbers("slow", slow, low=0)
    in_turn = 1 + numbers("draft_sd", draft_sd, low=0)
    found = np.maximum(1 + s, numbers("ahead", ahead, low=0))
    missed = 1 + s + numbers("on_miss", on_miss, low=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where(missed <= in_turn, 0.0, (missed - in_turn) / (missed - found))
    return plain(np.where(found > in_turn, np.nan, needed))


def batch_hit_rate(hit: ArrayLike, batch: ArrayLike) -> Real:
    """h^B: the chance that every row of a batch has a hit, where rows hit independently."""
    return plain(numbers("hit", hit, low=0, high=1) ** whole("batch", batch, low=1))


def ssd_batch(
    hit: float,
    batch: int,
    tokens_hit: float,
    tokens_miss: float,
    ahead: float,
    on_miss: float | Callable[[int], float],
    slow: float = 0.0,
    drafted: Drafted = "missed",
) -> float:
    """Speedup of a batch over baseline decoding of the same batch: rows hit independently, and verify together.

    With `drafted="all"` this is `ssd_speedup` at a hit rate of h^B. With "missed" each row keeps its own draft and only
    the drafting of the missed ones is waited for; with "nothing" no row waits, and a missed row emits one token.

    Args:
        on_miss: T_m, or T_m of a number of rows.
        drafted: who is drafted for when some rows missed.
    """
    check_choice("drafted", drafted, get_args(Drafted))
    check_number("batch", batch, low=1, integer=True)
    h, s = scalar("hit", hit, low=0, high=1), scalar("slow", slow, low=0)
    e_hit, e_miss = scalar("tokens_hit", tokens_hit, low=1), scalar("tokens_miss", tokens_miss, low=1)

    def late(rows: int) -> float:
        return scalar("on_miss", on_miss(rows) if callable(on_miss) else on_miss, low=0)

    found = max(1 + s, scalar("ahead", ahead, low=0))
    if drafted == "all":
        return float(ssd_speedup(h**batch, e_hit, e_miss, found, late(batch), s))
    if drafted == "nothing":
        return (h * e_hit + (1 - h)) / found
    chances = [math.comb(batch, m) * (1 - h) ** m * h ** (batch - m) for m in range(batch + 1)]
    times = [found] + [max(found * (m < batch), 1 + s + late(m)) for m in range(1, batch + 1)]
    return (h * e_hit + (1 - h) * e_miss) / sum(chance * time for chance, time in zip(chances, times, strict=True))


def hit_rate(fan_out: ArrayLike, r: ArrayLike) -> Real:
    """1 - F^-r: the chance that the bonus token is among F foreseen ones; misses fall as a power of F. F = 0: never.

    r is measured on a drafter's lists of likely tokens. The distribution is a fit; at F = 1 it gives 0.
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
