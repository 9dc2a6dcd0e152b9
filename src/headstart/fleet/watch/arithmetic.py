"""Differences and sums of a counted field, of whatever type it is: a number, numbers by position, a histogram, None."""

from __future__ import annotations

from typing import Any

from headstart.fleet.watch.histograms import Histogram


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
