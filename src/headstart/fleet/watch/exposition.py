"""A page for Prometheus as values by engine, in the words of `Counters`; it is parsed by prometheus-client.

Sources of the names: headstart's own `serve/metrics.py`; vLLM 0.32 `v1/metrics/loggers.py` and
`v1/spec_decode/metrics.py`; SGLang 0.5.23 `srt/observability/metrics_collector.py`; llama.cpp's server, whose names for
speculation are taken in each of the spellings that are plausible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.base.extras import how_to_install
from headstart.fleet.watch.counts import Histogram


@dataclass(frozen=True, slots=True)
class Dialect:
    """The names of one kind of server."""

    kind: str
    prefix: str
    """What every name begins with, and no name of another kind."""
    names: Mapping[str, tuple[str, ...]]
    """By field of `Counters`, without the prefix: the first of these names that occurs on the page is taken."""
    engine_label: str | None = None
    """The label by which the engines of one server differ, if it has several."""
    only: Mapping[str, str] = field(default_factory=dict)
    """Labels whose other values repeat this one's; samples that have them are left out."""


_GAUGES = ("running", "waiting", "kv_usage")
"""Fields that are values of the moment."""
_POSITIONS = ("accepted_per_position", "tested_per_position", "drafted_per_position")
"""Fields whose samples have a label `position`, which counts from 0."""
_HISTOGRAMS = ("first_token", "per_token")
"""Fields that are histograms; all others are counters."""

_SHARED: Mapping[str, tuple[str, ...]] = {
    "drafts": ("spec_decode_num_drafts_total",),
    "drafted": ("spec_decode_num_draft_tokens_total",),
    "accepted": ("spec_decode_num_accepted_tokens_total",),
    "generated": ("generation_tokens_total",),
    "prompt_tokens": ("prompt_tokens_total",),
    "ended": ("request_success_total",),
    "running": ("num_requests_running",),
    "waiting": ("num_requests_waiting",),
    "kv_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "accepted_per_position": ("spec_decode_num_accepted_tokens_per_pos_total",),
    "first_token": ("time_to_first_token_seconds",),
}
"""Names of vLLM, which headstart has, too."""
HEADSTART = Dialect(
    "headstart",
    "headstart:",
    {
        **_SHARED,
        "counted_forwards": ("target_forwards_total",),
        "tested_per_position": ("spec_decode_num_tested_tokens_per_pos_total",),
        "per_token": ("time_per_output_token_seconds",),
    },
)
VLLM = Dialect(
    "vllm",
    "vllm:",
    {
        **_SHARED,
        "preemptions": ("num_preemptions_total",),
        "drafted_per_position": ("spec_decode_num_draft_tokens_per_pos_total",),
        # inter_token_latency_seconds is left out: it is the gap between two steps, and a step gives several tokens
        "per_token": ("request_time_per_output_token_seconds",),
    },
    engine_label="engine",
)
SGLANG = Dialect(
    "sglang",
    "sglang:",
    {
        "generated": ("generation_tokens_total",),
        "prompt_tokens": ("prompt_tokens_total",),
        "counted_forwards": ("spec_verify_calls_total",),
        "preemptions": ("num_retracted_requests_total", "num_retractions_total"),
        "ended": ("num_requests_total",),
        "running": ("num_running_reqs",),
        "waiting": ("num_queue_reqs",),
        "kv_usage": ("token_usage",),
        "first_token": ("time_to_first_token_seconds",),
        "per_token": ("time_per_output_token_seconds", "inter_token_latency_seconds"),
    },
    only={"tp_rank": "0", "pp_rank": "0"},
)
LLAMA_CPP = Dialect(
    "llama.cpp",
    "llamacpp:",
    {
        "drafts": ("spec_decode_num_drafts_total", "spec_decode_num_drafts"),
        "drafted": ("spec_decode_num_draft_tokens_total", "spec_decode_num_draft_tokens"),
        "accepted": ("spec_decode_num_accepted_tokens_total", "spec_decode_num_accepted_tokens"),
        "generated": ("tokens_predicted_total", "tokens_predicted"),
        "prompt_tokens": ("prompt_tokens_total",),
        "running": ("requests_processing",),
        "waiting": ("requests_deferred",),
        "kv_usage": ("kv_cache_usage_ratio",),
        "accepted_per_position": (
            "spec_decode_num_accepted_tokens_per_pos_total",
            "spec_decode_num_accepted_tokens_per_pos",
            "spec_decode_accepted_tokens_per_pos_total",
            "spec_decode_accepted_tokens_per_pos",
        ),
    },
)
DIALECTS = (HEADSTART, VLLM, SGLANG, LLAMA_CPP)

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
            "reading a server's counters needs prometheus-client", hint=how_to_install("fleet")
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
    for field_name, names in dialect.names.items():
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
