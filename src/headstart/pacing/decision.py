"""The decision: which drafts make a step bring most tokens per second, for all its rows together. Pure functions.

A step of b rows emits b tokens and, of each row, what is accepted of its draft. The drafts that are chosen have the
best ratio (b + expected accepted) / (step + drafts). Every size of draft is looked at, so that costs that jump (a
drafter's first token, a kink in the forward) do not mislead.

Of a lone row the price of each draft is known, and so is that ratio for each (`_lone`). While a source has hardly been
tried, sizes whose ratios are alike are not worth the same: a short draft risks less, and says as much sooner. Whether a
source drafts depends on the text: an n-gram matches at this token or it does not. So each source's draft is weighed by
the steps in which it is made, against plain decoding in these, and not against the mean of all steps. A long copy that
may come gets no nearer by decoding the tokens before it slowly. But each source's drafts must also pay for the steps in
which it is asked and has none, and all of them for what pacing takes.

In a larger batch (`_Batch`) the price depends on the other rows. The ratio is then also what a second is worth, so the
search begins with the last step's: each row takes the size of which most tokens are left when its seconds have been
paid for at that worth, and the ratio of the sizes found is the worth of the next round (Dinkelbach, Management Science
13, 1967). One round or two suffice. What a row costs depends on how many there are, so several prices are tried,
between the least and the most that a further row of the forward can cost, and the whole step is costed for each. And
rows share the drafting: a level of depth costs nearly as much for one row as for all, so a deep draft must be wanted by
several rows or not be made. What is shared is weighed against all that the rows gain from levels so deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.pacing.constants import PRECISION, PRICES
from headstart.pacing.costs import CurrentCosts

_BETWEEN = np.linspace(0.0, 1.0, PRICES)


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
    untried: bool = False
    """Whether these gains are guesswork still."""
    backlog: float = 0.0
    """Seconds to read what it has not seen of the text."""
    catch_up: float = 0.0
    """Seconds of these that this draft has to pay for."""
    asked: bool = True
    """Whether it has been asked often enough to know how often it has none."""

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


def choose(
    rows: Sequence[Sequence[DraftOption]],
    costs: CurrentCosts,
    *,
    batch: int,
    extra: int = 0,
    sampled: Sequence[bool],
    rate: float = 0.0,
) -> Choice:
    """The best drafts for some rows of a step, all at once.

    Args:
        rows: the options of each row, of the same sources in the order in which they are asked.
        batch: requests in the forward, these rows among them.
        extra: nodes that the others draft.
        sampled: by row, whether its tokens are drawn.
        rate: tokens per second of the last choice; only where the search for a batch begins.
    """
    base = costs.rows(batch) + costs.weigh(extra, extra)
    plain_step = costs.step(batch, base, sum(sampled))
    plain = batch / (plain_step + costs.thinking(batch, drafting=False))
    # Of a lone row each draft promises as much more in the steps that have it
    least = plain if len(rows) == 1 else plain * (1 + PRECISION)
    thinking = costs.thinking(batch, drafting=True)
    if len(rows) == 1:
        found, nodes = _lone(rows[0], costs, batch, base, sampled[0], plain_step + thinking)
    elif rate <= least and _hopeless(rows, costs, batch, base, any(sampled), least):
        found, nodes = plain, []
    else:
        found, nodes = _Batch(rows, costs, batch, base, sampled, thinking).search(max(rate, least), least)
    return Choice(nodes, found) if found > least else Choice([[0] * len(rows[0])] * len(rows), plain)


def _lone(
    options: Sequence[DraftOption], costs: CurrentCosts, batch: int, rows: float, sampled: bool, base: float
) -> tuple[float, list[list[int]]]:
    """Tokens per second, and nodes by source, of the best drafts of a row that is decided on by itself: each promises
    more than plain decoding in the steps that have it, by as much as costs are known.

    Args:
        rows: of the forward without its drafts.
        base: seconds of a step without drafts.
    """
    plain = batch / base
    least = plain * (1 + PRECISION)
    later = tokens = seconds = 0.0  # of the sources that are asked after this one
    nodes = []
    for option in reversed(options):
        size, rate = 0, 0.0
        if len(option.nodes):
            steps = base + _seconds(option, costs, rows, sampled)
            rates = (batch + option.gains) / steps
            size = int(rates.argmax())
            rate = float(rates[size])
            if option.untried and rate > least:
                size = int((rates > max(least, rate / (1 + PRECISION))).argmax())
                rate = float(rates[size])
        pays = rate > least and rate * (1 + PRECISION) >= later
        if pays:
            used, asking = option.coverage, costs.start(option.source)
            if not option.asked:
                used, asking = used if len(options) > 1 else 1.0, 0.0
            gain, adds = float(option.gains[size]), float(steps[size]) - base
            pays = used * (gain - plain * adds) > (1 - used) * plain * asking
        if pays:
            tokens += used * (gain - tokens)
            seconds = used * adds + (1 - used) * (asking + seconds)
            later = max(later, rate)
        nodes.append(int(option.nodes[size]) if pays else 0)
    return (batch + tokens) / (base + seconds), [nodes[::-1]]


def _hopeless(
    rows: Sequence[Sequence[DraftOption]], costs: CurrentCosts, batch: int, base: float, sampled: bool, least: float
) -> bool:
    """Whether no drafts of a batch can bring `least` tokens per second: a bound that takes a tenth of the search's
    time, since most batches of a small model draft nothing. One that did draft is searched at once.

    Each row takes its best draft for itself, at the cheapest price of a further row of the forward and for what only
    this row's drafting adds; that what rows share costs nothing, and that a list drafts whichever source is best.
    """
    widest = [max(options, key=lambda option: len(option.nodes)) for options in zip(*rows, strict=True)]
    weights = [costs.weigh(each.nodes, each.depths) for each in widest]
    most = base + len(rows) * max((float(each[-1]) for each in weights if len(each)), default=0.0)
    price, _ = costs.row_prices(base, most)
    seconds = []
    for option, weight in zip(widest, weights, strict=True):
        own: Any = 0.0  # what is drafted ahead may cost nothing
        if not costs.hidden(option.source):
            own, _ = costs.shares(option.source, option.nodes, option.depths, base, len(rows), sampled)
        seconds.append(least * (price * weight + own))
    left = 0.0
    for row in rows:
        best = 0.0
        for option, lost in zip(row, seconds, strict=True):
            if count := len(option.gains):
                best = max(best, float((option.gains - lost[:count]).max()))
        left += best * (row[0].coverage if len(row) == 1 else 1.0)  # in a list, others draft where one has nothing
    return left <= batch * PRECISION


class _Batch:
    """Rows that are decided on together. base: rows of the forward without their drafts. thinking: seconds that
    deciding takes."""

    def __init__(
        self,
        rows: Sequence[Sequence[DraftOption]],
        costs: CurrentCosts,
        batch: int,
        base: float,
        sampled: Sequence[bool],
        thinking: float,
    ) -> None:
        self._costs, self._batch, self._rows, self._thinking = costs, batch, base, thinking
        self._sampled = np.array(sampled)
        widest = [[costs.weigh(each.nodes[-1], each.depths[-1]) for each in row if len(each.nodes)] for row in rows]
        most = base + sum(max(each, default=0) for each in widest)
        cheapest, dearest = costs.row_prices(base, most)
        self._prices = cheapest + (dearest - cheapest) * _BETWEEN
        self._columns = [
            _Column(options, costs, self._rows, self._sampled, self._prices) for options in zip(*rows, strict=True)
        ]

    def search(self, worth: float, least: float) -> tuple[float, list[list[int]]]:
        """Tokens per second, and nodes by row and source, of the best drafts; `least` where none bring more.

        worth: tokens per second that a second is worth in the first round.
        """
        best, chosen = least, list[list[int]]()
        while True:
            now, nodes = self._at(worth)
            better = now > best
            if better:
                best, chosen = now, nodes
            # What a wrong worth loses is the square of its error
            if (now / worth - 1) ** 2 < PRECISION / 2 or (worth <= best and not better):
                return best, chosen
            worth = best

    def _at(self, worth: float) -> tuple[float, list[list[int]]]:
        """Tokens per second, and nodes by row and source, of the best drafts at this worth of a second."""
        later: Any = None
        for column in reversed(self._columns):
            value = column.weigh(worth)
            if later is not None:
                column.pass_over(value + PRECISION < later)
                value = np.maximum(later, value)
            later = value
        costs, drawn = self._costs, int(self._sampled.sum())
        asked = np.ones((PRICES, len(self._sampled)))
        tokens = weights = distributions = np.zeros(PRICES)
        used = []
        for column in self._columns:
            drafts = column.levels > 0
            # Asking and reading what came are paid for by all rows that are asked, whichever of them have a draft
            reading = (asked * drafts) @ column.catch_up
            turns = asked * drafts * column.coverage
            tokens = tokens + (turns * column.gain).sum(1)
            weights = weights + (turns * column.weights).sum(1)
            if drawn:
                each = column.gain if costs.point_masses(column.source) else column.nodes
                distributions = distributions + (turns * each) @ self._sampled
            used.append((column, (asked * drafts).max(1), reading))
            asked = asked - turns
        seconds = steps = costs.steps(self._batch, self._rows + weights, drawn + distributions)
        for column, share, reading in used:
            drafting = costs.together(column.source, column.nodes, column.levels, steps, drawn > 0)
            seconds = seconds + share * drafting + reading
        rates = (self._batch + tokens) / (seconds + self._thinking)
        best = int(rates.argmax())
        return float(rates[best]), np.stack([column.nodes[best] for column in self._columns], axis=1).tolist()


class _Column:
    """What one source can draft for each of several rows. The first size is no draft.

    Args:
        prices: of a row, in seconds of the forward; all that is said of drafts is said for each of them.
    """

    gain: NDArray[Any]
    """[price, row] tokens that the draft is expected to bring."""
    nodes: NDArray[Any]
    """[price, row]"""
    weights: NDArray[Any]
    """[price, row] what these nodes count as, in rows of the forward."""
    levels: NDArray[Any]
    """[price, row]"""

    def __init__(
        self,
        options: Sequence[DraftOption],
        costs: CurrentCosts,
        rows: float,
        sampled: NDArray[Any],
        prices: NDArray[Any],
    ) -> None:
        widest = max(options, key=lambda option: len(option.nodes))
        self.source = widest.source
        self.coverage = np.array([option.coverage for option in options])
        self.catch_up = np.array([option.catch_up for option in options])
        drawn = bool(sampled.any())
        sizes = costs.sizes(self.source, widest.nodes, widest.depths, rows, len(options), drawn)
        self._nodes, self._depths, self._weights, own, self._shared, order = sizes
        self._gains = np.full((len(options), len(self._nodes)), -np.inf)  # a row near its end has not all sizes
        self._gains[:, 0] = 0.0
        for row, option in enumerate(options):
            self._gains[row, 1 : len(option.gains) + 1] = option.gains
        if order is not None:
            self._gains = self._gains[:, order]
        if self.catch_up.any():
            own = own + (self._depths > 0) * self.catch_up[:, None]
        if drawn:
            each = self._gains.clip(0.0) if costs.point_masses(self.source) else self._nodes
            own = own + costs.sampled_row * sampled[:, None] * each
        self._own = prices[:, None, None] * self._weights + own
        self._row = np.arange(len(options))
        self._place = np.arange(len(self._nodes))
        self._shares_drafting = bool(self._shared.any())

    def weigh(self, worth: float) -> NDArray[Any]:
        """Take the size of each row of which most is left when its seconds have been paid for, up to the depth that is
        best for all rows together. Returns the tokens that are left [price, row]."""
        left = self._gains - worth * self._own  # [price, row, size]
        together: Any = 0.0
        if self._shares_drafting:
            shared = worth * self._shared
            # Whether any draft pays the exact costs of the step will tell, so no draft is not among these
            likely = np.maximum.accumulate(left, axis=2) * self.coverage[:, None]
            deepest = 1 + (likely.sum(1) - shared)[:, 1:].argmax(1)
            left = np.where(self._place <= deepest[:, None, None], left, -np.inf)
            together = shared[deepest][:, None] / len(self._row)
        self._take(left.argmax(2))
        value: NDArray[Any] = np.maximum(left.max(2) - together, 0.0)
        return value

    def pass_over(self, rows: NDArray[Any]) -> None:
        """No drafts for these [price, row], because a later source does better."""
        if rows.any():
            self._take(np.where(rows, 0, self._size))

    def _take(self, size: NDArray[Any]) -> None:
        self._size = size
        self.gain = self._gains[self._row, size]
        self.nodes, self.weights, self.levels = self._nodes[size], self._weights[size], self._depths[size]


# -- what single drafts are worth --------------------------------------------------------------------------------------


def _seconds(option: DraftOption, costs: CurrentCosts, rows: float, sampled: bool) -> NDArray[Any]:
    """[size] seconds that the source's drafts add to a step of so many rows."""
    if not len(option.nodes):
        return option.gains
    seconds = costs.drafting(option.source, option.nodes, option.depths, rows, sampled)
    if sampled and costs.point_masses(option.source):
        seconds = seconds + costs.sampled_row * option.gains
    return seconds + option.catch_up if option.catch_up else seconds


def net_gain(option: DraftOption, costs: CurrentCosts, rows: float, rate: float, sampled: bool) -> float:
    """Tokens that a source brings with its best draft, less those that its seconds would have brought."""
    if not len(option.gains):
        return 0.0
    return max(0.0, float((option.gains - rate * _seconds(option, costs, rows, sampled)).max()))


def can_pay(
    source: int, costs: CurrentCosts, batch: int, nodes: NDArray[Any], depths: NDArray[Any], sampled: bool
) -> bool:
    """Whether any draft of this source would pay if every row drafted it and every guess were right."""
    distributions = depths if costs.point_masses(source) else nodes
    base, weights = costs.rows(batch), costs.weigh(nodes, depths)
    step = costs.step(batch, base, batch * sampled)
    own, shared = costs.shares(source, nodes, depths, base, batch, sampled)
    seconds = costs.steps(batch, base + batch * weights, batch * sampled * (1 + distributions)) + batch * own + shared
    return bool(((1 + depths) * step > seconds * (1 + PRECISION)).any())
