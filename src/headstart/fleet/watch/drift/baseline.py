"""What acceptance should be, cell by cell: given by an export, or learnt from the first windows of the traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from headstart.base.errors import InvalidFile
from headstart.fleet.watch.drift.cells import Key, finite

_LEVEL = NormalDist().inv_cdf(0.975)
_HINT = (
    'a position holds "position", "tested", "accepted", "value", "low" and "high", as an export\'s manifest has them'
)


@dataclass(frozen=True, slots=True)
class Expected:
    """The acceptance of one cell."""

    value: float
    low: float
    """Acceptance is compared with this: the baseline is an estimate, too."""
    error: float
    """Standard error of the value."""
    tested: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """Expected acceptance by cell. Cells it does not have are learnt from the traffic."""

    cells: Mapping[Key, Expected] = field(default_factory=dict)

    @classmethod
    def of(
        cls, by_position: Iterable[Mapping[str, Any]], *, source: str = "", tag: str = "", depth: int | None = None
    ) -> Baseline:
        """From an export's `expected.by_position`, whose intervals are taken at their word.

        It holds for cells with this source, tag and depth. Cells without tags and sources are made by `by_position`.

        Raises:
            InvalidFile: an entry that lacks something, or numbers that cannot be.
        """
        found = {}
        for entry in by_position:
            try:
                position, tested = int(entry["position"]), int(entry["tested"])
                value, low, high = (float(entry[name]) for name in ("value", "low", "high"))
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidFile(f"an expected acceptance is damaged: {entry!r}", hint=_HINT) from error
            if position < 1 or tested < 0 or not 0 <= low <= value <= high <= 1:
                raise InvalidFile(f"an expected acceptance cannot be: {dict(entry)!r}", hint=_HINT)
            error_ = (high - low) / (2 * _LEVEL)
            found[Key(position, source, tag, depth)] = Expected(value, low, error_, tested)
        return cls(found)


def expected_of(record: Mapping[str, Any]) -> Expected:
    """An expected acceptance of a record; KeyError, TypeError or ValueError where it is damaged."""
    value, low, error = (finite(record[name]) for name in ("value", "low", "error"))
    return Expected(value, low, error, int(finite(record["tested"])))
