"""From counts to the detector of drift: cells by position, windows that are long enough, and what is kept of them.

Counts come from servers' counters, or by source, tag and position from headstart's own ledger (`headstart serve
--ledger FILE`). A ledger counts by the hour, so an hour is a window, taken when it is over; its past is read at the
first look. Its tables: `headstart.base.store.LEDGER`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.store import LEDGER, read_rows
from headstart.fleet.watch.counters import SHORT, Counters
from headstart.fleet.watch.drift import Baseline, Cell, Detector, Level, Settings, by_position, shorter_drafts
from headstart.fleet.watch.drift.cells import summed


def cells_of(window: Counters) -> list[Cell]:
    """The positions of a window whose tests are known. Drafts of a fixed length say so, since they are comparable with
    each other only."""
    depth = len(window.accepted_per_position)
    fixed = window.tested_per_position is None and window.missing <= SHORT * window.drafted
    found = []
    for place, accepted in enumerate(window.accepted_per_position):
        tested = window.tested(place)
        if tested:  # a page written in the middle of a step may count an accepted guess before it counts the test
            found.append(Cell(place + 1, "", "", tested, min(accepted, tested), depth if fixed else None))
    return found


@dataclass(slots=True)
class Drift:
    """One stream of windows and its detector: a server, or a ledger.

    seconds: how long a window lasts at least; shorter pieces are added up first, since windows of seconds are
        noisy each, and many of them come until a false alarm.
    """

    detector: Detector
    seconds: float = 300.0
    pending: tuple[Cell, ...] = ()
    pending_seconds: float = 0.0

    def observe(self, cells: Sequence[Cell], seconds: float, depth: float | None = None) -> None:
        """Take the cells of a piece that lasted so long. depth: see `Detector.observe`."""
        self.pending = _summed((*self.pending, *cells))
        self.pending_seconds += seconds
        if self.pending and self.pending_seconds >= self.seconds:
            given = any(not key.source and not key.tag for key in self.detector.baseline.cells)
            self.detector.observe(by_position(self.pending) if given else self.pending, depth)
            self.pending, self.pending_seconds = (), 0.0

    @property
    def level(self) -> str:
        """fine, suspected or proved."""
        level = self.detector.level
        return "fine" if level is Level.NONE else level.text

    @property
    def words(self) -> str:
        """What is known of the fall; empty where there is none."""
        if self.detector.level is Level.NONE:
            return ""
        estimate = self.detector.estimate
        size = ""
        if estimate is not None:
            drop = estimate.drop
            size = f" by {drop.value:.0%}" + (f" ({drop.low:.0%} to {drop.high:.0%})" if drop.known else "")
            worst = next((cell for cell in estimate.cells if cell.state == "watched"), None)
            if worst is not None:
                named = [f"position {worst.position}", *(name for name in (worst.source, worst.tag) if name)]
                size += f", most at {', '.join(named)} (it was {worst.expected:.1%})"
        return f"{self.level}: acceptance has fallen{size}"

    def shorter(self, depth: int, cost: float) -> str:
        """In words, the draft length to go down to from this one, by theory; empty where it is right as it is.

        cost: of drafting a token, in plain steps.
        """
        estimate = self.detector.estimate
        return "" if estimate is None else shorter_drafts(estimate.cells, depth, cost)

    def facts(self) -> dict[str, Any]:
        """For the JSON of a look."""
        detector = self.detector
        drop = None if detector.estimate is None else detector.estimate.drop
        numbers = drop is not None and drop.value == drop.value
        return {
            "level": detector.level.text,
            "learning": detector.learning,
            "windows": detector.windows,
            "window_seconds": self.seconds,
            "evidence": {level.text: value for level, value in detector.evidence.items()},
            "alarm_at": detector.settings.mean_windows_to_false_alarm,
            "drop": {"value": drop.value, "low": _known(drop.low), "high": _known(drop.high)}
            if drop is not None and numbers
            else None,
        }

    def record(self) -> dict[str, Any]:
        """As JSON takes it."""
        pending = [[c.position, c.source, c.tag, c.tested, c.accepted, c.depth] for c in self.pending]
        return {"detector": self.detector.record(), "pending": pending, "pending_seconds": self.pending_seconds}

    @classmethod
    def of(
        cls, record: Mapping[str, Any] | None, *, seconds: float, baseline: Baseline | None, settings: Settings
    ) -> Drift:
        """What `record` has kept, or a new one. A baseline that is given begins a new one where it is another.

        Raises:
            InvalidFile: the record is damaged.
        """
        fresh = cls(Detector(baseline, settings), seconds)
        if record is None:
            return fresh
        kept = Detector.restore(record["detector"])
        if kept.settings != settings or (baseline is not None and kept.baseline.cells != dict(baseline.cells)):
            return fresh
        pending = tuple(Cell(*cell) for cell in record["pending"])
        return cls(kept, seconds, pending, float(record["pending_seconds"]))


def _summed(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    sums = summed(cells).items()
    return tuple(Cell(key.position, key.source, key.tag, *counts, key.depth) for key, counts in sums)


def _known(value: float) -> float | None:
    return value if value == value else None


LATE = 60.0
"""Seconds after its end in which an hour may still grow: the server writes a little after the fact."""
_QUERY = """
SELECT hour, model, tag, source, position, tested, accepted FROM acceptance WHERE hour > ? AND hour < ?
ORDER BY hour, model, tag, source, position
"""


@dataclass(slots=True)
class LedgerReader:
    """What of a ledger was read already."""

    path: Path
    hour: int = 0
    """The last hour that was taken, since 1970."""
    model: str = ""
    """Names the target and the drafter of that hour."""

    def read(self, now: float) -> dict[tuple[int, str], list[Cell]]:
        """By (hour, model) the cells of the hours that have ended since the last time, the oldest first.

        Raises:
            InvalidFile: there is no such file, or it is no ledger.
        """
        found: dict[tuple[int, str], list[Cell]] = {}
        rows = read_rows(self.path, LEDGER, _QUERY, (self.hour, int((now - LATE) // 3600)))
        for hour, model, tag, source, position, tested, accepted in rows:
            found.setdefault((hour, model), []).append(Cell(position + 1, source, tag, tested, accepted))
            self.hour, self.model = hour, model
        return found

    def record(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"hour": self.hour, "model": self.model}

    @classmethod
    def of(cls, path: Path, record: Mapping[str, Any] | None) -> LedgerReader:
        """What `record` has kept, or a new one."""
        return cls(path, **(record or {}))
