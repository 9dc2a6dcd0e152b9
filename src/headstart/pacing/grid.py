"""The decision for several rows: every longest draft with every least chance of a node, all at once.

Rows of a batch share the drafting: a level of depth costs nearly as much for one row as for all. So a deep draft
must be wanted by several rows or not be made, which no order of single nodes expresses. A plan is therefore a pair: the
longest draft D of the sources whose drafting costs something, and the least chance of being accepted that
earns a node its row in the target's forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.pacing.choice import MARGIN, Choice, Offer, turns
from headstart.pacing.costs import Prices

_CHANCES = np.array([0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.88, 0.95])
_DEPTHS = np.array([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32])


def choose_for_many(rows: Sequence[Sequence[Offer]], prices: Prices, batch: int, *, extra: int, rate: float) -> Choice:
    """As `choose_for_one`, for rows that have offers of the same sources in the same order."""
    base = prices.forward(batch, batch + extra)
    plain = batch / base
    used = [turns(offers, prices, batch + extra, max(rate, plain)) for offers in rows]
    deepest = max(len(offer.survival) for offers in rows for offer in offers)
    depths = _DEPTHS[: int(np.searchsorted(_DEPTHS, deepest)) + 1]
    plans = len(_CHANCES) * len(depths)
    longest = np.repeat(depths, len(_CHANCES))
    gain, nodes, seconds = np.zeros(plans), np.zeros(plans), np.zeros(plans)
    lengths = []
    for place, offer in enumerate(rows[0]):
        source = offer.source
        weights, asked = np.zeros(len(rows)), np.zeros(len(rows))
        for row, each in enumerate(used):
            for at, weight, turn in each:
                if at == place:
                    weights[row], asked[row] = weight, turn
        chances = _table([offers[place].survival for offers in rows], deepest)
        counts = (chances[None] >= _CHANCES[:, None, None]).sum(-1)  # [chance, row]
        k = np.tile(counts, (len(depths), 1))
        token, growth = prices.token(source), prices.growth(source)
        if token > 0:
            k = np.minimum(k, longest[:, None])
        k[:, weights == 0] = 0
        depth, size = _sizes(offer.sizes, deepest)
        made = size[k]
        lengths.append(made)
        total = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(chances, axis=1)], axis=1)
        gain += (weights * total[np.arange(len(rows)), depth[k]]).sum(1)
        nodes += (weights * made).sum(1)
        drafting = (k > 0).sum(1)
        backlog = np.array([offers[place].backlog / offers[place].horizon for offers in rows])
        first = prices.start(source) * (1 + growth * (drafting - 1)) * (drafting > 0)
        # Level by level, rows that are done leave: token * (1 + growth * (rows left - 1)), summed over the levels
        levels = token * ((1 - growth) * made.max(1) + growth * made.sum(1))
        seconds += asked.max() * (first + levels) + ((k > 0) * backlog).sum(1)
    rates = (batch + gain) / (prices.forwards(batch, batch + extra + nodes) + seconds)
    best = int(rates.argmax())
    if rates[best] <= plain * (1 + MARGIN):
        return Choice([[0] * len(offers) for offers in rows], plain, plain)
    caps = np.stack([k[best] for k in lengths], axis=1)
    return Choice(caps.tolist(), plain, float(rates[best]))


def _sizes(sizes: Sequence[tuple[int, int]], deepest: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each wanted depth, depth and nodes of the smallest draft that goes so deep (of the largest, if none does)."""
    levels = np.arange(deepest + 1)
    if not sizes:
        return levels, levels
    nodes, depths = (np.array([0, *column]) for column in zip(*sizes, strict=True))
    place = np.minimum(np.searchsorted(depths, levels), len(sizes))
    return np.minimum(depths[place], deepest), nodes[place]


def _table(survival: Sequence[Sequence[float]], deepest: int) -> NDArray[Any]:
    """[row, depth], 0 where a row may not go so deep."""
    table = np.zeros((len(survival), deepest))
    for row, chances in enumerate(survival):
        table[row, : len(chances)] = chances
    return table
