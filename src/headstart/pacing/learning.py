"""How fast what a step costs is corrected by what steps take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Learning:
    """How fast costs are corrected. An error is the logarithm of measured over expected seconds."""

    level_step: float = 0.1
    """Share of an error that the level takes up, and of the scatter."""
    max_log_error: float = 1.5
    """Most that one step may say: machines hiccup."""
    scatter: float = 0.05
    """Variance of errors to begin with. Steps of an idle machine differ by a tenth (0.01), those that wait for other
    work by a factor of several (1)."""
    doubt: float = 0.04
    """Variance of a cost in a profile: it is right within a fifth or so. Of one that is known, 0.6 of it is left: two
    or three steps on an idle machine, dozens where they scatter."""
    drift: float = 1e-5
    """Variance that a cost gains with every step that meets it. With a scatter of 0.01, costs known for long take up
    0.03 of an error; with a scatter of 1, 0.003."""
    first_steps: int = 6
    """Steps that only set the level, because they warm caches."""
    max_log_correction: float = 2.5
    """Most that the shape is ever corrected by."""
    doubtful_log_level: float = 0.25
    """From such a level on the machine is not what its profile says."""
    plain_every_steps_at_first: int = 16
    """Steps between two plain ones then, until the cost of a plain step is known:"""
    little_doubt: float = 0.002
    """a few of them on an idle machine, dozens where they scatter."""
    plain_every_steps: int = 128
    """The same later."""
    known_drafts: int = 3
    """Drafts of a source that have to be timed before those that had to read first say nothing about their costs."""
    refresh_steps: int = 16
    """Observed steps between two tables."""
    notable_log_change: float = 0.01
    """A correction of a draft's cost above this counts at once, a smaller one from the next table on."""
    first_thinking: float = 0.2
    """Most that the first decision is believed to take, as a share of a plain step: it may have been interrupted."""
    thinking_share: float = 0.05
    """How far one decision moves what decisions are known to take."""


LEARNING = Learning()


class Scatter:
    """How far the errors of one cost scatter: little on an idle machine, and a hundred times as much where forwards
    wait for other work. From one to the next, so that a cost that is wrong does not count as one that scatters."""

    __slots__ = ("variance",)

    def __init__(self) -> None:
        self.variance = LEARNING.scatter

    def observe(self, difference: float) -> None:
        self.variance += LEARNING.level_step * (difference * difference / 2 - self.variance)


class Correction:
    """The logarithm of a true cost over that of a profile, as far as steps have shown it.

    One error moves it by its own variance over that and the scatter of errors (a Kalman filter). So a profile that is
    wrong is mended by a few steps of an idle machine, and waiting for other work, which scatters, moves nothing far.

    Args:
        scatter: of errors, also those of like costs.
    """

    __slots__ = ("_last", "_scatter", "value", "variance")

    def __init__(self, doubt: float, scatter: Scatter) -> None:
        self.value = 0.0
        self.variance = doubt
        self._scatter = scatter
        self._last = 0.0

    def observe(self, error: float, weight: float = 1.0) -> float:
        """An error, of which `weight` is this cost's. Returns the change."""
        before, seen = self.value, self.value + error
        self._scatter.observe(seen - self._last)
        self._last = seen
        share = weight * self.variance / (self.variance + self._scatter.variance)
        self.variance += LEARNING.drift - share * self.variance
        self.value = clipped(before + share * error, LEARNING.max_log_correction)
        return self.value - before


def clipped(value: float, most: float) -> float:
    """The value, between -most and most."""
    return max(-most, min(most, value))
