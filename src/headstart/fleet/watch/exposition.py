"""A page for Prometheus as values by engine, in the words of `Counters`. Parsed by prometheus-client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.base.extras import how_to_install
from headstart.fleet.watch.dialects import DIALECTS, Dialect
from headstart.fleet.watch.histograms import Histogram

_STARTED = "process_start_time_seconds"
_Row = list[tuple[Mapping[str, str], float]]
"""The samples of one name: (labels, value)."""


def engines(text: str) -> Iterator[dict[str, Any]]:
    """For each engine on the page, the fields of `Counters` that it has.

    Raises:
        EndpointFailed: the text is no page for Prometheus.
        InvalidOption: prometheus-client is not installed.
    """
    samples = _samples(text)
    started = next((value for name, _, value in samples if name == _STARTED), None)
    for dialect in DIALECTS:
        for values in _read_dialect(dialect, samples):
            yield {"started": started, **values}


_Sample = tuple[str, Mapping[str, str], float]


def _samples(text: str) -> list[_Sample]:
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        raise InvalidOption(
            "reading a server's counters needs prometheus-client", hint=how_to_install("serve")
        ) from error
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise EndpointFailed(
            f"the page is no text for Prometheus: {error}", hint="watch reads what a server has under /metrics"
        ) from error
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def _read_dialect(dialect: Dialect, samples: Iterable[_Sample]) -> Iterator[dict[str, Any]]:
    """The engines of one kind of server, in the order of the page."""
    by_engine: dict[tuple[str, str], dict[str, _Row]] = {}
    for name, labels, value in samples:
        if not name.startswith(dialect.prefix):
            continue
        if any(labels.get(label, wanted) != wanted for label, wanted in dialect.only.items()):
            continue
        engine = "" if dialect.engine_label is None else labels.get(dialect.engine_label, "")
        rows = by_engine.setdefault((labels.get("model_name", ""), engine), {})
        rows.setdefault(name.removeprefix(dialect.prefix), []).append((labels, value))
    for (model, engine), rows in by_engine.items():
        values = _values(dialect, rows)
        if "generated" in values:
            counts_drafts = all(name in values for name in ("drafts", "drafted", "accepted"))
            yield {"kind": dialect.kind, "model": model, "engine": engine, "counts_drafts": counts_drafts, **values}


def _values(dialect: Dialect, rows: Mapping[str, _Row]) -> dict[str, Any]:
    """The fields that this engine's rows have a value for."""
    values: dict[str, Any] = {}
    for field_name, names in dialect.totals.items():
        if row := _first(rows, names):
            values[field_name] = round(sum(value for _, value in row))
    for field_name, names in dialect.gauges.items():
        if row := _first(rows, names):
            values[field_name] = float((max if field_name == "kv_usage" else sum)(value for _, value in row))
    for field_name, names in dialect.positions.items():
        if row := _first(rows, names):
            values[field_name] = _by_position(row)
    for field_name, names in dialect.histograms.items():
        for name in names:
            if buckets := rows.get(f"{name}_bucket"):
                values[field_name] = _histogram(buckets, sum(value for _, value in rows.get(f"{name}_sum", ())))
                break
    return values


def _first(rows: Mapping[str, _Row], names: Iterable[str]) -> _Row:
    return next((rows[name] for name in names if name in rows), [])


def _by_position(row: _Row) -> tuple[int, ...]:
    counts: dict[int, float] = {}
    for labels, value in row:
        position = int(labels["position"])
        counts[position] = counts.get(position, 0) + value
    return tuple(round(counts.get(position, 0)) for position in range(max(counts) + 1))


def _histogram(row: _Row, total: float) -> Histogram:
    """From cumulative counts by upper bound, summed over whatever other labels there are."""
    upto: dict[float, float] = {}
    for labels, value in row:
        bound = float(labels["le"])
        upto[bound] = upto.get(bound, 0) + value
    bounds = tuple(sorted(upto))
    counts, below = [], 0.0
    for bound in bounds:
        counts.append(round(upto[bound] - below))
        below = upto[bound]
    if not math.isinf(bounds[-1]):
        bounds, counts = (*bounds, math.inf), [*counts, 0]
    return Histogram(bounds, tuple(counts), total)
