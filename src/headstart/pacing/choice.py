"""The decision: which drafts make a step worth most tokens per second, for all its rows together. Pure functions.

A step of b rows emits b tokens and, of each row, what is accepted of its draft. Of the caps that are tried, those
with the best ratio (b + expected accepted) / (forward + drafts) are kept. For one row each source has a best length at
a given worth of a second, and that worth is the ratio itself: a few rounds find both (Dinkelbach's method). Several
rows are searched on a grid (`grid`). Every length is looked at, so costs that jump (a drafter's first token, a kink in
the forward) do not mislead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from headstart.pacing.costs import Prices

MARGIN = 0.02
"""A draft must promise this much more than plain decoding: costs are known no better."""
RARELY = 0.05
"""What a source that seldom has its turn counts as, so that it gets a sensible cap for when it does."""
_CLEARLY = 0.05
_CLOSE = 1.003
_ROUNDS = 5


@dataclass(slots=True)
class Offer:
    """What one source can do for one row. speaks: how likely it has a draft when asked. survival: P(the first d
    levels are accepted), as deep as the row may draft. backlog: seconds to read what it has not seen, which `horizon`
    steps have to pay for. sizes: (nodes, depth) of the trees it can draft, smallest first; empty for chains, which have
    any length. gains: the tokens that each of these sizes brings, where there are several; `survival` then only says
    how likely the first guess is."""

    source: int
    speaks: float
    survival: Sequence[float]
    backlog: float = 0.0
    horizon: int = 1
    sizes: Sequence[tuple[int, int]] = ()
    gains: Sequence[float] = ()

    @property
    def deepest(self) -> int:
        """Levels of its deepest draft."""
        return max((depth for _, depth in self.sizes), default=0) if self.gains else len(self.survival)

    def gain(self, nodes: int) -> float:
        """Tokens expected of a draft of so many nodes."""
        if self.gains:
            return max((gain for gain, (n, _) in zip(self.gains, self.sizes, strict=True) if n <= nodes), default=0.0)
        depth = max((d for n, d in self.sizes if n <= nodes), default=0) if self.sizes else nodes
        return sum(self.survival[:depth])


@dataclass(frozen=True, slots=True)
class Choice:
    """caps[row][offer]: nodes. plain, rate: expected tokens per second without drafts and with these."""

    caps: list[list[int]]
    plain: float
    rate: float


def choose_for_one(offers: Sequence[Offer], prices: Prices, *, others: int, extra: int, rate: float) -> Choice:
    """The best caps for one row, whose offers stand in the order in which they are asked.

    others: further requests in the forward. extra: nodes that those draft. rate: tokens per second the last steps
    made; only where to begin.
    """
    batch = 1 + others
    base = prices.forward(batch, batch + extra)
    plain = batch / base
    curves = [_curve(offer, prices, batch + extra) for offer in offers]
    caps, best = [0] * len(offers), plain * (1 + MARGIN)
    rate = max(rate, best)
    for _ in range(_ROUNDS):
        lengths = _lengths(curves, rate)
        tokens, seconds, silent = float(batch), base, 1.0
        for offer, (gains, times, _), k in zip(offers, curves, lengths, strict=True):
            if k:
                turn = silent * offer.speaks if len(offers) > 1 else 1.0
                tokens += turn * gains[k - 1]
                seconds += turn * times[k - 1]
                silent -= turn
        now = tokens / seconds
        if now > best:
            caps, best = [nodes[k - 1] if k else 0 for (_, _, nodes), k in zip(curves, lengths, strict=True)], now
        if rate < now * _CLOSE and now < rate * _CLOSE:
            break
        rate = max(now, plain * (1 + MARGIN))
    return Choice([caps], plain, best if any(caps) else plain)


_Curve = tuple[Sequence[float], list[float], Sequence[int]]
"""Tokens gained and seconds spent by each draft that can be made, and its nodes: 1, 2, ... for a chain."""


def _curve(offer: Offer, prices: Prices, nodes: int) -> _Curve:
    token = prices.token(offer.source)
    first = prices.start(offer.source) + offer.backlog / offer.horizon
    if not offer.sizes:
        total = list(accumulate(offer.survival))
        rows = prices.further(nodes, len(total))
        return total, [first + row + token * k for k, row in enumerate(rows, start=1)], range(1, len(total) + 1)
    base = prices.forward(1, nodes)
    counts = [n for n, _ in offer.sizes]
    times = [first + prices.forward(1, nodes + n) - base + token * depth for n, depth in offer.sizes]
    return offer.gains or [offer.gain(n) for n in counts], times, counts


def _lengths(curves: Sequence[_Curve], rate: float) -> list[int]:
    """The best draft of each at this worth of a second, by its place in the curve, from 1; 0 for none, also where a
    source further back would do better."""
    found = []
    for gains, times, _ in curves:
        if not gains:
            found.append((0.0, 0))
            continue
        values = [gain - rate * seconds for gain, seconds in zip(gains, times, strict=True)]
        value = max(values)
        found.append((value, values.index(value) + 1) if value > 0 else (0.0, 0))
    return [
        0 if any(later > value + _CLEARLY for later, _ in found[place + 1 :]) else k
        for place, (value, k) in enumerate(found)
    ]


def worth(offer: Offer, prices: Prices, nodes: int, rate: float) -> float:
    """Tokens that the offer gains in a round at its best length, less what its seconds are worth."""
    gains, times, _ = _curve(offer, prices, nodes)
    return max([0.0, *(gain - rate * seconds for gain, seconds in zip(gains, times, strict=True))])


def turns(offers: Sequence[Offer], prices: Prices, nodes: int, rate: float) -> list[tuple[int, float, float]]:
    """(place, P(its draft is used), P(it is asked)) of the offers that are worth asking."""
    if len(offers) == 1:
        return [(0, 1.0, 1.0)]
    values = [worth(offer, prices, nodes, rate) for offer in offers]
    found, silent = [], 1.0
    for place, offer in enumerate(offers):
        if any(later > values[place] + _CLEARLY for later in values[place + 1 :]):
            continue
        found.append((place, max(silent * offer.speaks, RARELY), max(silent, RARELY)))
        silent *= 1 - offer.speaks
    return found


def can_pay(source: int, prices: Prices, batch: int, sizes: Iterable[tuple[int, int]]) -> bool:
    """Whether drafts of this source, of these (nodes, depth), would pay if every guess were right."""
    base = prices.forward(batch, batch)
    for nodes, depth in sizes:
        seconds = prices.forward(batch, batch * (1 + nodes)) + prices.draft(source, depth, batch)
        if (1 + depth) * base > seconds * (1 + MARGIN):
            return True
    return False
