"""The plots of the pages: numbers in, a plotly figure in the house style out.

Every label is plain text. Every figure carries the table of its numbers, which the page shows under it. Where there
is nothing to draw (no series, only NaN) the figure has empty axes; sequences that do not fit together raise ValueError.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.base.web.report import style as look
from headstart.base.web.report.bar_charts import bars, stacked
from headstart.base.web.report.style import Mark, Numbers, finite, plain, wrapped
from headstart.base.web.report.tables import Bounds, check_bounds, ends, rows_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


LOSS_TO_GAIN = ("#8c3b00", "#d9812e", "#f2c99b", "#efefef", "#a3cbe5", "#3f8fc4", "#004a80")
LOW_TO_HIGH = ("#efefef", "#a3cbe5", "#3f8fc4", "#004a80")


def heatmap(
    xs: Sequence[float],
    ys: Sequence[float],
    values: Any,
    *,
    x: str,
    y: str,
    z: str,
    marks: Sequence[Mark] = (),
    middle: float | None = None,
) -> Figure:
    """A map of values [len(ys), len(xs)]. With `middle` (1.0 for speedups) the colours turn from loss to gain there,
    each side with its own scale, and a line is drawn where the values cross it."""
    numbers = np.asarray(values, dtype=float)
    if numbers.shape != (len(ys), len(xs)):
        raise ValueError(f"values must be [{len(ys)}, {len(xs)}] (ys, xs), not {list(numbers.shape)}")
    rows = [[vertical, *row] for vertical, row in zip(ys, numbers.tolist(), strict=True)]
    figure = look.blank(x, y, [f"{y} \\ {x}", *(f"{across:g}" for across in xs)], rows)
    known = finite(numbers)
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    figure.add_heatmap(
        x=list(xs),
        y=list(ys),
        z=numbers,
        zmin=low,
        zmax=high if high > low else low + 1.0,
        colorscale=_colours(low, high, middle),
        hovertemplate=f"{plain(x)} %{{x}}<br>{plain(y)} %{{y}}<br>{plain(z)} %{{z:.3~g}}<extra></extra>",
        colorbar={
            "orientation": "h",
            **look.BELOW,
            "thickness": 14,
            "tickvals": _turning_ticks(low, high, middle),
            "tickformat": ".3~g",
        },
    )
    if middle is not None and low < middle < high and min(numbers.shape) > 1:
        everywhere = np.all(numbers == middle, axis=0)  # a column like K = 0 is no place where anything turns
        figure.add_contour(
            x=list(xs),
            y=list(ys),
            z=np.where(everywhere, np.nan, numbers),
            contours={"start": middle, "end": middle, "size": 1, "coloring": "none"},
            line={"color": "#222222", "width": 2},
            showscale=False,
            showlegend=False,
            hoverinfo="skip",
        )
    look.whole_ticks(figure.update_xaxes, xs)
    look.whole_ticks(figure.update_yaxes, ys)
    title = {"text": f"Colour: {plain(z)}", "font": {"size": 13}, "x": 0, "y": 0.98, "yanchor": "top"}
    figure.update_layout(title=title, margin_t=38)
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(showgrid=False)
    look.add_marks(figure, marks, xs, ys)
    return figure


def _colours(low: float, high: float, middle: float | None) -> list[tuple[float, str]]:
    """The scale from low to high, its neutral colour at `middle`; one side only where middle is not between them."""
    if middle is None:
        return _spread(LOW_TO_HIGH, 0.0, 1.0)
    loss, gain = LOSS_TO_GAIN[:4], LOSS_TO_GAIN[3:]
    if middle <= low:
        return _spread(gain, 0.0, 1.0)
    if middle >= high:
        return _spread(loss, 0.0, 1.0)
    turn = (middle - low) / (high - low)
    return [*_spread(loss, 0.0, turn), *_spread(gain, turn, 1.0)[1:]]


def _turning_ticks(low: float, high: float, middle: float | None) -> list[float] | None:
    """Ticks of the colours: where they turn, and around it as many as a phone has room for; None: as plotly likes."""
    if middle is None or not low < middle < high:
        return None
    ends = [high, low, *(middle + (high - middle) * part for part in (0.5, 0.25, 0.75))]
    chosen = [middle]
    for place in ends:
        if all(abs(place - other) >= 0.16 * (high - low) for other in chosen):
            chosen.append(place)
    return sorted(chosen)


def _spread(colours: Sequence[str], start: float, end: float) -> list[tuple[float, str]]:
    return [(float(place), tone) for place, tone in zip(np.linspace(start, end, len(colours)), colours, strict=True)]


__all__ = ["Mark", "bars", "distributions", "ends", "heatmap", "lines", "scatter", "stacked"]


QUANTILES = {"P50": 0.5, "P90": 0.9, "P99": 0.99}
MOST_POINTS = 1000


def lines(
    series: Mapping[str, tuple[Numbers, Numbers]],
    *,
    x: str,
    y: str,
    bands: Mapping[str, Bounds] | None = None,
    marks: Sequence[Mark] = (),
    dashed: Collection[str] = (),
    reference: float | None = None,
) -> Figure:
    """A line per series (xs, ys), each point marked where there are few; NaN breaks a line.

    bands: per series the (low, high) around its ys, drawn as an area. dashed: the series that are predictions.
    reference: a value of y to draw a dashed line at.
    """
    bands = bands or {}
    check_bounds(bands, series)
    rows: list[list[object]] = []
    for name, (xs, ys) in series.items():
        lows, highs = bands.get(name, ([None] * len(xs), [None] * len(xs)))
        rows += [[name, *cells] for cells in rows_of(name, xs, ys, lows, highs)]
    if not bands:
        rows = [row[:3] for row in rows]
    figure = look.blank(x, y, ["series", x, y, "low", "high"][: 5 if bands else 3], rows)
    if reference is not None:
        look.add_reference(figure, reference)
    for index, (name, (xs, ys)) in enumerate(series.items()):
        if name in bands:
            _add_band(figure, xs, bands[name], index)
        dash = "dash" if name in dashed else "solid" if index < len(look.PALETTE) else "dot"  # where the colours repeat
        mode, marker = "lines+markers" if len(xs) <= 24 else "lines", {"symbol": look.symbol(index), "size": 8}
        line = {"color": look.colour(index), "width": 2.5, "dash": dash}
        _add(figure, name, xs, ys, mode=mode, line=line, marker=marker, legend=len(series) > 1, hover=_hover(x, y))
    all_x = _joined(xs for xs, _ in series.values())
    all_y = _joined(ys for _, ys in series.values())
    look.whole_ticks(figure.update_xaxes, all_x)
    look.add_marks(figure, marks, all_x, all_y)
    return figure


def scatter(
    series: Mapping[str, tuple[Numbers, Numbers, Sequence[str]]],
    *,
    x: str,
    y: str,
    diagonal: bool = False,
    reference: float | None = None,
) -> Figure:
    """A point per (x, y) with its name on hover. diagonal: the line y = x; reference: a dashed line at this y."""
    rows = [
        [name, label, *point]
        for name, (xs, ys, labels) in series.items()
        for label, *point in rows_of(name, labels, xs, ys)
    ]
    figure = look.blank(x, y, ["series", "name", x, y], rows)
    all_x = _joined(xs for xs, _, _ in series.values())
    if diagonal and all_x:
        ends = [min(all_x), max(all_x)]
        line = {"color": look.INK, "width": 1.5, "dash": "dash"}
        figure.add_scatter(x=ends, y=ends, mode="lines", line=line, showlegend=False, hoverinfo="skip")
    if reference is not None:
        look.add_reference(figure, reference)
    for index, (name, (xs, ys, labels)) in enumerate(series.items()):
        edge = {"color": look.BACK, "width": 1}  # so that points that overlap stay several
        marker = {"symbol": look.symbol(index), "size": 10, "color": look.colour(index), "line": edge}
        text, hover = [wrapped(label, 40) for label in labels], f"%{{text}}<br>{_hover(x, y)}"
        _add(figure, name, xs, ys, text=text, mode="markers", marker=marker, legend=len(series) > 1, hover=hover)
    return figure


def distributions(samples: Mapping[str, Sequence[float]], *, x: str, log: bool = False) -> Figure:
    """How much of each sample lies at or below x, with P50, P90 and P99 marked. log: x on a logarithmic scale.

    A point is (the i-th smallest value, i/(n-1)), joined by straight lines: read across, that is NumPy's quantile.
    """
    known = {name: np.sort(finite(values)) for name, values in samples.items()}
    known = {name: values for name, values in known.items() if values.size}
    rows = [[name, *(float(np.quantile(v, s)) for s in QUANTILES.values()), v.size] for name, v in known.items()]
    figure = look.blank(x, "share of the samples", ["series", *QUANTILES, "samples"], rows)
    for index, (name, values) in enumerate(known.items()):
        shares = np.linspace(0.0, 1.0, min(max(values.size, 2), MOST_POINTS))
        line = {"color": look.colour(index), "width": 2.5, "dash": look.DASHES[index % len(look.DASHES)]}
        hover = "%{y:.1%} up to %{x:.4~g}<extra>%{fullData.name}</extra>"
        xs = np.quantile(values, shares).tolist()
        _add(figure, name, xs, shares.tolist(), mode="lines", line=line, legend=len(known) > 1, hover=hover)
        marker = {"symbol": look.symbol(index), "size": 9, "color": look.colour(index)}
        hover, text = "%{text}: %{x:.4~g}<extra>%{fullData.name}</extra>", list(QUANTILES)
        xs, ys = [float(np.quantile(values, share)) for share in QUANTILES.values()], list(QUANTILES.values())
        _add(figure, name, xs, ys, mode="markers", marker=marker, text=text, cliponaxis=False, hover=hover)
    figure.update_yaxes(range=[0, 1.02], tickvals=[0, *QUANTILES.values()], ticktext=["0", *QUANTILES])
    if log:
        figure.update_xaxes(type="log")
    return figure


def _add(figure: Any, name: str, xs: Numbers, ys: Numbers, *, hover: str, legend: bool = False, **style: Any) -> None:
    """Add a trace of these points. hover: the words on a point's label, in plotly's template language."""
    figure.add_scatter(x=list(xs), y=list(ys), name=plain(name), showlegend=legend, hovertemplate=hover, **style)


def _add_band(figure: Any, xs: Numbers, band: Bounds, index: int) -> None:
    """The area between low and high, around and back; where either is unknown there is no area."""
    across, low, high = (np.asarray(part, dtype=float) for part in (xs, *band))
    known = np.isfinite(low) & np.isfinite(high)
    across, low, high = across[known], low[known], high[known]
    figure.add_scatter(
        x=[*across, *across[::-1]],
        y=[*low, *high[::-1]],
        mode="lines",
        line={"width": 0, "color": look.colour(index)},
        fill="toself",
        fillcolor=look.faint(look.colour(index)),
        showlegend=False,
        hoverinfo="skip",
    )


def _hover(x: str, y: str) -> str:
    """The words on a point's hover label; the series' name comes in as data, whatever it contains."""
    return f"{plain(x)} %{{x:.4~g}}<br>{plain(y)} %{{y:.4~g}}<extra>%{{fullData.name}}</extra>"


def _joined(parts: Any) -> list[float]:
    return [float(value) for part in parts for value in finite(part)]
