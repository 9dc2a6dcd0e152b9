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
    deepest = max(offer.deepest for offers in rows for offer in offers)
    depths = _DEPTHS[: int(np.searchsorted(_DEPTHS, deepest)) + 1]
    plans = len(_CHANCES) * len(depths)
    gain, nodes, seconds = np.zeros(plans), np.zeros(plans), np.zeros(plans)
    lengths = []
    for place, source in enumerate(offer.source for offer in rows[0]):
        weights, asked = np.zeros(len(rows)), np.zeros(len(rows))
        for row, each in enumerate(used):
            for at, weight, turn in each:
                if at == place:
                    weights[row], asked[row] = weight, turn
        token, growth = prices.token(source), prices.growth(source)
        mine = [offers[place] for offers in rows]
        longest = depths if token > 0 else np.full(len(depths), deepest)
        made, levels, gained = (_trees if any(each.gains for each in mine) else _chains)(mine, longest, weights > 0)
        lengths.append(made)
        gain += (weights * gained).sum(1)
        nodes += (weights * made).sum(1)
        drafting = (made > 0).sum(1)
        backlog = np.array([each.backlog / each.horizon for each in mine])
        first = prices.start(source) * (1 + growth * (drafting - 1)) * (drafting > 0)
        # Level by level, rows that are done leave: token * (1 + growth * (rows left - 1)), summed over the levels
        time = token * ((1 - growth) * levels.max(1) + growth * levels.sum(1))
        seconds += asked.max() * (first + time) + ((made > 0) * backlog).sum(1)
    rates = (batch + gain) / (prices.forwards(batch, batch + extra + nodes) + seconds)
    best = int(rates.argmax())
    if rates[best] <= plain * (1 + MARGIN):
        return Choice([[0] * len(offers) for offers in rows], plain, plain)
    caps = np.stack([k[best] for k in lengths], axis=1)
    return Choice(caps.tolist(), plain, float(rates[best]))


_Plans = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Nodes, depth and expected accepted tokens of every row's draft in every plan; [plan, row] each."""


def _chains(offers: Sequence[Offer], longest: NDArray[Any], used: NDArray[Any]) -> _Plans:
    """As long as each next token has the least chance; also trees of one size, which are made whole or not at all."""
    deepest = max(len(offer.survival) for offer in offers)
    chances = _table([offer.survival for offer in offers], deepest)
    counts = (chances[None] >= _CHANCES[:, None, None]).sum(-1)  # [chance, row]
    k = np.minimum(np.tile(counts, (len(longest), 1)), np.repeat(longest, len(_CHANCES))[:, None])
    k[:, ~used] = 0
    depth, size = _sizes(offers[0].sizes, deepest)
    total = np.concatenate([np.zeros((len(offers), 1)), np.cumsum(chances, axis=1)], axis=1)
    return size[k], depth[k], total[np.arange(len(offers)), depth[k]]


def _trees(offers: Sequence[Offer], longest: NDArray[Any], used: NDArray[Any]) -> _Plans:
    """The size of which most is left when each node has been paid for with the least chance: bigger ones would only add
    nodes that are likelier to be wrong."""
    widest = max(offers, key=lambda offer: len(offer.sizes)).sizes
    nodes, depth = (np.array([0, *column]) for column in zip(*widest, strict=True))
    gains = np.full((len(offers), len(nodes)), -np.inf)  # a row near its end may not have the larger sizes
    for row, offer in enumerate(offers):
        gains[row, : len(offer.gains) + 1] = (0.0, *offer.gains)
    left = gains[None] - _CHANCES[:, None, None] * nodes  # [chance, row, size]
    allowed = depth <= longest[:, None]
    found = np.where(allowed[:, None, None, :], left[None], -np.inf).argmax(-1).reshape(-1, len(offers))
    found[:, ~used] = 0
    return nodes[found], depth[found], gains[np.arange(len(offers)), found]


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
