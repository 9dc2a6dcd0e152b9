"""How far apart, not just whether: total variation with its noise floor, and a lower bound that cannot be noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.insight.audit.laws import Block, Place, Places

CELL = 5.0
"""Expected completions below which a beginning is not told apart any further."""
FLOORS = 400
"""Samples drawn from p for a noise floor."""
HORIZON = 5000.0
"""Positions at which the lower bound is about as tight as it can be made."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Total variation between how completions began and how they should have, and what p itself would have shown.

    depth: tokens looked at together. completions: n of them. measured: half the sum over `cells` beginnings of
    |share - probability|. floor, floor_95: mean and 95% quantile of the same for n draws from p. A distance below
    floor_95 is nothing; one above it is about measured - floor off, at least.
    """

    ask: int
    depth: int
    completions: int
    cells: int
    measured: float
    floor: float
    floor_95: float

    def record(self) -> dict[str, Any]:
        return {name: round(value, 5) if isinstance(value, float) else value for name, value in asdict(self).items()}


def distance_of(
    places: Places, ask: int, texts: Sequence[tuple[int, ...]], depth: int, generator: np.random.Generator
) -> Distance | None:
    """Of the first `depth` tokens of one ask's completions; None without any, or where depth adds nothing.

    A beginning that p expects fewer than `CELL` times is one cell, however it goes on. That depends on p and n alone,
    so the floor is that of the same cells.
    """
    if not texts:
        return None
    cells = _Cells(places, ask, len(texts), depth)
    if depth > 1 and cells.deepest < depth:
        return None
    observed = Counter(cells.of(text) for text in texts)
    p = np.array([*cells.p, 0.0] if None in observed else cells.p)
    counts = np.array([observed.get(cell, 0) for cell in range(len(cells.p))], dtype=np.float64)
    if None in observed:
        counts = np.append(counts, observed[None])
    floors = np.abs(generator.multinomial(len(texts), p / p.sum(), FLOORS) / len(texts) - p).sum(1) / 2
    measured = float(np.abs(counts / len(texts) - p).sum() / 2)
    return Distance(ask, depth, len(texts), len(p), measured, float(floors.mean()), float(np.quantile(floors, 0.95)))


class _Cells:
    """The beginnings of an ask's completions, as a partition. p[cell]: its probability."""

    def __init__(self, places: Places, ask: int, count: int, depth: int) -> None:
        self.p: list[float] = []
        self.deepest = 0
        self._cells: dict[tuple[tuple[int, ...], int], int] = {}
        self._places = places
        self._ask = ask
        self._count = count
        self._depth = depth
        root = places.find(ask, ())
        assert root is not None, "no completion of this ask has been read"
        self._split(root)

    def of(self, text: tuple[int, ...]) -> int | None:
        """The cell that a completion lies in; None for one that ended where others go on."""
        at: tuple[int, ...] = ()
        for token in text:
            place = self._places.find(self._ask, at)
            assert place is not None, "a cell was split where no place is known"
            which = place.class_of(token)
            if (cell := self._cells.get((at, which))) is not None:
                return cell
            at = (*at, token)
        return None

    def _split(self, place: Place) -> None:
        self.deepest = max(self.deepest, len(place.tokens) + 1)
        for which, p in enumerate(place.p):
            below = self._below(place, which, float(p))
            if below is None:
                self._cells[place.tokens, which] = len(self.p)
                self.p.append(place.mass * float(p))
            else:
                self._split(below)

    def _below(self, place: Place, which: int, p: float) -> Place | None:
        deep = len(place.tokens) + 1 >= self._depth
        if deep or which >= len(place.ids) or place.mass * p * self._count < CELL:
            return None
        return self._places.find(self._ask, (*place.tokens, int(place.ids[which])))


class LowerBound:
    """On the mean total variation between each token's law and p.

    At each position the richest bettor names a set A of tokens, from the past; P(A) - p(A) is at most the distance of
    P from p there, and 1[x in A] - p(A) has that mean. Its sum is bounded below at all times at once by a mixture
    (Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence
    sequences", section 3.2): each term lies in an interval of length 1, so it is sub-Gaussian with variance 1/4.
    """

    def __init__(self, level: float) -> None:
        self._level = level
        self._sum = 0.0
        self._positions = 0

    def add(self, block: Block, favoured: NDArray[np.bool_]) -> None:
        """favoured: [n, C], the sets A, chosen before the block was drawn."""
        hits = favoured[np.arange(len(block)), block.drawn]
        self._sum += float(hits.sum() - (block.p * favoured).sum())
        self._positions += len(block)

    @property
    def mean(self) -> float:
        """Of 1[x in A] - p(A): an estimate that is unbiased for a part of the distance."""
        return self._sum / max(self._positions, 1)

    @property
    def value(self) -> float:
        """The distance is at least this much, at confidence 1 - level, at whatever time one stops; at least 0."""
        if not self._positions:
            return 0.0
        variance, prior = self._positions / 4, HORIZON / 4 / 8
        width = math.sqrt((variance + prior) * math.log((variance + prior) / (prior * self._level**2)))
        return max((self._sum - width) / self._positions, 0.0)
