"""What happened since a fall seems to have begun."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart.fleet.watch.drift.evidence import Floats


class Recent:
    """Counts since a CUSUM was last 0, for R rows of C cells: the likeliest beginning of a fall, if there is one."""

    def __init__(self, sums: Floats, began: Floats, tested: Floats, accepted: Floats) -> None:
        self.sums, self.began, self.tested, self.accepted = sums, began, tested, accepted

    @classmethod
    def empty(cls, rows: int, cells: int, window: int) -> Recent:
        """Nothing yet, as of this window."""
        return cls(np.zeros(rows), np.full(rows, float(window)), np.zeros((rows, cells)), np.zeros((rows, cells)))

    def follow(self, growth: Floats, tested: Floats, accepted: Floats, held: Any, window: int) -> None:
        """growth [R], counts [R, C], held [R]: which rows had a window at all."""
        fresh = held & (self.sums <= 0)
        self.began[fresh] = window
        self.tested[fresh], self.accepted[fresh] = 0, 0
        self.sums = np.where(held, np.maximum(self.sums, 0) + growth, self.sums)
        self.tested += tested
        self.accepted += accepted

    def record(self) -> list[Any]:
        """As values of JSON."""
        return [self.sums.tolist(), self.began.tolist(), self.tested.tolist(), self.accepted.tolist()]

    @classmethod
    def restored(cls, record: Sequence[Any], rows: int, cells: int) -> Recent:
        """Raises TypeError or ValueError where a record is damaged."""
        sums, began, tested, accepted = record
        counts = (rows, cells)
        return cls(
            array_of(sums, (rows,)), array_of(began, (rows,)), array_of(tested, counts), array_of(accepted, counts)
        )


def array_of(values: Any, shape: tuple[int, ...], *, bounded: bool = True) -> Floats:
    """The array of a record, or ValueError for another shape or what is no number."""
    found = np.array(values, dtype=float)
    if found.size != math.prod(shape) or np.isnan(found).any() or (bounded and np.isinf(found).any()):
        raise ValueError("an array of another shape, or of what is no number")
    return found.reshape(shape)
