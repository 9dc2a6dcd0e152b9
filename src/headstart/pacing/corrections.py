"""How a measured cost is corrected by what steps show: a single cost, a forward by its rows, what a row counts as, and
drafting beside it.

An error is the logarithm of measured over expected seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headstart.pacing.constants import DOUBT, DRIFT, MAX_DEPTH, MAX_LOG, MOST_REQUESTS, PRECISION, RUNNING_SHARE
from headstart.theory.costs import DraftCost, StepCosts, rising


def clipped(value: float) -> float:
    """A logarithm, as far as it is believed."""
    return max(-MAX_LOG, min(MAX_LOG, value))


def running_share(seen: int) -> float:
    """How far the next of so many values moves a running mean that began with one value of a profile."""
    return max(RUNNING_SHARE, 1 / (2 + seen))


class Scatter:
    """How far the errors of one cost scatter: little on an idle machine, and a hundred times as much where forwards
    wait for other work. From one to the next, so that a cost that is wrong does not count as one that scatters."""

    __slots__ = ("variance",)

    def __init__(self) -> None:
        self.variance = DOUBT

    def observe(self, difference: float) -> None:
        self.variance += RUNNING_SHARE * (difference * difference / 2 - self.variance)


class Correction:
    """The logarithm of a true cost over that of a profile, as far as steps have shown it.

    One error moves it by its own variance over that and the scatter of errors (a Kalman filter). So a profile that is
    wrong is mended by a few steps of an idle machine, and waiting for other work, which scatters, moves nothing far.

    Args:
        scatter: of errors, also those of like costs.
    """

    __slots__ = ("_last", "_scatter", "value", "variance")

    def __init__(self, scatter: Scatter) -> None:
        self.value = 0.0
        self.variance = DOUBT
        self._scatter = scatter
        self._last = 0.0

    def observe(self, error: float, weight: float = 1.0) -> float:
        """An error, of which `weight` is this cost's. Returns the change."""
        before, seen = self.value, self.value + error
        self._scatter.observe(seen - self._last)
        self._last = seen
        share = weight * self.variance / (self.variance + self._scatter.variance)
        self.variance += DRIFT - share * self.variance
        self.value = clipped(before + share * error)
        return self.value - before

    @property
    def known(self) -> bool:
        """Whether steps have shown more than the profile could: two or three on an idle machine, dozens where they
        scatter."""
        return self.variance < DOUBT / 2


class DraftParts(NamedTuple):
    """A number for each of what a source's drafts take."""

    whole: float
    start: float
    level: float
    sibling: float


class DraftCorrection:
    """The correction of what a source's drafts take: of all of it, and besides of each of its parts, of which only the
    sum is seen. An error moves each as far as it may be what was wrong (a Kalman filter that neglects correlations).

    Parts go wrong by themselves: a start finds the caches cold, and where a text is hard to guess a tree ends in fewer
    levels than it may have.

    Args:
        cost: of a profile. Where it has one part there is nothing to tell apart.
    """

    __slots__ = ("_residual", "_scatter", "_values", "_variances", "factors")

    def __init__(self, cost: DraftCost) -> None:
        apart = DOUBT * (sum(map(bool, (cost.start, cost.token, cost.sibling))) > 1)
        self._values = [0.0, 0.0, 0.0, 0.0]
        self._variances = [DOUBT, apart, apart, apart]
        self._scatter = Scatter()
        self._residual = 0.0
        self.factors = DraftParts(1.0, 1.0, 1.0, 1.0)
        """What the seconds of the profile are multiplied by: each part by its own, and reading, which is none, by
        `whole`."""

    def spread(self, shares: DraftParts) -> float:
        """Variance of what is expected of seconds of which all, and each part, are these shares."""
        return sum(share * share * variance for share, variance in zip(shares, self._variances, strict=True))

    def observe(self, error: float, shares: DraftParts, spread: float) -> float:
        """An error of seconds that have these shares. spread: of these seconds, whatever they are of. Returns how far
        the sum has moved."""
        self._scatter.observe(error - self._residual)
        heard, moved = error / (spread + self._scatter.variance), 0.0
        for part, share in enumerate(shares):
            if share and (weight := share * self._variances[part]):
                before = self._values[part]
                self._values[part] = clipped(before + weight * heard)
                self._variances[part] += DRIFT - weight * weight / (spread + self._scatter.variance)
                moved += share * (self._values[part] - before)
        self._residual = error - moved
        whole, *parts = self._values
        self.factors = DraftParts(math.exp(whole), *[math.exp(clipped(whole + part)) for part in parts])
        return moved

    @property
    def known(self) -> bool:
        """As of `Correction`."""
        return self._variances[0] < DOUBT / 2


class ForwardTable:
    """Seconds of a forward by its number of rows, without the level that all costs share: a few measured numbers,
    corrected where steps show another shape.

    Args:
        rows: (number, seconds) as measured, smaller numbers first.
        place: of a number of rows on the scale on which costs are straight lines between these: `StepCosts.place`.
    """

    def __init__(self, rows: Sequence[tuple[int, float]], place: Callable[[float], float] = float) -> None:
        self._numbers = [n for n, _ in rows]
        self._place = place
        self._places = [place(n) for n in self._numbers]
        self._last = max(
            self._numbers[-1], MAX_DEPTH * MOST_REQUESTS
        )  # a table is quicker, and costs beyond are a line
        self._scale = np.array([place(max(n, 1)) for n in range(self._last + 2)])
        self._measured = rising([seconds for _, seconds in rows])
        scatter = Scatter()
        self.shape = [Correction(scatter) for _ in self._numbers]
        """By measured number, its correction."""
        self._recent = [0.0] * len(self._numbers)  # their share of the steps from which the level was learnt
        self.tabulate()

    def seconds(self, rows: float) -> float:
        """Rows may be an expectation."""
        below = min(int(rows), self._last)
        found: float = self._list[below] + (rows - below) * self._rises[below]
        return found

    def seconds_of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The same for many numbers of rows at once."""
        below = np.minimum(rows.astype(int), self._last)
        found: NDArray[Any] = self._table[below] + (rows - below) * self._rise_table[below]
        return found

    def prices(self, rows: float, most: float) -> tuple[float, float]:
        """The least and the most seconds that one row adds to forwards of `rows` to `most` rows."""
        rises = self._rises[min(int(rows), self._last) : max(int(rows), math.ceil(most) - 1) + 1]
        return min(rises), max(rises)

    def observe(self, rows: float, error: float | None, *, learn: bool) -> None:
        """A forward of so many rows was seen; its error moves the shape there where `learn` says so, and tells how far
        errors scatter. None for one that says nothing, because a drafter worked beside it."""
        self._recent = [(1 - RUNNING_SHARE) * share for share in self._recent]
        below = max(0, bisect_right(self._numbers, rows) - 1)
        beyond = self._between(below, rows)
        for place, share in ((below, 1 - beyond), (below + 1, beyond)):
            if share:
                if error is not None:
                    self._correct(place, error, share * learn)
                self._recent[place] += RUNNING_SHARE * share

    def _correct(self, place: int, error: float, share: float) -> None:
        """Move a measured number's cost, and half as far those beside it of which less is known.

        An error tells this number from the others as far as the level comes from others: where all steps are alike,
        nothing is learnt about the shape, and noise must not be taken for it.
        """
        mine = self.shape[place]
        change = mine.observe(error, share * (1 - self._recent[place]))
        for beside in (place - 1, place + 1):
            if 0 <= beside < len(self._numbers) and self.shape[beside].variance > mine.variance:
                self.shape[beside].value += change / 2

    def _between(self, below: int, rows: float) -> float:
        """How far `rows` lies from the measured number `below` to the next, 0 to 1."""
        if below + 1 >= len(self._numbers):
            return 0.0
        low, high = self._places[below], self._places[below + 1]
        return (self._place(rows) - low) / (high - low)

    def tabulate(self) -> None:
        """Take up what was observed: straight lines between the measured numbers, and the last slope beyond."""
        known = rising([s * math.exp(shape.value) for s, shape in zip(self._measured, self.shape, strict=True)])
        slope = (known[-1] - known[-2]) / (self._places[-1] - self._places[-2]) if len(known) > 1 else 0.0
        table = np.interp(self._scale, self._places, known) + slope * np.maximum(self._scale - self._places[-1], 0.0)
        self._table, self._rise_table = table[:-1], np.diff(table)
        self._list, self._rises = self._table.tolist(), self._rise_table.tolist()


class RowWeights:
    """What rows count as, in rows like those that were measured: 1 in a dense model, and in a mixture of experts as
    much as they newly read.

    A guess that follows another one, one beside another at the same position and another request's row share
    different parts of what the rest of the forward reads. How much, forwards tell that count the experts that they met
    (a normalised least mean square, which divides what was not expected among those that were there).

    Source of what a count says: every expert is missed by r independent rows with the chance q^r, q = 1 - k/E, so that
    the number of those that no row met is nearly a Poisson one. It is as good a measurement of r as the expected number
    m is large: its variance is 1 / (m log(q)^2). Where nearly all are met, a count says next to nothing.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._routing = costs.routing
        self._unit = unit = 1 - costs.alike
        further = costs.routing.further
        # Requests are strangers, as the measured rows are; siblings are thought to lie in the middle
        self._weights = np.array([unit, further, (unit + further) / 2])  # of a request, of a level, of a sibling
        self._seen = np.zeros_like(self._weights)
        self._refresh()

    def _refresh(self) -> None:
        self._request, self._level, self._sibling = map(float, self._weights / self._unit)

    def rows(self, requests: int) -> float:
        """Of so many requests without drafts."""
        return 1 + (requests - 1) * self._request

    def nodes(self, nodes: Any, levels: Any) -> Any:
        """Of drafts of so many nodes on so many levels; numbers or arrays."""
        return self._sibling * nodes + (self._level - self._sibling) * levels

    def observe(self, requests: int, nodes: int, levels: int, experts: int | None) -> bool:
        """A forward of these met so many experts, all layers together. Returns whether anything was learnt."""
        if experts is None or self._routing.dense:
            return False
        met = np.array([requests - 1, levels, nodes - levels])
        if not met.any():
            return False
        missing = self._missing(1 + float(self._weights @ met), experts)
        share = np.where(met > 0, np.maximum(RUNNING_SHARE, 1 / (1 + self._seen)), 0.0)
        self._weights = np.clip(self._weights + share * missing * met / (met @ met), PRECISION, 1.0)
        self._seen += met > 0
        self._refresh()
        return True

    def _missing(self, expected: float, experts: int) -> float:
        """Independent rows that a forward had beyond the expected ones, as far as its count is believed: a Kalman
        filter's step, where the expectation is trusted to a row."""
        all_layers = self._routing.layers * self._routing.experts
        slope = -math.log1p(-self._routing.chosen / self._routing.experts)
        unmet = all_layers * math.exp(-slope * expected)
        return slope * (unmet - max(0, all_layers - experts)) / (1 + unmet * slope**2)


class Beside:
    """What drafting beside the target's forward saves and costs, learnt from the steps of one source.

    A source that always drafts in turn has neither. cost: of a profile.
    """

    def __init__(self, cost: DraftCost) -> None:
        self.hidden = cost.hidden
        """The share of its drafting that is not waited for, where it drafts ahead."""
        self.log_slowing = math.log1p(cost.slowing)
        """The logarithm of how many times as long a forward takes while the source drafts beside it."""
        self._drafts = self._forwards = 0
        self._recent = 0.0  # share of the steps from which the level of all costs was learnt

    @property
    def slowing(self) -> float:
        """How much longer a forward takes then, as a share."""
        return math.expm1(self.log_slowing)

    def observe_draft(self, waited: float) -> None:
        """A draft that could have been made ahead was waited for, this share of its seconds in turn."""
        self.hidden += running_share(self._drafts) * (1 - min(1.0, max(0.0, waited)) - self.hidden)
        self._drafts += 1

    def observe_forward(self, beside: bool, error: float) -> None:
        """A forward's error. Where all forwards have a drafter beside them, the level of all costs has taken that up,
        and nothing is learnt about this source."""
        self._recent *= 1 - RUNNING_SHARE
        if beside:
            change = running_share(self._forwards) * (1 - self._recent) * error
            self.log_slowing = max(0.0, clipped(self.log_slowing + change))
            self._forwards += 1
            self._recent += RUNNING_SHARE
