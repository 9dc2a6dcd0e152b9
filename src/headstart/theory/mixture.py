"""How many experts the rows of a forward meet together: the union that a mixture of experts has to read.

In each of its layers a row chooses k of E experts. Rows that choose independently of each other meet

    D(m) = E (1 - (1 - k/E)^m)

distinct ones on average, and neighbours in a text choose alike. With a correlation rho every further row of a text
counts as 1 - rho of an independent one, so that n rows in a row meet D(1 + (n - 1)(1 - rho)). A dense layer is one
expert that every row chooses: D = 1, however many rows.

Source: the expected number of distinct coupons (the first formula). The second one is a fit: Cohere reports 31% fewer
experts for four tokens of a text than for four independent ones, which is rho = 0.45 where 8 of 128 are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number
from headstart.theory.values import Real, numbers, plain, scalar

RHO = 0.45
"""Correlation of neighbouring tokens' experts where nothing is known of a model."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What the rows of a forward share in each layer that has experts; by default all of it, as in a dense model.

    Raises:
        InvalidOption: more chosen than there are, less than one, or a rho outside [0, 1).
    """

    experts: int = 1
    """E: those that a router chooses from, in one layer."""
    chosen: int = 1
    """k: those that it chooses for a row. An expert that every row meets is none of either."""
    rho: float = RHO
    """How alike neighbours in a text choose: 0 for independent rows."""
    layers: int = 1
    """How many layers have experts."""

    def __post_init__(self) -> None:
        for name in ("experts", "chosen", "layers"):
            check_number(name, getattr(self, name), low=1, integer=True)
        check_number("rho", self.rho, low=0, high=1)
        if self.chosen > self.experts:
            raise InvalidOption(
                f"{self.chosen} of {self.experts} experts cannot be chosen", hint="chosen is at most experts"
            )
        if self.rho == 1:
            raise InvalidOption("rho=1: all rows would meet the same experts", hint="rho is below 1")

    @property
    def dense(self) -> bool:
        """Whether further rows meet nothing new."""
        return self.chosen == self.experts

    @property
    def further(self) -> float:
        """Independent rows that one more row of a text counts as."""
        return 1.0 if self.dense else 1.0 - self.rho

    def union(self, independent: ArrayLike) -> Real:
        """D(m): distinct experts in a layer of so many independent rows."""
        rows = numbers("rows", independent, low=0)
        return plain(self.experts * (1 - (1 - self.chosen / self.experts) ** rows))

    def strangers(self, rows: ArrayLike, batch: ArrayLike = 1) -> Real:
        """Independent rows that so many neighbours of each of `batch` texts count as: texts have nothing in common."""
        return plain(numbers("batch", batch, low=1) * (1 + (numbers("rows", rows, low=1) - 1) * self.further))

    def distinct(self, rows: ArrayLike, batch: ArrayLike = 1) -> Real:
        """D of so many neighbours of each of `batch` texts."""
        return self.union(self.strangers(rows, batch))

    def reading(self, rows: ArrayLike, share: float, batch: ArrayLike = 1) -> Real:
        """Bytes of weights that a forward reads, over those that one row reads: 1 - share + share D / k, which is v(n)
        where reading is all that takes time.

        share: of the bytes that one row reads, those of its experts.
        """
        share = scalar("share", share, low=0, high=1)
        return plain(1 - share + share * np.asarray(self.distinct(rows, batch)) / self.chosen)

    def independent(self, distinct: float) -> float:
        """How many independent rows meet so many distinct experts in a layer: `union`, the other way round."""
        if self.dense:
            return 1.0
        free = max(1 - distinct / self.experts, 0.5 / (self.layers * self.experts))  # all were met: at least so many
        return float(np.log(free) / np.log(1 - self.chosen / self.experts))


DENSE = Routing()
