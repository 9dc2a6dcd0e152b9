"""What is known of a fall: its level, its size, and the cells it comes from; and how a detector is set."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from headstart.base.options import check_fields, option, strict
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
        "Windows from which is learnt what is normal; up to four times as many where neighbouring windows are alike.",
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
