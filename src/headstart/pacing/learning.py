"""How fast what a step costs is corrected by what steps take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Learning:
    """How fast costs are corrected. An error is the logarithm of measured over expected seconds."""

    level_step: float = 0.1
    """Share of an error that the level takes up."""
    first_shape_step: float = 0.5
    """Share of an error that the shape takes up where a number of rows is first met."""
    shape_step: float = 0.03
    """The same once it has been met often."""
    max_log_error: float = 0.25
    """Most that one step may say: machines hiccup."""
    max_first_log_error: float = 1.5
    """The same for the first steps."""
    first_steps: int = 6
    """Steps that only set the level, because they warm caches; also those that count as first ones."""
    max_log_correction: float = 2.5
    """Most that the shape is ever corrected by."""
    doubtful_log_level: float = 0.25
    """From such a level on the machine is not what its profile says."""
    plain_every_steps_at_first: int = 16
    """Steps between two plain ones then, until a few of them have been seen."""
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


def step_for_shape(error: float, met: float) -> float:
    """How far to move for an error, by how often the thing was met before."""
    most = LEARNING.max_first_log_error if met < LEARNING.first_steps else LEARNING.max_log_error
    return max(LEARNING.shape_step, LEARNING.first_shape_step / (1 + met)) * clipped(error, most)


def clipped(value: float, most: float) -> float:
    """The value, between -most and most."""
    return max(-most, min(most, value))
