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

Everything is in logarithms and broadcasts over leading axes. Shapes: D alternatives, W windows.
"""

from __future__ import annotations

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
