"""What is known of a fall (level, size, cells), how a detector is set, and the best draft length after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from headstart.base.options import check_fields, check_number, option, strict
from headstart.theory.speed import VerifyCost, best_k, speedup_by_position
from headstart.theory.statistics import Interval


class Level(IntEnum):
    """What is known of a fall. They are ordered."""

    NONE = 0
    SUSPECTED = 1
    PROVED = 2

    @property
    def text(self) -> str:
        return self.name.lower()


@strict
@dataclass(frozen=True, slots=True)
class Settings:
    """How a detector watches."""

    mean_windows_to_false_alarm: float = option(
        10_000.0, "While nothing has changed, an alarm comes after so many windows at the earliest, on average.", low=2
    )
    drop: float = option(0.05, "Proved is a fall by more than this share of the baseline.", low=0.0, high=0.9)
    learning: int = option(
        48,
        "Windows from which the baseline is learned; up to four times as many where neighbouring windows are alike.",
        low=12,
    )
    least_spread: float = option(
        1.0,
        "Count this many tests at least as one. With the most tested guesses of a request no estimate of it is needed.",
        low=1,
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class CellState:
    """One cell as it stands."""

    position: int
    source: str
    tag: str
    depth: int | None
    state: str
    """One of "watched", "learning", and "longer drafts": those test other guesses than were learnt from, so that
    nothing is said."""
    expected: float
    """NaN while it is learnt."""
    drop: Interval
    """By how much it lies under that since its fall began, as a share; negative above it, NaN unknown."""
    evidence: float
    """Its part of the detector's evidence that acceptance is under the baseline."""
    began: int
    """The window in which the fall, if it is one, began."""
    tested: int = 0
    """Guesses since then."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How large the fall is."""

    drop: Interval
    """Of all cells that were learnt together, as a share of the baseline; those with the most evidence."""
    began: int
    """The window in which it began, by the same estimate."""
    cells: tuple[CellState, ...]
    """The cells with the most evidence first."""


def shorter_drafts(cells: Sequence[CellState], depth: int, c: float, v: VerifyCost = None) -> str:
    """The draft length to go down to, in words, with speedups over plain decoding, by theory, for one request at a
    time. Empty where it is right as it is, or nothing is known.

    Args:
        cells: of the detector's estimate.
        depth: the draft length now.
        c: what drafting a token costs, in plain steps.
        v: what a forward of n rows costs, as `headstart.theory.best_k` takes it.

    Raises:
        InvalidOption: a depth or cost that cannot be.
    """
    check_number("depth", depth, low=1, integer=True)
    now = acceptance_now(cells)
    best = best_k(now, c, v, most=depth) if now else None
    if best is None or best.k >= depth:
        return ""
    instead = f"instead of {float(speedup_by_position(now, depth, c, v)):.2f}x of plain decoding by theory"
    if best.k == 0:
        return f"switch speculation off: 1.00x {instead}"
    return f"lower K from {depth} to {best.k}: {best.speedup:.2f}x {instead}"


def acceptance_now(cells: Sequence[CellState]) -> list[float]:
    """Conditional acceptance by position since it fell, over all tags and sources, up to the last that is known."""
    sums: dict[int, tuple[float, float]] = {}
    for cell in cells:
        if cell.tested and math.isfinite(cell.drop.value):
            tested, accepted = sums.get(cell.position, (0.0, 0.0))
            now = cell.expected * (1 - cell.drop.value)
            sums[cell.position] = tested + cell.tested, accepted + cell.tested * now
    found: list[float] = []
    while (position := len(found) + 1) in sums:
        tested, accepted = sums[position]
        found.append(min(1.0, max(0.0, accepted / tested)))
    return found
