"""A page for Prometheus as values by engine, in the words of `Counters`; it is parsed by prometheus-client.

The names of each kind of server are in `dialects.yaml`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.base.extras import how_to_install
from headstart.fleet.watch.counts import Histogram

_GAUGES = ("running", "waiting", "kv_usage")
"""Fields that are values of the moment."""
_POSITIONS = ("accepted_per_position", "tested_per_position", "drafted_per_position")
"""Fields whose samples have a label `position`, which counts from 0."""
_HISTOGRAMS = ("first_token", "per_token")
"""Fields that are histograms; all others are counters."""

DIALECTS: Mapping[str, Mapping[str, Any]] = {
    kind: dialect
    for kind, dialect in yaml.safe_load(Path(__file__).with_name("dialects.yaml").read_text(encoding="utf-8")).items()
    if not kind.startswith(".")
}
"""The names of each kind of server."""
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
    for kind, dialect in DIALECTS.items():
        for values in _read_dialect(kind, dialect, samples):
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


def _read_dialect(kind: str, dialect: Mapping[str, Any], samples: Iterable[_Sample]) -> Iterator[dict[str, Any]]:
    """The engines of one kind of server, in the order of the page."""
    by_engine: dict[tuple[str, str], dict[str, _Row]] = {}
    for name, labels, value in samples:
        if not name.startswith(dialect["prefix"]):
            continue
        if any(labels.get(label, wanted) != wanted for label, wanted in dialect.get("only", {}).items()):
            continue
        engine = labels.get(dialect.get("engine_label", ""), "")
        rows = by_engine.setdefault((labels.get("model_name", ""), engine), {})
        rows.setdefault(name.removeprefix(dialect["prefix"]), []).append((labels, value))
    for (model, engine), rows in by_engine.items():
        values = _values(dialect["names"], rows)
        if "generated" in values:
            counts_drafts = all(name in values for name in ("drafts", "drafted", "accepted"))
            yield {"kind": kind, "model": model, "engine": engine, "counts_drafts": counts_drafts, **values}


def _values(fields: Mapping[str, str | list[str]], rows: Mapping[str, _Row]) -> dict[str, Any]:
    """The fields that this engine's rows have a value for."""
    values: dict[str, Any] = {}
    for field_name, spelled in fields.items():
        names = [spelled] if isinstance(spelled, str) else spelled
        bucket = "_bucket" if field_name in _HISTOGRAMS else ""
        name = next((name for name in names if rows.get(name + bucket)), None)
        if name is None:
            continue
        row = rows[name + bucket]
        if field_name in _HISTOGRAMS:
            values[field_name] = _histogram(row, sum(value for _, value in rows.get(f"{name}_sum", ())))
        elif field_name in _POSITIONS:
            values[field_name] = _by_position(row)
        elif field_name in _GAUGES:
            values[field_name] = float((max if field_name == "kv_usage" else sum)(value for _, value in row))
        else:
            values[field_name] = round(sum(value for _, value in row))
    return values


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
