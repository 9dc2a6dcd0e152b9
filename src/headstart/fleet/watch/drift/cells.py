"""Counts of a window, which of them are compared with each other, and what acceptance should be, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, NamedTuple

from pydantic import FiniteFloat

from headstart.base.errors import InvalidFile, InvalidOption

Group = tuple[str, str]
"""Source and tag."""


class Key(NamedTuple):
    """What is compared with itself alone: the same position of the same source's drafts, in requests of one tag."""

    position: int
    """From 1."""
    source: str
    tag: str
    depth: int | None
    """The length of the drafts where it was fixed, None where it varied."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Counts of one window. Cells with the same key add up.

    Raises:
        InvalidOption: a position below 1, or counts that cannot be.
    """

    position: int
    """From 1: the guess right behind the text."""
    source: str = ""
    """Which drafter guessed; empty where the counters do not say."""
    tag: str = ""
    """Of the requests; empty where the counters do not say."""
    tested: int = 0
    """Guesses at this position whose predecessors were all accepted."""
    accepted: int = 0
    """Of them."""
    depth: int | None = None
    """The draft length, if all drafts of the window had the same. Different ones are not compared with each other."""

    def __post_init__(self) -> None:
        if self.position < 1:
            raise InvalidOption(f"position={self.position} does not exist", hint="positions are counted from 1")
        if not 0 <= self.accepted <= self.tested:
            raise InvalidOption(
                f"{self.accepted} of {self.tested} guesses accepted", hint="accepted is 0 to tested, both of one window"
            )

    @property
    def key(self) -> Key:
        return Key(self.position, self.source, self.tag, self.depth)


def by_position(cells: Sequence[Cell]) -> list[Cell]:
    """The cells without their sources and tags, to compare with a baseline that has none."""
    found: dict[tuple[int, int | None], list[int]] = {}
    for cell in cells:
        sums = found.setdefault((cell.position, cell.depth), [0, 0])
        sums[0] += cell.tested
        sums[1] += cell.accepted
    return [Cell(position, "", "", n, a, depth) for (position, depth), (n, a) in found.items()]


def order(key: Key) -> tuple[str, str, int, int]:
    """To sort keys by."""
    return key.tag, key.source, key.depth or 0, key.position


def varied(keys: Sequence[Key] | Mapping[Key, Any]) -> set[Group]:
    """Sources and tags whose drafts varied in length."""
    return {(key.source, key.tag) for key in keys if key.depth is None}


def summed(cells: Sequence[Cell]) -> dict[Key, tuple[int, int]]:
    """Tested and accepted by key, without cells that were not tested."""
    found: dict[Key, tuple[int, int]] = {}
    for cell in cells:
        tested, accepted = found.get(cell.key, (0, 0))
        found[cell.key] = tested + cell.tested, accepted + cell.accepted
    return {key: counts for key, counts in found.items() if counts[0]}


def lengths_of(counts: Mapping[Key, tuple[int, int]]) -> dict[tuple[str, str], float]:
    """How long the drafts of each source and tag were: 1 + r_1 + r_1 r_2 + ..., r the share of accepted guesses behind
    which there was another. It is K where all drafts were K long, and does not depend on how many are accepted."""
    found = {}
    for source, tag in varied(counts):
        length, reached, position = 1.0, 1.0, 1
        while (ahead := counts.get(Key(position + 1, source, tag, None))) is not None:
            accepted = counts.get(Key(position, source, tag, None), (0, 0))[1]
            if not accepted:
                break
            reached *= ahead[0] / accepted
            length += reached
            position += 1
        found[source, tag] = length
    return found


_LEVEL = NormalDist().inv_cdf(0.975)
_HINT = (
    'a position holds "position", "tested", "accepted", "value", "low" and "high", as an export\'s manifest has them'
)


@dataclass(frozen=True, slots=True)
class Expected:
    """The acceptance of one cell."""

    value: FiniteFloat
    low: FiniteFloat
    """Acceptance is compared with this: the baseline is an estimate, too."""
    error: FiniteFloat
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
