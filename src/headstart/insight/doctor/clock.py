"""The time of an examination: how much of it is left, and what is being done with it."""

from __future__ import annotations

import time

from headstart.insight.doctor.question import Progress, Question


class Clock:
    """It starts when it is made. With a check of the predictions there is twice as much time."""

    def __init__(self, question: Question, progress: Progress) -> None:
        self._begin = time.monotonic()
        self._progress = progress
        self.passes = 2 if question.check else 1
        """How many times the time that was asked for may be taken."""
        self._all = self.passes * question.seconds

    @property
    def spent(self) -> float:
        """Seconds."""
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        """Seconds; negative once the time is over."""
        return self._all - self.spent

    def report(self, what: str) -> None:
        """What is done from now on."""
        self._progress(what, 1 - max(0.0, self.left) / self._all)
