"""Tables of a page: how cells are written, and the table of a figure's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Cell = str | float | int | None
Numbers = Sequence[float] | np.ndarray[Any, Any]
Bounds = tuple[Numbers, Numbers]

LONG = 40
"""Characters from which on a cell would be a tower of words on a phone."""

MOST_ROWS = 300
"""Rows of a figure's table; of longer ones an even selection is shown, and the caption names how many."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text. kinds: per column "number" (set at the right), "long" (set wider) or ""."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kinds: tuple[str, ...]
    caption: str = ""

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        caption: str = "",
        formats: Mapping[str, str] | None = None,
    ) -> Table:
        formats = formats or {}
        if unknown := [name for name in formats if name not in columns]:
            raise ValueError(f"a format for no column: {', '.join(unknown)}; the columns are {', '.join(columns)}")
        if wrong := [list(row) for row in rows if len(row) != len(columns)]:
            raise ValueError(f"a row needs {len(columns)} cells: {wrong[0]}")
        written = tuple(
            tuple(written_as(cell, formats.get(name, "")) for name, cell in zip(columns, row, strict=True))
            for row in rows
        )
        kinds = tuple(_kind([row[index] for row in rows]) for index in range(len(columns)))
        return cls(tuple(columns), written, kinds, caption)


def written_as(cell: object, number_format: str = "") -> str:
    """A cell as text: a dash for nothing known, four digits of a float unless a format says otherwise."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return "\N{EN DASH}"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int | float):
        return format(cell, number_format or (".4g" if isinstance(cell, float) else ""))
    return str(cell)


def thinned(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """The table of a chart's numbers; of a long one an even selection of rows, which its caption says."""
    if len(rows) <= MOST_ROWS:
        return Table.of(columns, rows)
    chosen = np.linspace(0, len(rows) - 1, MOST_ROWS).round().astype(int)
    return Table.of(columns, [rows[i] for i in chosen], caption=f"{MOST_ROWS} of {len(rows)} rows, evenly chosen")


def rows_of(what: str, *columns: Any) -> list[list[object]]:
    """Rows of the columns; ValueError where one is shorter than another."""
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"{what}: the lengths differ: {', '.join(str(len(column)) for column in columns)}")
    return [list(row) for row in zip(*columns, strict=True)]


class _Interval(Protocol):
    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...


def ends(intervals: Iterable[_Interval]) -> Bounds:
    """The lower and the upper ends of the intervals."""
    intervals = list(intervals)
    return [each.low for each in intervals], [each.high for each in intervals]


def check_bounds(named: Mapping[str, object], series: Mapping[str, object]) -> None:
    """ValueError where an interval is given for a series that is not there."""
    unknown = [name for name in named if name not in series]
    if unknown:
        raise ValueError(f"bounds for series that are not drawn: {', '.join(unknown)}")


def _kind(cells: Sequence[object]) -> str:
    known = [cell for cell in cells if cell is not None]
    if any(isinstance(cell, bool) or not isinstance(cell, int | float | np.number) for cell in known):
        return "long" if any(len(str(cell)) > LONG for cell in known) else ""
    return "number" if known else ""
