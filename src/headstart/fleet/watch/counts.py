"""What counters count: histograms with bounds of their quantiles, and differences and sums of any counted field."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from operator import add, lt, sub
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of a histogram: all that is known is the bucket it lies in."""

    low: float
    """The bucket's lower bound, in the histogram's unit."""
    high: float
    """Its upper bound; infinite in the last bucket."""
    value: float | None
    """By linear interpolation in the bucket, as PromQL's histogram_quantile does it; None in the last bucket."""

    def seconds_in_words(self, *, bounds: bool) -> str:
        """ "24 ms (10-25)", or "over 80 s" where the last bucket is all that is known."""
        if self.value is None:
            return f"over {_seconds(self.low)}"
        if not bounds:
            return _seconds(self.value)
        unit, scale = ("s", 1.0) if self.high >= 1 else ("ms", 1000.0)
        return f"{self.value * scale:.3g} {unit} ({self.low * scale:g}-{self.high * scale:g})"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by bucket, not cumulated."""

    bounds: Annotated[
        tuple[float, ...], PlainSerializer(lambda bounds: bounds[:-1]), BeforeValidator(lambda kept: (*kept, math.inf))
    ]
    """Each bucket's greatest value, ascending; the last one is infinite, and left out of a record of JSON."""
    counts: tuple[int, ...]
    """One for each bound."""
    sum: float
    """Of all values that were counted."""

    @property
    def total(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def quantile(self, level: float) -> Quantile | None:
        """The quantile at a level between 0 and 1; None if nothing was counted."""
        if not self.total:
            return None
        rank = level * self.total
        upto = list(accumulate(self.counts))
        place = next(place for place, count in enumerate(self.counts) if count and upto[place] >= rank)
        low = self.bounds[place - 1] if place else min(0.0, self.bounds[0])
        high = self.bounds[place]
        inside = max(0.0, rank - (upto[place] - self.counts[place])) / self.counts[place]
        return Quantile(low, high, None if math.isinf(high) else low + (high - low) * inside)

    def fell_since(self, before: Histogram) -> bool:
        """Whether a bucket holds less than it did, or the buckets are others: the server was started again."""
        return self.bounds != before.bounds or any(
            now < then for now, then in zip(self.counts, before.counts, strict=True)
        )

    def __sub__(self, before: Histogram) -> Histogram:
        """What was counted since. Both have the same buckets."""
        counts = tuple(one - other for one, other in zip(self.counts, before.counts, strict=True))
        return Histogram(self.bounds, counts, self.sum - before.sum)

    def __add__(self, other: Histogram) -> Histogram | None:
        """Both together; None if their buckets differ, since their counts cannot be added then."""
        if self.bounds != other.bounds:
            return None
        counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds, counts, self.sum + other.sum)


def fell(now: Any, before: Any) -> bool:
    if now is None or before is None:
        return before is not None  # a counter that was there and is gone
    if isinstance(now, Histogram):
        return now.fell_since(before)
    return any(_each(lt, now, before)) if isinstance(now, tuple) else bool(now < before)


def since(now: Any, before: Any) -> Any:
    return now if now is None or before is None else _each(sub, now, before)


def together(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one if other is None else other
    return _each(add, one, other)


def _each(operation: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """The operation on two values, or position by position; a position that one of them lacks is 0 there."""
    if isinstance(one, tuple):
        return tuple(operation(*pair) for pair in zip_longest(one, other, fillvalue=0))
    return operation(one, other)
