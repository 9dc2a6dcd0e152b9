"""Evidence that acceptance has fallen, grown window by window: the arithmetic of an e-detector.

A window is bet on with the likelihood ratio of "the acceptance is q" against "it is m", to a power below 1:

    growth = ((q/m)^x ((1-q)/(1-m))^(1-x))^w        x = accepted / tested,   w = tested / spread

If the tests fall into groups that are independent of each other, hold at most `spread` tests each and have a mean share
X of at least m, the growth's mean is at most 1, whatever the dependence inside a group: for one of s * spread tests,
E exp(-l s X) <= (E exp(-l X))^s <= (1 - m + m exp(-l))^s, by Jensen's inequality and by convexity. With spread = 1 that
is the ordinary likelihood ratio of independent tests; with spread = tested, a bet on one observation in [0, 1] of which
only the mean is assumed; in between, the likelihood ratio of as many tests as the window is worth.

The product of growths since a window is an e-process that began there; their sum over all beginnings is the
Shiryaev-Roberts e-detector, M <- growth * (M + start). Where no growth has a mean above 1, E M grows by at most the
start in a window, so the mean number of windows until M first reaches A is at least A (Shin, Ramdas and Rinaldo 2023,
"E-detectors: a nonparametric framework for sequential change detection", theorem 2.4). A sum of such M whose starts sum
to 1 in each window has that property too: several cells and several q need no further correction.

Everything is in logarithms and broadcasts over leading axes, so that many streams are simulated by the code that
watches one: `Fit` is what windows were like while they were learnt from, and `Bets` are those on later ones, cell by
cell and on the whole. Shapes: C cells, W windows, L levels, D alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

DROPS = np.array([0.03, 0.06, 0.12, 0.25, 0.5])
"""The alternatives: by how much acceptance lies under the level that is tested, as a share of it."""
ALIKE = 0.9
"""Neighbours are not taken to be more alike than that: a few windows cannot tell."""
CONFIDENCE = 0.95
"""Chance that the spread, where windows are alike, is not estimated too small."""
_LOWEST, _HIGHEST = 1e-6, 0.999
"""Levels are tested within these: near 1 a single rejected guess would be proof, near 0 nothing can fall."""


def log_growth(tested: ArrayLike, accepted: ArrayLike, null: ArrayLike, weight: ArrayLike) -> Floats:
    """[..., D]: the log of what a window multiplies each alternative's evidence by; 0 where nothing was tested.

    Args:
        tested: guesses that were tested.
        accepted: of them.
        null: the least mean acceptance that is not an alarm.
        weight: how many independent tests the window is worth.
    """
    tested, accepted = np.asarray(tested, float), np.asarray(accepted, float)
    m = np.clip(np.asarray(null, float), _LOWEST, _HIGHEST)[..., None]
    share = (accepted / np.maximum(tested, 1))[..., None]
    fall = np.log1p(-DROPS)
    rise = np.log1p(m * DROPS / (1 - m))  # log((1-q)/(1-m)) with q = m(1-d)
    growth: Floats = np.asarray(weight, float)[..., None] * (share * fall + (1 - share) * rise)
    return np.where((tested > 0)[..., None], growth, 0.0)


def carried(logs: Floats, growth: Floats, start: ArrayLike) -> Floats:
    """log(growth * (M + start)) from log M: one window further. start: of this window's beginning, not a logarithm."""
    with np.errstate(divide="ignore"):
        found: Floats = growth + np.logaddexp(logs, np.log(np.asarray(start, float)))
    return found


def spread(scores: ArrayLike, scales: ArrayLike) -> tuple[Any, Any]:
    """How many times the variance of many windows' acceptance is that of independent tests, on the safe side, >= 1; and
    which part of that comes from neighbours that are alike.

    The first is an upper confidence bound of the variance of single windows, times the second: requests last longer
    than a window, and text changes slowly. The second is (1 + r) / (1 - r), with r the correlation of neighbours and a
    standard error more. Both are corrected for what a mean that is estimated from the same few windows hides.

    Args:
        scores: [..., W], accepted guesses less those expected.
        scales: [..., W], their variance if tests were independent.
    """
    scores, scales = np.asarray(scores, float), np.asarray(scales, float)
    held = scales > 0
    windows = np.maximum(held.sum(-1), 2)
    freedom = windows - 1
    standard = np.divide(scores, np.sqrt(scales), out=np.zeros_like(scores), where=held)
    squares = (standard**2).sum(-1)
    neighbours = (standard[..., 1:] * standard[..., :-1]).sum(-1)
    r = np.divide(neighbours, squares, out=np.zeros_like(squares), where=squares > 0)
    r = r + (1 + 4 * np.maximum(r, 0)) / windows  # short series hide correlation (Kendall 1954)
    r = np.clip(r + np.sqrt(np.maximum(1 - r**2, 0) / windows), 0, ALIKE)
    alike = (1 + r) / (1 - r)
    hidden = np.maximum(1 - alike / windows, 1 / 3)
    return np.maximum(1.0, squares / freedom / _low_chi_square(freedom) * alike / hidden), alike


def _low_chi_square(freedom: Any) -> Any:
    """The low quantile of chi-square over its degrees of freedom (Wilson and Hilferty 1931)."""
    part = 2 / (9 * freedom)
    return np.maximum(1 - part + NormalDist().inv_cdf(1 - CONFIDENCE) * np.sqrt(part), 0.05) ** 3


ERRORS = 3.0
"""The lower end of a learnt baseline lies so many standard errors under it, so that all of some twenty cells are right
with a chance of 97%."""

LEAST_WINDOWS = 8
"""Independent windows that are learnt from at least."""
PATIENCE = (1, 2, 4)
"""How many times as long as asked it may take to have them; after the last, what there is must do."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Learnt from windows. Without leading axes: [C], and a number for the whole."""

    value: Floats
    """Acceptance; never quite 0 or 1, which would leave no room for chance."""
    error: Floats
    """Its standard error."""
    spread: Floats
    """How many tests count as one."""
    most: Floats
    """The most tests in a window: later windows do not count for more."""
    whole_spread: Floats
    whole_most: Floats
    """In units of variance."""
    whole_alike: Floats
    """How many neighbouring windows say as much as one."""

    def settled(self, windows: int) -> bool | NDArray[np.bool_]:
        """Whether so many windows were enough: where neighbours are alike, few of them are one and the same request."""
        return np.asarray(self.whole_alike * LEAST_WINDOWS <= windows)

    @property
    def low(self) -> Floats:
        """What acceptance is compared with: the baseline is an estimate, too."""
        return np.maximum(self.value - ERRORS * self.error, 0.0)

    @classmethod
    def of(cls, tested: Floats, accepted: Floats, least_spread: float = 1.0) -> Fit:
        """From counts [..., C, W]. The spread is around the windows' own mean, whatever baseline was given."""
        value = (accepted.sum(-1) + 0.5) / (tested.sum(-1) + 1)
        variance = value * (1 - value)
        scores, scales = accepted - value[..., None] * tested, variance[..., None] * tested
        spreads = np.maximum(spread(scores, scales)[0], least_spread)
        whole, alike = spread(scores.sum(-2), scales.sum(-2))
        return cls(
            value=value,
            error=np.sqrt(spreads * variance / np.maximum(tested.sum(-1), 1)),
            spread=spreads,
            most=tested.max(-1, initial=0.0),
            whole_spread=np.maximum(whole, least_spread),
            whole_most=scales.sum(-2).max(-1, initial=0.0),
            whole_alike=alike,
        )


class Bets:
    """The evidence against each cell's level, `nulls` [..., L, C]: the least mean that is no alarm."""

    def __init__(self, fit: Fit, nulls: Floats) -> None:
        self.fit, self.nulls = fit, nulls
        self.cell_logs = np.full((*nulls.shape, len(DROPS)), -np.inf)
        self.whole_logs = np.full((*nulls.shape[:-1], len(DROPS)), -np.inf)

    def bet(
        self, tested: Floats, accepted: Floats, cell_start: ArrayLike, whole_start: ArrayLike
    ) -> tuple[Floats, Floats]:
        """Bet on a window [..., C]. What was not tested is left as it was.

        Args:
            tested: guesses that were tested.
            accepted: of them.
            cell_start: share of this window's beginning for each cell, a number or [...].
            whole_start: the same for the whole.

        Returns:
            The growth's logarithms, [..., L, C, D] and [..., L, D].
        """
        fit, n, a = self.fit, tested[..., None, :], accepted[..., None, :]
        growth = log_growth(n, a, self.nulls, np.minimum(tested, fit.most)[..., None, :] / fit.spread[..., None, :])
        start = np.asarray(cell_start, dtype=float)[..., None, None, None]
        held = tested[..., None, :, None] > 0
        self.cell_logs = np.where(held, carried(self.cell_logs, growth, start), self.cell_logs)
        scale = (tested * fit.value * (1 - fit.value)).sum(-1)
        share = np.minimum(1.0, fit.whole_most / np.maximum(scale, 1e-9)) / fit.whole_spread
        whole = log_growth(n, a, self.nulls, (tested * share[..., None])[..., None, :]).sum(-2)
        start = np.asarray(whole_start, dtype=float)[..., None, None]
        self.whole_logs = np.where(held.any(-2), carried(self.whole_logs, whole, start), self.whole_logs)
        return growth, whole

    @property
    def logs(self) -> Floats:
        """[..., L, (C + 1) D]: all of them, to be added up."""
        flat = self.cell_logs.reshape(*self.cell_logs.shape[:-2], -1)
        return np.concatenate([flat, self.whole_logs], axis=-1)
