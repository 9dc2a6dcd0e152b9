"""Two lanes in time: a bar for everything that the target and the drafter did in the first rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headstart.base.web.report.style import blank, colour, plain
from headstart.learn.simulate.two_lanes import LANES, Span

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

KINDS = ("verify", "levels", "draft now", "glue", "hand over")


def lanes(spans: Sequence[Span], *, unit: str, rounds: int = 4) -> Figure:
    """A row for each lane, a colour for each kind of work."""
    shown = [span for span in spans if span.round < rounds]
    begin = min((span.start for span in shown), default=0.0)
    rows = [[s.round + 1, s.lane, s.kind, s.start - begin, s.end - begin, s.rows] for s in shown]
    columns = ["round", "lane", "does", f"from, {unit}", f"to, {unit}", "rows"]
    figure: Any = blank(f"time, {unit}", "", columns, rows)
    places = {lane: place for place, lane in enumerate(LANES)}
    for index, kind in enumerate(KINDS):
        mine = [span for span in shown if span.kind == kind]
        if not mine:
            continue
        figure.add_bar(
            x=[span.end - span.start for span in mine],
            y=[places[span.lane] for span in mine],
            base=[span.start - begin for span in mine],
            orientation="h",
            name=plain(kind),
            marker={"color": colour(index), "line": {"color": "rgba(128,134,145,0.6)", "width": 1}},
            text=[f"round {span.round + 1}, {span.rows} rows" for span in mine],
            textposition="none",
            hovertemplate="%{text}<br>%{base:.3~g} + %{x:.3~g}<extra>%{fullData.name}</extra>",
        )
    names = {"target": "target", "draft": "drafter"}
    figure.update_yaxes(
        tickvals=list(places.values()), ticktext=[names[lane] for lane in LANES], autorange="reversed", showgrid=False
    )
    figure.update_layout(barmode="overlay", bargap=0.3, height=260)
    result: Figure = figure
    return result
