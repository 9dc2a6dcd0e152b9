"""The house style of plots: colours, marks and layout that read at 360 px and at 1400 px, light and dark.

Text is data: every label may hold `<`, `&` or markup, and is shown as it is (`plain`).
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.base.extras import extra

Numbers = Sequence[float] | np.ndarray[Any, Any]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC6699", "#A6761D", "#3A93C7", "#808080")
"""After Okabe and Ito's set for colour-blind readers (2008); its light hues are darkened, so that each colour stands
out from white and from near-black (at least 3 to 1). From the eighth series on they repeat with another mark."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
DASHES = ("solid", "dash", "dot", "dashdot")
INK, GRID, BACK = "#7d8590", "rgba(128,134,145,0.28)", "#fdfdfe"
"""Text, grid and the ground behind hovering words. The page's script draws with its own colours in their place, light
or dark: it looks for exactly these values (templates/page.js)."""

BELOW = {"yref": "container", "y": 0, "yanchor": "bottom"}
"""Where a legend or a scale of colours is: under the plot, where a phone has room for it."""

TABLE = "headstart_table"
"""Where a figure keeps the table of its numbers: `layout.meta[TABLE] = {"columns": [...], "rows": [...]}`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point to be found at once, with its words: "you are here". On axes that are not logarithmic."""

    x: float
    y: float
    text: str


def plain(text: object) -> str:
    """The text as plotly must be given it to show it unchanged: it reads a few HTML tags, and nothing else of HTML."""
    return html.escape(str(text), quote=False)


def wrapped(text: object, width: int = 18) -> str:
    """`plain`, in lines of about `width` characters; three lines at most, for a tick or a mark on a phone."""
    lines = textwrap.wrap(str(text), width, max_lines=3, placeholder=" …") or [""]
    return "<br>".join(plain(line) for line in lines)


def finite(values: Numbers) -> np.ndarray[Any, Any]:
    """The values that are finite."""
    numbers: np.ndarray[Any, Any] = np.asarray(values, dtype=float)
    known: np.ndarray[Any, Any] = numbers[np.isfinite(numbers)]
    return known


def colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def symbol(index: int) -> str:
    return SYMBOLS[(index + index // len(PALETTE)) % len(SYMBOLS)]


def faint(hex_colour: str, opacity: float = 0.24) -> str:
    """The colour as an area lies under its line."""
    red, green, blue = (int(hex_colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def house_style() -> Any:
    """The plotly template of every figure on a page: what a figure does not say for itself."""
    axis: dict[str, Any] = {
        "automargin": True,
        "fixedrange": True,  # a finger that drags over a plot scrolls the page
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        "title": {"standoff": 10, "font": {"size": 13}},
    }
    layout = {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
        "colorway": list(PALETTE),
        "title": {"automargin": True, "yref": "container", "y": 0.99, "yanchor": "top", "x": 0, "font": {"size": 14}},
        "margin": {"l": 8, "r": 16, "t": 24, "b": 8},
        "xaxis": axis,
        "yaxis": axis,
        "dragmode": False,
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": BACK, "bordercolor": INK, "font": {"color": INK}},
        "legend": {"orientation": "h", "traceorder": "normal", **BELOW, "x": 0, "xanchor": "left"},
    }
    return extra("plotly.graph_objects").layout.Template(layout=layout)


def blank(x: str, y: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Any:
    """A figure with axes called x and y, no trace yet, and the table of its numbers."""
    figure = extra("plotly.graph_objects").Figure()
    numbers = {"columns": list(columns), "rows": [[_number(cell) for cell in row] for row in rows]}
    figure.update_layout(template=house_style(), meta={TABLE: numbers})
    figure.update_xaxes(title_text=wrapped(x, 30))
    figure.update_yaxes(title_text=wrapped(y, 30))
    return figure


def whole_ticks(update_axes: Callable[..., Any], values: Sequence[float]) -> None:
    """Ticks at whole numbers where an axis counts something, so that none is K = 1.5."""
    numbers = finite(values)
    if numbers.size and np.all(numbers == np.round(numbers)) and np.ptp(numbers) <= 20:
        update_axes(tick0=0, dtick=1 if np.ptp(numbers) <= 11 else 2, tickangle=0)


def settle_log_axes(figure: Any) -> None:
    """Ticks for logarithmic axes that have none: left alone, plotly prints 2 to 9 too small to read."""
    for axis, update in (("x", figure.update_xaxes), ("y", figure.update_yaxes)):
        settings = figure.layout[f"{axis}axis"]
        if settings.type != "log" or settings.tickvals is not None or settings.dtick is not None:
            continue
        drawn = [getattr(trace, axis, None) for trace in figure.data]
        drawn += [[shape[f"{axis}0"]] for shape in figure.layout.shapes if shape[f"{axis}ref"] == axis]
        values = np.concatenate([np.array([]), *(finite(part) for part in drawn if part is not None)])
        positive = values[values > 0]
        if positive.size:
            ticks = log_ticks(float(positive.min()), float(positive.max()))
            update(
                tickvals=ticks, ticktext=[f"{tick:,.10g}" if 1e-4 <= tick < 1e6 else f"{tick:.0e}" for tick in ticks]
            )


def log_ticks(low: float, high: float) -> list[float]:
    """Round values from low to high (above 0) for a logarithmic axis: at least three where there are that many, and
    of more than three decades only powers of ten, seven at most."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if last - first > 3:
        stride = math.ceil((last - first) / 6)
        return [10.0**power for power in range(first, last + 1) if power % stride == 0]
    ticks: list[float] = []
    finer = [[tenths / 10 for tenths in range(10, 100, step)] for step in (10, 5, 2, 1)]
    for steps in [[1.0, 2.0, 5.0], [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0], *finer]:
        ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        ticks = [tick for tick in ticks if low * 0.99 <= tick <= high * 1.01]
        if len(ticks) >= 3:
            break
    return ticks or [low]


def add_marks(figure: Any, marks: Sequence[Mark], xs: Sequence[float], ys: Sequence[float]) -> None:
    """Rings with words beside them, on the side that has more room."""
    for mark in marks:
        right = mark.x <= _middle(xs)
        above = mark.y <= _middle(ys)
        figure.add_annotation(
            x=mark.x,
            y=mark.y,
            text=wrapped(mark.text),
            align="left" if right else "right",
            xanchor="left" if right else "right",
            yanchor="bottom" if above else "top",
            ax=14 if right else -14,
            ay=-14 if above else 14,
            showarrow=True,
            arrowhead=0,
            arrowcolor="#111111",
            arrowwidth=1,
            bgcolor="rgba(255,255,255,0.92)",
            bordercolor="#111111",
            borderpad=3,
            font={"color": "#111111", "size": 12},
        )
    if marks:
        figure.add_scatter(
            x=[mark.x for mark in marks],
            y=[mark.y for mark in marks],
            text=[plain(mark.text) for mark in marks],
            hovertemplate="%{text}<extra></extra>",
            mode="markers",
            marker={"size": 12, "color": "#ffffff", "line": {"color": "#111111", "width": 3}},
            showlegend=False,
            cliponaxis=False,
        )


def add_reference(figure: Any, value: float, *, along: str = "y") -> None:
    """A dashed line across the plot at a value of the axis "y" or "x": 1.0 where nothing is gained."""
    draw = figure.add_hline if along == "y" else figure.add_vline
    draw(value, line={"color": INK, "width": 1.5, "dash": "dash"})


def _middle(values: Sequence[float]) -> float:
    known = finite(values)
    return float((known.min() + known.max()) / 2) if known.size else 0.0


def _number(cell: object) -> object:
    """A NumPy scalar as a plain one, since the page prints it."""
    return cell.item() if isinstance(cell, np.generic) else cell
