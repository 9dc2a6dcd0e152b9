"""What windows were like while they were learnt from, and the bets on later ones: cell by cell, and on the whole.

All arrays may have leading axes, so that many streams are simulated by the code that watches one. Shapes: C cells,
W windows, L levels, D alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.fleet.watch.drift.evidence import DROPS, Floats, carried, log_growth, spread

ERRORS = 3.0
"""The lower end of a learnt baseline lies so many standard errors under it, so that all of some twenty cells are right
with a chance of 97%."""

LEAST_WINDOWS = 8
"""Independent windows that are learnt from at least."""
PATIENCE = (1, 2, 4)
"""How many times as long as asked it may take to have them; after the last, what there is must do."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Learnt from windows. Without leading axes: [C], and a number for the whole."""

    value: Floats
    """Acceptance; never quite 0 or 1, which would leave no room for chance."""
    error: Floats
    """Its standard error."""
    spread: Floats
    """How many tests count as one."""
    most: Floats
    """The most tests in a window: later windows do not count for more."""
    whole_spread: Floats
    whole_most: Floats
    """In units of variance."""
    whole_alike: Floats
    """How many neighbouring windows say as much as one."""

    def settled(self, windows: int) -> bool | NDArray[np.bool_]:
        """Whether so many windows were enough: where neighbours are alike, few of them are one and the same request."""
        return np.asarray(self.whole_alike * LEAST_WINDOWS <= windows)

    @property
    def low(self) -> Floats:
        """What acceptance is compared with: the baseline is an estimate, too."""
        return np.maximum(self.value - ERRORS * self.error, 0.0)

    @classmethod
    def of(cls, tested: Floats, accepted: Floats, least_spread: float = 1.0) -> Fit:
        """From counts [..., C, W]. The spread is around the windows' own mean, whatever baseline was given."""
        value = (accepted.sum(-1) + 0.5) / (tested.sum(-1) + 1)
        variance = value * (1 - value)
        scores, scales = accepted - value[..., None] * tested, variance[..., None] * tested
        spreads = np.maximum(spread(scores, scales)[0], least_spread)
        whole, alike = spread(scores.sum(-2), scales.sum(-2))
        return cls(
            value=value,
            error=np.sqrt(spreads * variance / np.maximum(tested.sum(-1), 1)),
            spread=spreads,
            most=tested.max(-1, initial=0.0),
            whole_spread=np.maximum(whole, least_spread),
            whole_most=scales.sum(-2).max(-1, initial=0.0),
            whole_alike=alike,
        )


class Bets:
    """The evidence against each cell's level, `nulls` [..., L, C]: the least mean that is no alarm."""

    def __init__(self, fit: Fit, nulls: Floats) -> None:
        self.fit, self.nulls = fit, nulls
        self.cell_logs = np.full((*nulls.shape, len(DROPS)), -np.inf)
        self.whole_logs = np.full((*nulls.shape[:-1], len(DROPS)), -np.inf)

    def bet(
        self, tested: Floats, accepted: Floats, cell_start: ArrayLike, whole_start: ArrayLike
    ) -> tuple[Floats, Floats]:
        """Bet on a window [..., C]. What was not tested is left as it was.

        Args:
            tested: guesses that were tested.
            accepted: of them.
            cell_start: share of this window's beginning for each cell, a number or [...].
            whole_start: the same for the whole.

        Returns:
            The growth's logarithms, [..., L, C, D] and [..., L, D].
        """
        fit, n, a = self.fit, tested[..., None, :], accepted[..., None, :]
        growth = log_growth(n, a, self.nulls, np.minimum(tested, fit.most)[..., None, :] / fit.spread[..., None, :])
        start = np.asarray(cell_start, dtype=float)[..., None, None, None]
        held = tested[..., None, :, None] > 0
        self.cell_logs = np.where(held, carried(self.cell_logs, growth, start), self.cell_logs)
        scale = (tested * fit.value * (1 - fit.value)).sum(-1)
        share = np.minimum(1.0, fit.whole_most / np.maximum(scale, 1e-9)) / fit.whole_spread
        whole = log_growth(n, a, self.nulls, (tested * share[..., None])[..., None, :]).sum(-2)
        start = np.asarray(whole_start, dtype=float)[..., None, None]
        self.whole_logs = np.where(held.any(-2), carried(self.whole_logs, whole, start), self.whole_logs)
        return growth, whole

    @property
    def logs(self) -> Floats:
        """[..., L, (C + 1) D]: all of them, to be added up."""
        flat = self.cell_logs.reshape(*self.cell_logs.shape[:-2], -1)
        return np.concatenate([flat, self.whole_logs], axis=-1)
