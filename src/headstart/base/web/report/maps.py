"""Maps: a value for every pair of two settings, in colours that turn where nothing is gained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.base.web.report.style import BELOW, Mark, add_marks, blank, finite, plain, whole_ticks

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
    figure = blank(x, y, [f"{y} \\ {x}", *(f"{across:g}" for across in xs)], rows)
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
            **BELOW,
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
    whole_ticks(figure.update_xaxes, xs)
    whole_ticks(figure.update_yaxes, ys)
    title = {"text": f"Colour: {plain(z)}", "font": {"size": 13}, "x": 0, "y": 0.98, "yanchor": "top"}
    figure.update_layout(title=title, margin_t=38)
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(showgrid=False)
    add_marks(figure, marks, xs, ys)
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
