"""The decision: which drafts make a step bring most tokens per second, for all its rows together. Pure functions.

A step of b rows emits b tokens and, of each row, what is accepted of its draft. Of the drafts that could be made those
with the best ratio (b + expected accepted) / (step + drafts) are chosen. Every size of draft is looked at, so that
costs that jump (a drafter's first token, a kink in the forward) do not mislead.

There are two searches. For one row every draft of a source is a plan of its own, and a product tells the best: with
several sources each has a best draft at a given worth of a second, and that worth is the ratio itself, so that a few
rounds find both (Dinkelbach, Management Science 13, 1967). Rows of a batch share the drafting: a level of depth costs
nearly as much for one row as for all, so a deep draft must be wanted by several rows or not be made, which no order of
single nodes expresses. There a plan is a pair: the longest draft D of the sources whose drafting costs something, and
the least chance of being accepted that earns a node its row in the target's forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.pacing.costs import CurrentCosts
from headstart.theory.costs import late_share

MIN_GAIN = 0.02
"""A draft must promise this much more than plain decoding: costs are known no better."""
IDLE_STEPS = 8
"""Steps for which "no drafts" stands, about. Where a single row drafts, every step is decided on, which takes time."""
MIN_TURN_SHARE = 0.05
"""What a source counts as that seldom has its turn, so that it gets a sensible budget for when it does."""
MIN_LEAD_TOKENS = 0.05
"""A source is passed over for a later one that should bring so many tokens more."""
DINKELBACH_ROUNDS = 5
DINKELBACH_CLOSE = 0.003

_CHANCES = np.array([0.0, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.88, 0.95])
_DEPTHS = np.array([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32])


@dataclass(slots=True)
class DraftOption:
    """What one source can draft for one row."""

    source: int
    coverage: float
    """How likely it has a draft when it is asked."""
    nodes: NDArray[Any]
    """[size] of each draft that it can make, fewest first; empty where the row has no room for any."""
    depths: NDArray[Any]
    """[size]"""
    gains: NDArray[Any]
    """[size] accepted tokens that are expected."""
    backlog: float = 0.0
    """Seconds to read what it has not seen of the text."""
    catch_up: float = 0.0
    """Seconds of these that this draft has to pay for."""

    def gain(self, nodes: int) -> float:
        """Accepted tokens that are expected of a draft of so many nodes."""
        size = int(self.nodes.searchsorted(nodes, side="right"))
        return float(self.gains[size - 1]) if size else 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """What to draft."""

    nodes: list[list[int]]
    """[row][source]"""
    rate: float
    """Expected tokens per second with these drafts."""


def choose_for_one(
    options: Sequence[DraftOption], costs: CurrentCosts, *, batch: int = 1, extra: int = 0, sampled: bool, rate: float
) -> Choice:
    """The best drafts for one row.

    Args:
        options: of its sources, in the order in which they are asked.
        batch: requests in the forward.
        extra: nodes that the others draft.
        sampled: whether the row's tokens are drawn.
        rate: tokens per second of the last choice; only where to begin.
    """
    base = costs.step(batch, batch + extra, sampled)
    plain = batch / (base + costs.thinking / IDLE_STEPS)
    least = plain * (1 + MIN_GAIN)
    base += costs.thinking
    times = [_seconds(option, costs, batch + extra, sampled) for option in options]
    if len(options) == 1:
        rates = (batch + options[0].gains) / (base + times[0])
        size = int(rates.argmax()) if len(rates) else -1
        if size < 0 or rates[size] <= least:
            return Choice([[0]], plain)
        return Choice([[int(options[0].nodes[size])]], float(rates[size]))
    chosen, best = [0] * len(options), least
    rate = max(rate, least)
    for _ in range(DINKELBACH_ROUNDS):
        sizes = _sizes(options, times, rate)
        tokens, seconds, turn = float(batch), base, 1.0
        for option, each, size in zip(options, times, sizes, strict=True):
            if size >= 0:
                tokens += turn * option.coverage * float(option.gains[size])
                seconds += turn * option.coverage * float(each[size])
                turn *= 1 - option.coverage
        now = tokens / seconds
        if now > best:
            best = now
            chosen = [int(o.nodes[size]) if size >= 0 else 0 for o, size in zip(options, sizes, strict=True)]
        if abs(now - rate) < DINKELBACH_CLOSE * rate:
            break
        rate = max(now, least)
    return Choice([chosen], best if any(chosen) else plain)


def _seconds(option: DraftOption, costs: CurrentCosts, rows: int, sampled: bool) -> NDArray[Any]:
    """[size] seconds that the source's drafts add to a step of so many rows."""
    if not len(option.nodes):
        return option.gains
    seconds = costs.drafting(option.source, option.nodes, option.depths, rows, sampled)
    if sampled and costs.point_masses(option.source):
        seconds = seconds + costs.sampled_row * option.gains
    return seconds + option.catch_up if option.catch_up else seconds


def _sizes(options: Sequence[DraftOption], times: Sequence[NDArray[Any]], rate: float) -> list[int]:
    """The best size of each source at this worth of a second; -1 for none, also where a later source does better."""
    found = []
    for option, seconds in zip(options, times, strict=True):
        values = option.gains - rate * seconds
        size = int(values.argmax()) if len(values) else -1
        value = float(values[size]) if size >= 0 else 0.0
        found.append((value, size) if value > 0 else (0.0, -1))
    return [
        -1 if any(later > value + MIN_LEAD_TOKENS for later, _ in found[place + 1 :]) else size
        for place, (value, size) in enumerate(found)
    ]


def net_gain(option: DraftOption, costs: CurrentCosts, rows: int, rate: float, sampled: bool) -> float:
    """Tokens that a source brings with its best draft, less those that its seconds would have brought."""
    return _net_gain(option, _seconds(option, costs, rows, sampled), rate)


def _net_gain(option: DraftOption, seconds: NDArray[Any], rate: float) -> float:
    return max(0.0, float((option.gains - rate * seconds).max())) if len(option.gains) else 0.0


def can_pay(
    source: int, costs: CurrentCosts, batch: int, nodes: NDArray[Any], depths: NDArray[Any], sampled: bool
) -> bool:
    """Whether any draft of this source would pay if every guess were right."""
    base = costs.step(batch, batch, batch * sampled)
    one = costs.start(source) + costs.level(source, sampled) * depths
    distributions = depths if costs.point_masses(source) else nodes
    seconds = costs.steps(batch, batch * (1 + nodes), batch * sampled * (1 + distributions))
    in_turn = one * (1 + costs.growth(source) * (batch - 1))
    if hidden := costs.hidden(source):
        late = one * late_share(hidden, costs.growth(source), batch)
        in_turn = np.minimum(in_turn, late + costs.slowing(source) * seconds)
    seconds += in_turn
    return bool(((1 + depths) * base > seconds * (1 + MIN_GAIN)).any())


# -- several rows -----------------------------------------------------------------------------------------------------


def choose_for_many(
    rows: Sequence[Sequence[DraftOption]],
    costs: CurrentCosts,
    batch: int,
    *,
    extra: int = 0,
    sampled: Sequence[bool],
    rate: float,
) -> Choice:
    """As `choose_for_one`, for rows that have the same sources in the same order. Every longest draft is tried with
    every least chance of a node, all at once."""
    drawn = np.array(sampled)
    base = costs.step(batch, batch + extra, int(drawn.sum()))
    plain = batch / (base + costs.thinking_of_batch(batch, False))
    widest = [max(column, key=lambda option: len(option.nodes)) for column in zip(*rows, strict=True)]
    times = [_seconds(option, costs, batch + extra, bool(drawn.any())) for option in widest]
    used = [_turns(options, times, max(rate, plain)) for options in rows]
    deepest = max((int(o.depths.max()) for options in rows for o in options if len(o.depths)), default=0)
    if not deepest:
        return Choice([[0] * len(options) for options in rows], plain)
    longest = _DEPTHS[: int(np.searchsorted(_DEPTHS, deepest)) + 1]
    plans = len(_CHANCES) * len(longest)
    gain, nodes, distribution = (np.zeros(plans) for _ in range(3))
    seconds = np.full(plans, costs.thinking_of_batch(batch, True))
    chosen = []
    for place, option in enumerate(rows[0]):
        turns, asked = (np.array([each[part][place] for each in used]) for part in (0, 1))
        source = option.source
        level = costs.level(source, bool(drawn.any()))
        mine = [options[place] for options in rows]
        made, levels, gained = _plans(mine, longest if level > 0 else np.full(len(longest), deepest), turns > 0)
        chosen.append(made)
        gain += gained @ turns
        nodes += made @ turns
        distribution += (gained if costs.point_masses(source) else made) @ (turns * drawn)
        time = _together(costs, source, level, levels, 0.0)
        if hidden := costs.hidden(source):
            slower = costs.slowing(source) * costs.steps(batch, batch + extra + made.sum(1)) * (made > 0).any(1)
            time = np.minimum(time, _together(costs, source, level, levels, hidden) + slower)
        backlog = np.array([each.catch_up for each in mine])
        seconds += asked.max() * time + (made > 0) @ backlog
    rates = (batch + gain) / (costs.steps(batch, batch + extra + nodes, drawn.sum() + distribution) + seconds)
    best = int(rates.argmax())
    if rates[best] <= plain * (1 + MIN_GAIN):
        return Choice([[0] * len(options) for options in rows], plain)
    return Choice(np.stack([made[best] for made in chosen], axis=1).tolist(), float(rates[best]))


def _together(costs: CurrentCosts, source: int, level: float, levels: NDArray[Any], hidden: float) -> NDArray[Any]:
    """[plan] seconds that the target waits for drafts of so many levels [plan, row], each hidden with that chance.

    Level by level, rows that are done leave: level * (1 + growth * (rows left - 1)), summed over the levels.
    """
    drafting, growth = (levels > 0).sum(1), costs.growth(source)
    any_late = 1 - hidden**drafting
    first = costs.start(source) * ((1 - growth) * any_late + growth * (1 - hidden) * drafting)
    found: NDArray[Any] = first
    found += level * ((1 - growth) * any_late * levels.max(1) + growth * (1 - hidden) * levels.sum(1))
    return found


def _turns(
    options: Sequence[DraftOption], times: Sequence[NDArray[Any]], rate: float
) -> tuple[list[float], list[float]]:
    """By source: how likely its draft is used, and how likely it is asked; 0 where a later one does better."""
    if len(options) == 1:
        return [1.0], [1.0]
    values = [_net_gain(option, each[: len(option.gains)], rate) for option, each in zip(options, times, strict=True)]
    used, asked, left = [], [], 1.0
    for place, option in enumerate(options):
        if any(later > values[place] + MIN_LEAD_TOKENS for later in values[place + 1 :]):
            used.append(0.0)
            asked.append(0.0)
            continue
        used.append(max(left * option.coverage, MIN_TURN_SHARE))
        asked.append(max(left, MIN_TURN_SHARE))
        left *= 1 - option.coverage
    return used, asked


def _plans(
    options: Sequence[DraftOption], longest: NDArray[Any], used: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Nodes, depth and expected accepted tokens of every row's draft in every plan; [plan, row] each.

    A row takes the size of which most is left when each node has been paid for with the least chance: bigger ones would
    only add nodes that are likelier to be wrong.
    """
    widest = max(options, key=lambda option: len(option.nodes))
    nodes, depths = (np.concatenate(([0], column)) for column in (widest.nodes, widest.depths))
    gains = np.full((len(options), len(nodes)), -np.inf)  # a row near its end may not have the larger sizes
    for row, option in enumerate(options):
        gains[row, 0] = 0.0
        gains[row, 1 : len(option.gains) + 1] = option.gains
    left = gains - _CHANCES[:, None, None] * nodes  # [chance, row, size]
    if (np.diff(depths) >= 0).all():  # sizes of at most so many levels stand in front
        best = _running_argmax(left)[..., depths.searchsorted(longest, side="right") - 1]  # [chance, row, longest]
        found = best.transpose(2, 0, 1).reshape(-1, len(options))
    else:
        allowed = (depths <= longest[:, None])[:, None, None, :]
        found = np.where(allowed, left, -np.inf).argmax(-1).reshape(-1, len(options))
    found[:, ~used] = 0
    return nodes[found], depths[found], gains[np.arange(len(options)), found]


def _running_argmax(values: NDArray[Any]) -> NDArray[Any]:
    """[..., i]: where the largest of values[..., : i + 1] stands, the first of equals."""
    highest = np.maximum.accumulate(values, axis=-1)
    new = np.empty(values.shape, dtype=bool)
    new[..., 0] = True
    new[..., 1:] = highest[..., 1:] > highest[..., :-1]
    found: NDArray[Any] = np.maximum.accumulate(np.where(new, np.arange(values.shape[-1]), 0), axis=-1)
    return found
