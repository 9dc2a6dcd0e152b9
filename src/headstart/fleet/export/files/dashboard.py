"""`grafana.json`: a dashboard of vLLM engines that speculate, with the export's own figures to compare with."""

from __future__ import annotations

import json
from typing import Any

from headstart.fleet.export.files.alerts import bound
from headstart.fleet.export.files.deployment import Deployment

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_MODEL = 'model_name=~"$model"'
_WINDOW = "$__rate_interval"
_VARIABLES: tuple[dict[str, Any], ...] = (
    {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source", "hide": 0},
    {
        "name": "model",
        "type": "query",
        "label": "Model",
        "datasource": _SOURCE,
        "query": "label_values(vllm:generation_tokens_total, model_name)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    },
)


def dashboard(one: Deployment) -> str:
    """The file, for Grafana's import."""
    panels = [*_speculation(one), *_clients(), *_load()]
    found = {
        "title": f"{one.name}: speculation in vLLM",
        "uid": f"headstart-{one.slug}"[:40],
        "description": "What speculation brings, what clients get, and the load; by `headstart export`.",
        "tags": ["headstart", "vllm"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [*_VARIABLES]},
        "panels": _placed(panels),
    }
    return json.dumps(found, indent=1) + "\n"


def _speculation(one: Deployment) -> list[dict[str, Any]]:
    generated, accepted = _sum("generation_tokens_total"), _sum("spec_decode_num_accepted_tokens_total")
    drafts, drafted = _sum("spec_decode_num_drafts_total"), _sum("spec_decode_num_draft_tokens_total")
    per_engine = "instance"
    mine, theirs = (_sum(name, by=per_engine) for name in ("generation_tokens_total",
                    "spec_decode_num_accepted_tokens_total"))  # fmt: skip
    low, expected = bound(one), one.manifest.expected
    lines = [] if low is None else [(low, "orange")]
    words = "" if expected is None else (
        f" The export measured {expected.tokens_per_forward.value:.2f} on {expected.prompts.source}"
        + ("." if low is None else f"; the line is its lower bound, {low:.2f}.")
    )  # fmt: skip
    return [
        _row("What speculation brings"),
        _panel("Tokens per forward", f"G / (G - A): every forward of a request counted once.{words}",
               [(f"{generated} / ({generated} - {accepted})", "all engines")], unit="short", lines=lines),
        _panel("Tokens per forward, by engine", "Replicas that serve the same traffic should agree.",
               [(f"{mine} / ({mine} - {theirs})", "{{instance}}")], unit="short", lines=lines),
        _panel("Acceptance by position", f"Of a position, given that all before it were accepted.{_by_position(one)}",
               _conditional(one), unit="percentunit"),
        _panel("Forwards with a draft", "Share of forwards that verified at least one drafted token.",
               [(f"{drafts} / ({generated} - {accepted})", "all engines")], unit="percentunit"),
        _panel("Accepted of drafted", "Drafted tokens behind a rejected one count as rejected.",
               [(f"{accepted} / {drafted}", "all engines")], unit="percentunit"),
        _panel("Tokens per second", "Generated tokens, and prompt tokens.",
               [(generated, "generated"), (_sum("prompt_tokens_total"), "prompts")], unit="short"),
    ]  # fmt: skip


def _by_position(one: Deployment) -> str:
    expected = one.manifest.expected
    if expected is None:
        return ""
    shares = ", ".join("-" if each.value is None else f"{each.value:.0%}" for each in expected.by_position)
    return f" The export measured {shares}."


def _conditional(one: Deployment) -> list[tuple[str, str]]:
    """One query for each position of the draft."""
    name = "spec_decode_num_accepted_tokens_per_pos_total"
    places = [_sum(name, position=str(i)) for i in range(one.manifest.depth)]
    before = [_sum("spec_decode_num_drafts_total"), *places]
    return [
        (f"{here} / {tested}", f"position {i + 1}")
        for i, (here, tested) in enumerate(zip(places, before, strict=False))
    ]


def _clients() -> list[dict[str, Any]]:
    def both(name: str) -> list[tuple[str, str]]:
        return [
            (f"histogram_quantile({share}, sum by (le) (rate(vllm:{name}_bucket{{{_MODEL}}}[{_WINDOW}])))", words)
            for share, words in ((0.5, "P50"), (0.99, "P99"))
        ]

    return [
        _row("What clients get"),
        _panel("Time to first token", "From a request's arrival.", both("time_to_first_token_seconds"), unit="s"),
        _panel("Time per output token", "A mean for each request: the gap between two steps says nothing, since a step "
               "gives several tokens.", both("request_time_per_output_token_seconds"), unit="s"),
        _panel("Whole request", "From arrival to end.", both("e2e_request_latency_seconds"), unit="s"),
    ]  # fmt: skip


def _load() -> list[dict[str, Any]]:
    def now(name: str, how: str = "sum") -> str:
        return f"{how} by (instance) (vllm:{name}{{{_MODEL}}})"

    hits, queries = _sum("prefix_cache_hits_total"), _sum("prefix_cache_queries_total")
    return [
        _row("Load"),
        _panel("Requests that run", "More at once make guesses dearer.",
               [(now("num_requests_running"), "{{instance}}")], unit="short"),
        _panel("Requests that wait", "", [(now("num_requests_waiting"), "{{instance}}")], unit="short"),
        _panel("KV cache in use", "", [(now("kv_cache_usage_perc", "max"), "{{instance}}")], unit="percentunit"),
        _panel("Preemptions per second", "A preempted request is computed again.",
               [(_sum("num_preemptions_total", by="instance"), "{{instance}}")], unit="short"),
        _panel("Prefix cache hits", "Share of prompt tokens that need not be read again.",
               [(f"{hits} / {queries}", "all")], unit="percentunit"),
    ]  # fmt: skip


def _sum(name: str, *, by: str | None = None, **labels: str) -> str:
    inner = ",".join([_MODEL, *(f'{label}="{value}"' for label, value in labels.items())])
    grouped = f"sum by ({by})" if by else "sum"
    return f"{grouped}(rate(vllm:{name}{{{inner}}}[{_WINDOW}]))"


def _row(title: str) -> dict[str, Any]:
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def _panel(
    title: str,
    description: str,
    queries: list[tuple[str, str]],
    *,
    unit: str,
    lines: list[tuple[float, str]] = (),  # type: ignore[assignment]
) -> dict[str, Any]:
    custom: dict[str, Any] = {"drawStyle": "line", "fillOpacity": 8, "showPoints": "never"}
    defaults: dict[str, Any] = {"unit": unit, "min": 0, "custom": custom}
    if lines:
        custom["thresholdsStyle"] = {"mode": "line"}
        steps = [{"color": "transparent", "value": None}, *({"color": color, "value": at} for at, color in lines)]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + i % 26) + ("" if i < 26 else str(i // 26)), "datasource": _SOURCE, "expr": query,
             "legendFormat": words}
            for i, (query, words) in enumerate(queries)
        ],
    }  # fmt: skip


def _placed(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With ids and places: three panels to a line, rows across."""
    x = y = 0
    for number, panel in enumerate(panels, start=1):
        row = panel["type"] == "row"
        if row or x == 24:
            y += 8 if x else 0
            x = 0
        panel["id"] = number
        panel["gridPos"] = {"h": 1 if row else 8, "w": 24 if row else 8, "x": x, "y": y}
        if row:
            y += 1
        else:
            x += 8
    return panels
