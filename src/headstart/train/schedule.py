"""How far a run has come, and the learning rate there: a short warm-up, a plateau, a straight line down to zero."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """A run ends after so many optimiser steps or so many minutes of training, whichever is given."""

    steps: int | None = None
    minutes: float | None = None

    def progress(self, steps: int, seconds: float) -> float:
        """Share of the budget that is spent, from 0 to 1."""
        spent = steps / self.steps if self.steps is not None else seconds / (60 * (self.minutes or 1e-9))
        return min(1.0, spent)


def rate(progress: float, steps: int, *, warmup: int = 50, plateau: float = 0.4) -> float:
    """Factor on the learning rate. The decay is tied to the budget, so that it reaches zero exactly at the end."""
    return min(1.0, (steps + 1) / warmup, (1 - progress) / (1 - plateau))


class Clock:
    """Seconds of training, counted on from those of the runs before a resume."""

    def __init__(self, before: float = 0.0) -> None:
        self._origin = time.monotonic() - before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._origin
