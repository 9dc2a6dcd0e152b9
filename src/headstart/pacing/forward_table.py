"""What a forward of the target costs by its rows: a few measured numbers, corrected where steps show another shape."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.pacing.learning import LEARNING, Correction, Scatter
from headstart.theory.costs import rising

TABLE_ROWS = 64
"""Forwards of up to so many rows are looked up; beyond, costs are a straight line."""


class ForwardTable:
    """Seconds of a forward by its number of rows, without the level that all costs share.

    Args:
        rows: (number, seconds) as measured, smaller numbers first.
    """

    def __init__(self, rows: Sequence[tuple[int, float]]) -> None:
        self._numbers = [n for n, _ in rows]
        self._measured = rising([seconds for _, seconds in rows])
        scatter = Scatter()
        self._log_shape = [Correction(LEARNING.doubt, scatter) for _ in self._numbers]
        self._recent = [0.0] * len(self._numbers)  # their share of the steps from which the level was learnt
        self.tabulate()

    @property
    def doubt_of_one_row(self) -> float:
        """Variance of what a forward of one row costs, as a logarithm."""
        return self._log_shape[0].variance

    @property
    def doubt_of_short_drafts(self) -> float:
        """The same of the fewest rows above one that were measured."""
        return self._log_shape[min(1, len(self._log_shape) - 1)].variance

    def seconds(self, rows: float) -> float:
        """Rows may be an expectation."""
        below = min(int(rows), TABLE_ROWS)
        slope = self._slope if below == TABLE_ROWS else self._rises[below]
        found: float = self._list[below] + (rows - below) * slope
        return found

    def seconds_of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The same for many numbers of rows at once."""
        below = np.minimum(rows.astype(int), TABLE_ROWS)
        found: NDArray[Any] = self._table[below] + (rows - below) * self._rise_table[below]
        return found

    def further(self, rows: int, nodes: NDArray[Any]) -> NDArray[Any]:
        """Seconds that so many nodes more than `rows` rows add to a forward."""
        if rows + int(nodes[-1]) <= TABLE_ROWS:
            found: NDArray[Any] = self._table[rows + nodes] - self._list[rows]
            return found
        return self.seconds_of(rows + nodes) - self.seconds(rows)

    def observe(self, rows: int, error: float | None, *, learn: bool) -> None:
        """A forward of so many rows was seen; its error, in logarithms, moves the shape there where `learn` says so,
        and tells how far errors scatter. None for one that says nothing, because a drafter worked beside it."""
        self._recent = [(1 - LEARNING.level_step) * share for share in self._recent]
        below = max(0, bisect_right(self._numbers, rows) - 1)
        beyond = self._between(below, rows)
        for place, share in ((below, 1 - beyond), (below + 1, beyond)):
            if share:
                if error is not None:
                    self._correct(place, error, share * learn)
                self._recent[place] += LEARNING.level_step * share

    def _correct(self, place: int, error: float, share: float) -> None:
        """Move a measured number's cost, and less far those beside it of which less is known.

        An error tells this number from the others as far as the level comes from others: where all steps are alike,
        nothing is learnt about the shape, and noise must not be taken for it.
        """
        mine = self._log_shape[place]
        change = mine.observe(error, share * (1 - self._recent[place]))
        for beside in (place - 1, place + 1):
            if 0 <= beside < len(self._numbers) and self._log_shape[beside].variance > mine.variance:
                self._log_shape[beside].value += change / 2

    def _between(self, below: int, rows: int) -> float:
        """How far `rows` lies from the measured number `below` to the next, 0 to 1."""
        if below + 1 >= len(self._numbers):
            return 0.0
        low, high = self._numbers[below], self._numbers[below + 1]
        return (rows - low) / (high - low)

    def tabulate(self) -> None:
        """Take up what was observed: straight lines between the measured numbers, and the last slope beyond."""
        known = rising([s * math.exp(shape.value) for s, shape in zip(self._measured, self._log_shape, strict=True)])
        self._slope = (known[-1] - known[-2]) / (self._numbers[-1] - self._numbers[-2]) if len(known) > 1 else 0.0
        rows = np.arange(TABLE_ROWS + 1)
        table = np.interp(rows, self._numbers, known) + self._slope * np.maximum(0, rows - self._numbers[-1])
        self._table, self._list = table, table.tolist()
        self._rise_table = np.append(np.diff(table), self._slope)
        self._rises = self._rise_table.tolist()
