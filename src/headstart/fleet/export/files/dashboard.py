"""`grafana.json`: a dashboard of vLLM engines that speculate, with the export's own figures to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def whole(values: Mapping[str, Any]) -> dict[str, Any]:
    """The dashboard for Grafana's import, from the values of the template."""
    panels = [_row(each["row"]) if "row" in each else panel(**each) for each in values["panels"]]
    return {**values, "panels": _placed(panels)}


def panel(
    title: str, description: str, queries: Sequence[tuple[str, str]], unit: str, line: float | None = None
) -> dict[str, Any]:
    """Lines over time. queries: each with its legend. line: of a bound."""
    custom: dict[str, Any] = {"drawStyle": "line", "fillOpacity": 8, "showPoints": "never"}
    defaults: dict[str, Any] = {"unit": unit, "min": 0, "custom": custom}
    if line is not None:
        custom["thresholdsStyle"] = {"mode": "line"}
        steps = [{"color": "transparent", "value": None}, {"color": "orange", "value": line}]
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


def _row(title: str) -> dict[str, Any]:
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def _placed(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With ids and places: three panels to a line, rows across."""
    x = y = 0
    for number, each in enumerate(panels, start=1):
        row = each["type"] == "row"
        if row or x == 24:
            y += 8 if x else 0
            x = 0
        each["id"] = number
        each["gridPos"] = {"h": 1 if row else 8, "w": 24 if row else 8, "x": x, "y": y}
        if row:
            y += 1
        else:
            x += 8
    return panels
