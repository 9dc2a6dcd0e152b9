"""What a simulated run cost and gained: tokens per round, acceptance by position, speedup, with standard errors.

A run keeps counts, not costs, so the same run answers for every c and v. Streams are independent, so the spread between
them is where the standard errors come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headstart.base.options import check_number
from headstart.learn.simulate.distributions import Floats, Ints
from headstart.theory import VerifyCost, verify_cost


class Estimate(NamedTuple):
    """A simulated figure and its standard error (nan with a single stream)."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.standard_error:.3f}"


@dataclass(frozen=True, eq=False)
class Run:
    """What a speculative simulation counted.

    rounds: of each stream.
    emitted: [B], tokens by stream.
    draft_steps: [B], draft forwards by stream.
    verified: [B, most + 1], rounds by the number of drafted tokens.
    lengths: [most + 1, most + 1], rounds of all streams, by tokens drafted and accepted.
    tokens: [B, n], the text's first n tokens, if they were asked for.
    calls: contexts that target and draft were asked about.
    """

    rounds: int
    emitted: Ints
    draft_steps: Ints
    verified: Ints
    lengths: Ints
    tokens: Ints
    calls: tuple[int, int]

    @property
    def streams(self) -> int:
        return len(self.emitted)

    @property
    def tokens_per_round(self) -> Estimate:
        """tau: tokens per target forward."""
        return ratio_of_sums(self.emitted.astype(np.float64), np.full(self.streams, float(self.rounds)))

    @property
    def offered(self) -> Ints:
        """[most]: rounds in which token i + 1 was drafted and all before it accepted, so that its fate is known."""
        k, kept = np.indices(self.lengths.shape)
        return np.array(
            [self.lengths[(k > i) & (kept >= i)].sum() for i in range(len(self.lengths) - 1)], dtype=np.int64
        )

    @property
    def accepted(self) -> Ints:
        """[most]: rounds in which token i + 1 was accepted."""
        by_kept = self.lengths.sum(axis=0)
        return np.asarray(by_kept[::-1].cumsum()[::-1][1:], dtype=np.int64)

    @property
    def acceptance(self) -> tuple[Estimate, ...]:
        """By position, given that everything before was accepted; positions never offered are left out."""
        found = []
        for hits, tries in zip(self.accepted.tolist(), self.offered.tolist(), strict=True):
            if tries:
                share = hits / tries
                found.append(Estimate(share, math.sqrt(share * (1 - share) / tries)))
        return tuple(found)

    @property
    def mean_k(self) -> float:
        """Mean length of a draft."""
        return float(self.lengths.sum(axis=1) @ np.arange(len(self.lengths)) / self.lengths.sum())

    def cost(self, c: float = 0.1, v: VerifyCost = None) -> Floats:
        """[B] in plain steps: what each stream's rounds cost. c: of a draft step; v: of a verification by rows."""
        check_number("c", c, low=0)
        rows = np.asarray(verify_cost(v, np.arange(1, self.verified.shape[1] + 1)), dtype=np.float64)
        total: Floats = self.verified @ rows + c * self.draft_steps
        return total

    def speedup(self, c: float = 0.1, v: VerifyCost = None) -> Estimate:
        """Speedup over the baseline: tokens over cost, in plain steps, as in `headstart.theory.speedup`."""
        return ratio_of_sums(self.emitted.astype(np.float64), self.cost(c, v))


def ratio_of_sums(gains: Floats, costs: Floats) -> Estimate:
    """sum(gains) / sum(costs) over independent streams [B]; standard error by linearisation (the delta method)."""
    ratio = float(gains.sum() / costs.sum())
    if len(gains) < 2:
        return Estimate(ratio, math.nan)
    spread = float(np.std(gains - ratio * costs, ddof=1))
    return Estimate(ratio, spread / (math.sqrt(len(gains)) * float(costs.mean())))
