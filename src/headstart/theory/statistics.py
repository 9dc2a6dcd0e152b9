"""Intervals for what is measured: a value is never shown without how far off it may be. NumPy only.

An interval that cannot be known (one prompt has no scatter) has NaN as its ends: no interval is better than a wrong
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number

_NORMAL = NormalDist()
_MANY = 300  # degrees of freedom from which on Student's distribution is the normal one, to three digits
_HALVINGS = 80


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and the ends of its confidence interval, NaN where unknown."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def known(self) -> bool:
        """Whether there is an interval, not only a value."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def times(self) -> str:
        """A ratio in words, "1.62x (1.51 to 1.74)"; the value alone where no interval is known."""
        return f"{self.value:.2f}x" + (f" ({self.low:.2f} to {self.high:.2f})" if self.known else "")


def bootstrap(
    values_by_unit: Sequence[Any] | NDArray[Any],
    statistic: Callable[[Any], float],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    scale: Literal["linear", "log"] = "linear",
) -> Interval:
    """The statistic of all units, and where it would lie for other units of the same kind.

    A unit is what was drawn independently: a prompt with all its runs, so that whatever is compared stays paired.
    `statistic` takes the units, or as many of them drawn with replacement: an array [units, ...] if they make one, else
    a list. scale: "log" for ratios, which then stay above 0.

    Few units make percentile intervals too short, so two corrections are taken and the outer ends kept: the percentiles
    widened as Student's distribution is wider than the normal one, and Student's own interval with the bootstrap's
    standard error (Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, sections 3.4 and 5.1). Fewer than
    two units, or a statistic that is mostly not finite, have no interval.
    """
    check_number("level", level, above=0)
    check_number("resamples", resamples, low=1, integer=True)
    if level >= 1:
        raise InvalidOption(f"level={level} is not below 1", hint="a level is a probability, for example 0.95")
    units = _as_units(values_by_unit)
    count = len(units)
    if not count:
        return Interval(math.nan)
    value = float(statistic(units))
    if count == 1 or not math.isfinite(value):
        return Interval(value)
    drawn = np.random.default_rng(seed).integers(0, count, (resamples, count))
    found = np.array([statistic(_pick(units, chosen)) for chosen in drawn], dtype=float)
    middle = value
    if scale == "log":
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(found)
        middle = math.log(value) if value > 0 else math.nan
    found = found[np.isfinite(found)]
    if 2 * len(found) < resamples or not math.isfinite(middle):
        return Interval(value)
    low, high = _ends(middle, found, count, level)
    return Interval(value, math.exp(low), math.exp(high)) if scale == "log" else Interval(value, low, high)


def proportion(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Wilson's score interval of a chance, for independent trials; without trials it may be anything (value NaN).

    Source: Wilson, "Probable inference", 1927.
    """
    if not 0 <= successes <= trials:
        raise InvalidOption(f"{successes} of {trials} is no proportion", hint="successes are 0 to the number of trials")
    if not trials:
        return Interval(math.nan, 0.0, 1.0)
    share, z = successes / trials, _NORMAL.inv_cdf((1 + level) / 2)
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # At the borders the ends are exact; rounding must not leave the value outside
    return Interval(share, max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share)))


def quantile(values: Sequence[float] | NDArray[Any], share: float) -> float:
    """The value that `share` of the values lie below, straight lines between them; NaN where there are none."""
    return float(np.quantile(np.asarray(values, dtype=float), share)) if len(values) else math.nan


def bisect(
    rising: Callable[[float], float], value: float, low: float, high: float, halvings: int = _HALVINGS
) -> tuple[float, float]:
    """The ends of the short interval in which a rising function reaches the value, found between low and high."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return low, high


def student(freedom: int, probability: float) -> float:
    """The quantile of Student's distribution with so many degrees of freedom.

    Its distribution is a finite sum for whole degrees (Abramowitz and Stegun 26.7.3 and 26.7.4), turned by halving.
    """
    if freedom >= _MANY:
        return _NORMAL.inv_cdf(probability)
    if probability < 0.5:
        return -student(freedom, 1 - probability)
    angle, _ = bisect(lambda angle: _within(angle, freedom), 2 * probability - 1, 0.0, math.pi / 2)
    return math.sqrt(freedom) * math.tan(angle)


def _within(angle: float, freedom: int) -> float:
    """The chance that |T| is at most sqrt(freedom) * tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * power / (power + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _ends(value: float, found: NDArray[Any], count: int, level: float) -> tuple[float, float]:
    wider = math.sqrt(count / (count - 1))
    t = student(count - 1, (1 + level) / 2)
    tail = _NORMAL.cdf(-wider * t)
    low, high = np.quantile(found, [tail, 1 - tail])
    reach = t * wider * float(np.std(found))
    return min(float(low), value - reach), max(float(high), value + reach)


def _as_units(values: Sequence[Any] | NDArray[Any]) -> Sequence[Any] | NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):  # ragged, or not numbers
        return list(values)
    return array


def _pick(units: Sequence[Any] | NDArray[Any], chosen: NDArray[Any]) -> Any:
    return units[chosen] if isinstance(units, np.ndarray) else [units[i] for i in chosen]
