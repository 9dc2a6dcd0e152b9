"""What counters count: histograms with bounds of their quantiles, and differences and sums of any counted field."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
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
    if isinstance(now, tuple):
        padded = (*now, *[0] * (len(before) - len(now)))
        return any(one < other for one, other in zip(padded, before, strict=False))
    return bool(now < before)


def since(now: Any, before: Any) -> Any:
    if now is None or before is None:
        return now
    if isinstance(now, tuple):
        padded = (*before, *[0] * (len(now) - len(before)))
        return tuple(one - other for one, other in zip(now, padded, strict=True))
    return now - before


def together(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, tuple):
        length = max(len(one), len(other))
        rows = [(*row, *[0] * (length - len(row))) for row in (one, other)]
        return tuple(map(sum, zip(*rows, strict=True)))
    return one + other
