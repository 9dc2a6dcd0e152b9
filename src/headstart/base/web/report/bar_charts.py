"""Bars: one place per name, standing or lying, in groups or stacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.base.web.report.style import INK, add_reference, blank, colour, finite, plain, wrapped
from headstart.base.web.report.tables import Bounds, check_bounds, rows_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_GAP = 0.25  # between groups of bars, of the room that a group has
_DWARFED, _SHOWN = 4.0, 2.5  # an interval that ends beyond 4 times the longest bar is cut at 2.5 times


def bars(
    names: Sequence[str],
    values: Mapping[str, Sequence[float]],
    *,
    y: str,
    low_high: Mapping[str, Bounds] | None = None,
    x: str = "",
    reference: float | None = None,
) -> Figure:
    """A group of bars per name, one bar per series; low_high: the ends of each bar's interval, not their lengths.

    The bars lie where the names are long, so that a phone shows them whole. reference: a dashed line at this value.
    Intervals that would dwarf the bars are cut at the edge of the plot, with words on how far they go.
    """
    low_high = low_high or {}
    check_bounds(low_high, values)
    columns, cells = [x or "name"], [list[object](names)]
    for name, numbers in values.items():
        columns.append(name)
        cells.append(list(numbers))
        if name in low_high:
            columns += [f"{name}: low", f"{name}: high"]
            cells += [list(low_high[name][0]), list(low_high[name][1])]
    rows = rows_of("bars", *cells)
    figure, lying = _named_axis(names, columns, rows, x=x, y=y, per_name=len(values))
    figure.update_layout(barmode="group", bargap=_GAP)
    limit = _limit(values, low_high)
    if limit is not None:
        (figure.update_xaxes if lying else figure.update_yaxes)(range=[0, limit])
    for index, (name, numbers) in enumerate(values.items()):
        error = None
        offset = (index - (len(values) - 1) / 2) * (1 - _GAP) / len(values)
        if name in low_high:
            lows, highs = (np.asarray(ends, dtype=float) for ends in low_high[name])
            middle = np.asarray(numbers, dtype=float)
            error = {"array": highs - middle, "arrayminus": middle - lows, "symmetric": False, "color": INK}
            _mark_the_cut(figure, highs, limit, offset, lying=lying)
        _add_bars(figure, names, name, numbers, colour(index), lying=lying, legend=len(values) > 1, error=error)
    if reference is not None:
        add_reference(figure, reference, along="x" if lying else "y")
    return figure


def stacked(names: Sequence[str], parts: Mapping[str, Sequence[float]], *, y: str, x: str = "") -> Figure:
    """A bar per name, made of its parts: where the time goes."""
    columns = [x or "name", *parts]
    rows = rows_of("stacked", list[object](names), *(list(numbers) for numbers in parts.values()))
    figure, lying = _named_axis(names, columns, rows, x=x, y=y, per_name=1)
    figure.update_layout(barmode="stack", bargap=0.35)
    for index, (name, numbers) in enumerate(parts.items()):
        _add_bars(figure, names, name, numbers, colour(index), lying=lying, legend=True)
    return figure


def _limit(values: Mapping[str, Sequence[float]], low_high: Mapping[str, Bounds]) -> float | None:
    """Where to cut the axis; None where every interval can be shown."""
    largest = max((value for numbers in values.values() for value in finite(numbers)), default=0.0)
    smallest = min((value for numbers in values.values() for value in finite(numbers)), default=0.0)
    farthest = max((high for _, highs in low_high.values() for high in finite(highs)), default=0.0)
    return _SHOWN * float(largest) if smallest >= 0 and farthest > _DWARFED * largest > 0 else None


def _mark_the_cut(figure: Any, highs: np.ndarray[Any, Any], limit: float | None, offset: float, *, lying: bool) -> None:
    """Beside the whiskers that leave the plot, where they end."""
    for place, high in enumerate(highs):
        if limit is None or not high > limit:
            continue
        across, along = place + offset, limit
        figure.add_annotation(
            x=along if lying else across,
            y=across if lying else along,
            text=f"to {high:.3g} →" if lying else f"↑ {high:.3g}",
            showarrow=False,
            xanchor="right" if lying else "left",
            yanchor="bottom" if lying else "top",
            font={"size": 12},
        )


def _named_axis(
    names: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[object]], *, x: str, y: str, per_name: int
) -> tuple[Any, bool]:
    """A figure with one place per name, and whether the bars lie. Places are numbers: equal names stay two bars."""
    lying = max((len(str(name)) for name in names), default=0) > 8 or len(names) * per_name > 16
    ticks = {"tickvals": list(range(len(names))), "ticktext": [wrapped(name) for name in names], "showgrid": False}
    if not lying:
        figure = blank(x, y, columns, rows)
        figure.update_xaxes(ticks)
        return figure, lying
    figure = blank(y, x, columns, rows)
    figure.update_yaxes(ticks, autorange="reversed")
    figure.update_xaxes(title_text=wrapped(y, 22))  # the names leave it less room
    figure.update_layout(height=max(260, 130 + len(names) * (26 + 18 * per_name)))
    return figure, lying


def _add_bars(
    figure: Any,
    names: Sequence[str],
    series: str,
    numbers: Sequence[float],
    fill: str,
    *,
    lying: bool,
    legend: bool,
    error: dict[str, Any] | None = None,
) -> None:
    places, lengths = list(range(len(names))), list(numbers)
    figure.add_bar(
        x=lengths if lying else places,
        y=places if lying else lengths,
        orientation="h" if lying else "v",
        name=plain(series),
        text=[wrapped(name, 40) for name in names],
        textposition="none",
        marker={"color": fill},
        error_x=error if lying else None,
        error_y=None if lying else error,
        showlegend=legend,
        hovertemplate=f"%{{text}}<br>%{{{'x' if lying else 'y'}:.4~g}}<extra>%{{fullData.name}}</extra>",
    )
