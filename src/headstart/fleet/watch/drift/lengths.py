"""How long drafts should be after a fall: the best length by theory with acceptance as it is now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.base.options import check_number
from headstart.fleet.watch.drift.levels import CellState
from headstart.theory.speed import VerifyCost, best_k, speedup_by_position


@dataclass(frozen=True, slots=True)
class DraftLength:
    """A shorter draft that is faster now. Speedups are over plain decoding, by theory, for one request at a time."""

    depth: int
    """As it is."""
    best: int
    """As it should be; 0: do not speculate."""
    speedup: float
    """With drafts as long as they are."""
    best_speedup: float

    @property
    def text(self) -> str:
        """What to do, in words."""
        instead = f"instead of {self.speedup:.2f}x of plain decoding by theory"
        if self.best == 0:
            return f"switch speculation off: 1.00x {instead}"
        return f"lower K from {self.depth} to {self.best}: {self.best_speedup:.2f}x {instead}"


def shorter_drafts(cells: Sequence[CellState], depth: int, c: float, v: VerifyCost = None) -> DraftLength | None:
    """The draft length to go down to, or None where it is right as it is, or nothing is known.

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
    if not now:
        return None
    best = best_k(now, c, v, most=depth)
    if best.k >= depth:
        return None
    return DraftLength(depth, best.k, float(speedup_by_position(now, depth, c, v)), best.speedup)


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
