"""Counters as a record of JSON and back, for the file that keeps them between looks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from headstart.base.errors import InvalidFile
from headstart.fleet.watch.counters import Counters
from headstart.fleet.watch.histograms import Histogram

_HINT = "give another file, or remove this one: watch then begins anew"


def record_of(counters: Counters) -> dict[str, Any]:
    """All fields that are not None. Of a histogram's bounds the last, infinite one is left out."""
    return {
        field.name: _plain(value) for field in fields(counters) if (value := getattr(counters, field.name)) is not None
    }


def counters_of(record: Mapping[str, Any]) -> Counters:
    """What `record_of` has written.

    Raises:
        InvalidFile: it has not.
    """
    try:
        return Counters(**{name: _typed(value) for name, value in record.items()})
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidFile(f"kept counters cannot be read: {error}", hint=_HINT) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Histogram):
        return {"bounds": list(value.bounds[:-1]), "counts": list(value.counts), "sum": value.sum}
    return list(value) if isinstance(value, tuple) else value


def _typed(value: Any) -> Any:
    if isinstance(value, dict):
        return Histogram((*value["bounds"], math.inf), tuple(value["counts"]), value["sum"])
    return tuple(value) if isinstance(value, list) else value
