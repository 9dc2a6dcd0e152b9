"""One look at a server's page for Prometheus, as `Counters` by engine; prometheus-client parses it.

The names of each kind of server are in `dialects.yaml`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml

from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.base.extras import how_to_install
from headstart.fleet.http import Client, Hints, server_url
from headstart.fleet.watch.counters import Counters
from headstart.fleet.watch.counts import Histogram

_HINTS = Hints(
    late="is the server busy or stopped? See --timeout",
    absent="is the server running there?",
    by_status={
        401: "the server wants a key: name the variable that holds it with --api-key-env",
        403: "the server does not take this key: see --api-key-env",
        404: "is this the engine's own address? SGLang shows its counters with --enable-metrics only",
        501: "llama.cpp shows its counters with --metrics only",
    },
)


def metrics_url(url: str) -> str:
    """Where a server shows its counters: `http://host:port`, with or without `/v1`, or the address of the page itself.

    Raises:
        InvalidOption: it is no address of a server.
    """
    found = server_url(url if "://" in url else f"http://{url}", example="such as http://127.0.0.1:8000")
    path = found.path.rstrip("/")
    if not path.endswith("/metrics"):
        path = path.removesuffix("/v1") + "/metrics"
    return str(found.copy_with(path=path))


def scraper(*, timeout: float = 5.0, api_key: str | None = None) -> Client:
    """What `scrape` sends its requests with. A watch keeps one, since making one takes longer than a look.

    Args:
        timeout: in seconds, for the connection and for each part of the answer.
        api_key: sent as a bearer token, for servers that ask for one.
    """
    return Client(_HINTS, timeout=timeout, api_key=api_key)


def scrape(
    url: str, *, timeout: float = 5.0, api_key: str | None = None, client: Client | None = None
) -> list[Counters]:
    """What each engine of the server has counted so far.

    Args:
        url: see `metrics_url`.
        client: sends the request; None makes a `scraper` with the timeout and the key for this one.

    Raises:
        EndpointFailed: no server answers, the answer is no page of counters, or none of a known kind.
        InvalidOption: no address, or prometheus-client is not installed.
    """
    address = metrics_url(url)
    with scraper(timeout=timeout, api_key=api_key) if client is None else nullcontext(client) as used:
        response = used.send("GET", address, follow_redirects=True)
    if response.status_code != 200:
        raise EndpointFailed(f"{address} answered {response.status_code}", hint=_HINTS.of(response))
    return read(response.text)


def read(text: str) -> list[Counters]:
    """One `Counters` for each engine on a page for Prometheus; several kinds of servers may be on it.

    Raises:
        EndpointFailed: the page cannot be parsed, or nothing on it is of a server that is known.
        InvalidOption: prometheus-client is not installed.
    """
    samples = _samples(text)
    started = next((value for name, _, value in samples if name == "process_start_time_seconds"), None)
    try:
        found = [
            Counters(started=started, **values)
            for kind, dialect in DIALECTS.items()
            for values in _read_dialect(kind, dialect, samples)
        ]
    except (ValueError, KeyError, OverflowError) as error:  # a position that is no number, a count that is NaN
        raise EndpointFailed(
            f"the page holds what no counter can be: {error}", hint="is it the page of the engine itself?"
        ) from error
    if not found:
        raise EndpointFailed(
            "the page has no counters of headstart, vLLM, SGLang or llama.cpp",
            hint="give the engine's own address, not a router's; SGLang needs --enable-metrics, llama.cpp --metrics",
        )
    return found


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
_Row = list[tuple[Mapping[str, str], float]]
"""The samples of one name: (labels, value)."""


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
