"""The decision: which drafts make a step worth most tokens per second, for all its rows together. Pure functions.

A step of b rows emits b tokens and, of each row, what is accepted of its draft. Of the caps that are tried, those
with the best ratio (b + expected accepted) / (forward + drafts) are kept. One row is scanned node by node,
the most expected tokens per second of its own cost first; several rows are searched on a grid (`grid`). Neither stops
where the ratio first falls, so costs that jump (a drafter's first token, a kink in the forward) do not mislead them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.pacing.costs import Prices

MARGIN = 0.02
"""A draft must promise this much more than plain decoding: costs are known no better."""
RARELY = 0.05
"""What a source that seldom has its turn counts as, so that it gets a sensible cap for when it does."""
_CLEARLY = 0.05
_HOPELESS = 2.0  # a node worth so little of its own drafting is the last that is looked at


@dataclass(slots=True)
class Offer:
    """What one source can do for one row. speaks: how likely it has a draft when asked. survival: P(the first d
    nodes are accepted), as deep as the row may draft. backlog: seconds to read what it has not seen, which `horizon`
    steps have to pay for."""

    source: int
    speaks: float
    survival: Sequence[float]
    backlog: float = 0.0
    horizon: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """caps[row][offer]: nodes. plain, rate: expected tokens per second without drafts and with these."""

    caps: list[list[int]]
    plain: float
    rate: float


def choose_for_one(offers: Sequence[Offer], prices: Prices, *, others: int, extra: int, rate: float) -> Choice:
    """The best caps for one row, whose offers stand in the order in which they are asked.

    others: further requests in the forward. extra: nodes that those draft. rate: tokens per second the last steps
    made, by which a source is weighed against those that would be asked in its place.
    """
    if len(offers) == 1:
        return _choose_length(offers[0], prices, 1 + others, extra)
    batch = 1 + others
    nodes, total = float(batch + extra), float(batch)
    base = prices.forward(batch, nodes)
    plain = batch / base
    slope = prices.forward(batch, nodes + 1) - base
    items = []
    for place, weight, asked in turns(offers, prices, slope, max(rate, plain)):
        offer = offers[place]
        token = prices.token(offer.source)
        unit = slope + token + 1e-12
        first = prices.start(offer.source) + offer.backlog / offer.horizon
        for depth, chance in enumerate(offer.survival):
            seconds = asked * (token if depth else token + first)
            items.append((-chance / unit, depth, place, weight * chance, weight, seconds))
    items.sort()
    best, taken, seconds = plain * (1 + MARGIN), 0, 0.0
    for count, (_, _, _, gain, weight, cost) in enumerate(items, start=1):
        total += gain
        nodes += weight
        seconds += cost
        now = total / (prices.forward(batch, nodes) + seconds)
        if now > best:
            best, taken = now, count
    caps = [0] * len(offers)
    for _, depth, place, *_ in items[:taken]:
        caps[place] = max(caps[place], depth + 1)
    return Choice([caps], plain, best if taken else plain)


def _choose_length(offer: Offer, prices: Prices, batch: int, extra: int) -> Choice:
    """The best length where there is one source: if it has nothing to say, nothing was decided."""
    forward, token = prices.forward, prices.token(offer.source)
    nodes, total = batch + extra, float(batch)
    plain = batch / forward(batch, nodes)
    seconds = prices.start(offer.source) + offer.backlog / offer.horizon
    best, taken = plain * (1 + MARGIN), 0
    for k, chance in enumerate(offer.survival, start=1):
        total += chance
        seconds += token
        now = total / (forward(batch, nodes + k) + seconds)
        if now > best:
            best, taken = now, k
        elif chance * _HOPELESS < best * token:
            break
    return Choice([[taken]], plain, best if taken else plain)


def turns(offers: Sequence[Offer], prices: Prices, slope: float, rate: float) -> list[tuple[int, float, float]]:
    """(place, P(its draft is used), P(it is asked)) of the offers that are worth asking.

    An offer is not where one further back would do better whenever this one speaks.
    """
    found, silent = [], 1.0
    for place, offer in enumerate(offers):
        if place + 1 < len(offers):
            own = worth(offer, prices, slope, rate) + _CLEARLY
            if any(worth(later, prices, slope, rate) > own for later in offers[place + 1 :]):
                continue
        found.append((place, max(silent * offer.speaks, RARELY), max(silent, RARELY)))
        silent *= 1 - offer.speaks
    return found


def worth(offer: Offer, prices: Prices, slope: float, rate: float) -> float:
    """Tokens that the offer gains in a round at its best length, less what its seconds are worth."""
    cost = rate * (slope + prices.token(offer.source))
    value, best = -rate * prices.start(offer.source), 0.0
    for chance in offer.survival:
        value += chance - cost
        best = max(best, value)
    return best


def can_pay(source: int, prices: Prices, batch: int, limit: int) -> bool:
    """Whether drafts of this source would pay if every guess were right."""
    base = prices.forward(batch, batch)
    for depth in range(1, limit + 1):
        seconds = prices.forward(batch, batch * (1 + depth)) + prices.draft(source, depth, batch)
        if (1 + depth) * base > seconds * (1 + MARGIN):
            return True
    return False
