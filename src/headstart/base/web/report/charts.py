"""The charts of a report: numbers in, what the page's script draws (modules/report/plots.js) and its table out.

Every label is plain text. Where there is nothing to draw (no series, only NaN) the chart has empty axes; sequences that
do not fit together raise ValueError. How a chart looks, its ticks and its colours, is the page's matter: they are the
lessons' charts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from headstart.base.web.report.tables import Bounds, Numbers, Table, check_bounds, ends, rows_of, thinned

__all__ = ["Chart", "Mark", "bars", "colour_map", "distributions", "ends", "lanes", "lines", "scatter", "stacked"]

QUANTILES = {"P50": 0.5, "P90": 0.9, "P99": 0.99}
_SHARES = np.union1d(np.linspace(0.0, 1.0, 201), list(QUANTILES.values()))
"""Of a sample, where its distribution is drawn."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point to be found at once, with its words: "you are here". On axes that are not logarithmic."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn, as JSON (null where a number is not known), and the table of the numbers."""

    kind: Literal["lines", "bars", "map", "lanes"]
    content: Mapping[str, Any]
    table: Table


def lines(
    series: Mapping[str, tuple[Numbers, Numbers]],
    *,
    x: str,
    y: str,
    bands: Mapping[str, Bounds] | None = None,
    marks: Sequence[Mark] = (),
    dashed: Collection[str] = (),
    reference: float | None = None,
    log_x: bool = False,
    log_y: bool = False,
    shares: bool = False,
) -> Chart:
    """A line per series (xs, ys), each point marked where there are few; NaN breaks a line.

    bands: per series the (low, high) around its ys, drawn as an area. dashed: the series that are predictions.
    reference: a value of y to draw a dashed line at. log_x, log_y: x, y on a logarithmic scale.
    shares: the scale of y goes from 0 to 1.
    """
    bands = bands or {}
    check_bounds(bands, series)
    rows: list[list[object]] = []
    drawn = []
    for name, (xs, ys) in series.items():
        lows, highs = bands.get(name, ([None] * len(xs), [None] * len(xs)))
        cells = rows_of(name, xs, ys, lows, highs)
        rows += [[name, *each] for each in cells]
        one: dict[str, Any] = {"name": name, "points": [[_known(across), _known(up)] for across, up, _, _ in cells]}
        if name in dashed:
            one["dash"] = True
        if name in bands:
            one["band"] = [[_known(across), _known(low), _known(high)] for across, _, low, high in cells]
        drawn.append(one)
    columns = ["series", x, y, "low", "high"][: 5 if bands else 3]
    content: dict[str, Any] = {"x": x, "y": y, "series": drawn, "marks": [asdict(mark) for mark in marks]}
    content |= _unless_none(rule=reference) | {"log": {"x": log_x, "y": log_y}, "shares": shares}
    return Chart("lines", content, thinned(columns, [row[: len(columns)] for row in rows]))


def scatter(
    series: Mapping[str, tuple[Numbers, Numbers, Sequence[str]]],
    *,
    x: str,
    y: str,
    diagonal: bool = False,
    reference: float | None = None,
) -> Chart:
    """A point per (x, y) with its name on hover. diagonal: the line y = x; reference: a dashed line at this y."""
    rows: list[list[object]] = []
    drawn = []
    for name, (xs, ys, labels) in series.items():
        cells = rows_of(name, labels, xs, ys)
        rows += [[name, *each] for each in cells]
        points = [[_known(across), _known(up), str(label)] for label, across, up in cells]
        drawn.append({"name": name, "dots": True, "points": points})
    content = {"x": x, "y": y, "series": drawn, "diagonal": diagonal} | _unless_none(rule=reference)
    return Chart("lines", content, thinned(["series", "name", x, y], rows))


def distributions(samples: Mapping[str, Sequence[float]], *, x: str, log: bool = False) -> Chart:
    """How much of each sample lies at or below x, with P50, P90 and P99 marked. log: x on a logarithmic scale.

    A point is (the i-th smallest value, i/(n-1)), joined by straight lines: read across, that is NumPy's quantile.
    """
    known = {name: np.sort(finite(values)) for name, values in samples.items()}
    known = {name: values for name, values in known.items() if values.size}
    rows = [[name, *(float(np.quantile(v, s)) for s in QUANTILES.values()), int(v.size)] for name, v in known.items()]
    drawn = [
        {
            "name": name,
            "points": [[_known(at), _known(share)] for at, share in zip(np.quantile(v, _SHARES), _SHARES, strict=True)],
        }
        for name, v in known.items()
    ]
    y = "share of the samples"
    content = {"x": x, "y": y, "series": drawn, "ticks": {"0": 0, **QUANTILES}} | ({"log": {"x": True}} if log else {})
    return Chart("lines", content, Table.of(["series", *QUANTILES, "samples"], rows))


def bars(
    names: Sequence[str],
    values: Mapping[str, Sequence[float]],
    *,
    y: str,
    low_high: Mapping[str, Bounds] | None = None,
    x: str = "",
    reference: float | None = None,
) -> Chart:
    """A group of bars per name, one bar per series; low_high: the ends of each bar's interval, not their lengths.

    reference: a dashed line at this value. Intervals that would dwarf the bars are cut at the edge of the plot; where
    they end stands beside each.
    """
    low_high = low_high or {}
    check_bounds(low_high, values)
    columns, cells = [x or "name"], [list[object](names)]
    drawn = []
    for name, numbers in values.items():
        columns.append(name)
        cells.append(list(numbers))
        one: dict[str, Any] = {"name": name, "values": [_known(number) for number in numbers]}
        if name in low_high:
            lows, highs = low_high[name]
            columns += [f"{name}: low", f"{name}: high"]
            cells += [list(lows), list(highs)]
            one["ends"] = [[_known(low), _known(high)] for low, high in zip(lows, highs, strict=True)]
        drawn.append(one)
    table = Table.of(columns, rows_of("bars", *cells))
    content = {"names": list(map(str, names)), "series": drawn, "x": x, "y": y} | _unless_none(rule=reference)
    return Chart("bars", content, table)


def stacked(
    names: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    *,
    y: str,
    x: str = "",
    colours: Mapping[str, str] | None = None,
) -> Chart:
    """A bar per name, made of its parts: where the time goes. colours: of parts, by the names that theme.css has."""
    whole = bars(names, parts, y=y, x=x)
    named = {name: {"colour": colour} for name, colour in (colours or {}).items()}
    series = [{**one, **named.get(one["name"], {})} for one in whole.content["series"]]
    return Chart("bars", {**whole.content, "series": series, "stacked": True}, whole.table)


def colour_map(
    xs: Sequence[float],
    ys: Sequence[float],
    values: Any,
    *,
    x: str,
    y: str,
    z: str,
    marks: Sequence[Mark] = (),
    middle: float | None = None,
) -> Chart:
    """A map of values [len(ys), len(xs)]. With `middle` (1.0 for speedups) the colours turn from loss to gain there,
    and a line is drawn where the values cross it."""
    numbers = np.asarray(values, dtype=float)
    if numbers.shape != (len(ys), len(xs)):
        raise ValueError(f"values must be [{len(ys)}, {len(xs)}] (ys, xs), not {list(numbers.shape)}")
    rows = [[vertical, *row] for vertical, row in zip(ys, numbers.tolist(), strict=True)]
    content = {
        "x": x, "y": y, "z": z, "xs": [_known(each) for each in xs], "ys": [_known(each) for each in ys],
        "values": [[_known(value) for value in row] for row in numbers], "marks": [asdict(mark) for mark in marks],
    } | _unless_none(middle=middle)  # fmt: skip
    return Chart("map", content, Table.of([f"{y} \\ {x}", *(f"{across:g}" for across in xs)], rows))


def lanes(
    blocks: Mapping[str, Sequence[tuple[float, float, str, str]]],
    *,
    unit: str,
    kinds: Mapping[str, str],
    table: Table,
) -> Chart:
    """Who is busy from when to when. blocks: by lane (from, to, kind, words on hover). kinds: by kind, the look that it
    has in the lessons' lanes of time ("draft", "verify", "prefill", "distribution", "wait")."""
    content = {
        "unit": unit,
        "names": {look: kind for kind, look in kinds.items()},
        "lanes": [
            {
                "name": name,
                "blocks": [
                    {"from": _known(start), "to": _known(end), "kind": kinds[kind], "words": [kind, words]}
                    for start, end, kind, words in mine
                ],
            }
            for name, mine in blocks.items()
        ],
    }
    return Chart("lanes", content, table)


def finite(values: Numbers) -> np.ndarray[Any, Any]:
    """The values that are finite."""
    numbers: np.ndarray[Any, Any] = np.asarray(values, dtype=float)
    known: np.ndarray[Any, Any] = numbers[np.isfinite(numbers)]
    return known


def _known(value: Any) -> float | None:
    """A number as JSON has it: six digits, which is more than a screen shows; None for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{float(value):.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _unless_none(**values: float | None) -> dict[str, float | None]:
    return {name: _known(value) for name, value in values.items() if value is not None}
