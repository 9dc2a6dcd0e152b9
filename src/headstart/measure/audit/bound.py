"""How far apart, not just whether: a lower bound on the distance between two distributions that cannot be noise."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from headstart.measure.audit.prefixes import Block

HORIZON = 5000.0
"""Positions at which the lower bound is about as tight as it can be made."""


class LowerBound:
    """On the mean total variation between each token's distribution and p.

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
