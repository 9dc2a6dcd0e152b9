"""The time of an examination: how much of it is left, and what is being done with it."""

from __future__ import annotations

import time

from headstart.measure.doctor.question import Progress, Question


class Clock:
    """It starts when it is made. What is measured end to end after the examination has time of its own."""

    def __init__(self, question: Question, progress: Progress) -> None:
        self._begin = time.monotonic()
        self._progress = progress
        self._all = question.seconds
        self._further = question.seconds if question.measure else 0.0

    @property
    def spent(self) -> float:
        """Seconds."""
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        """Seconds of the examination, or of what extended it; negative once the time is over."""
        return self._all - self.spent

    def extend(self, seconds: float) -> None:
        """So much from now on, for what is measured end to end."""
        self._all, self._further = self.spent + seconds, 0.0

    def report(self, what: str) -> None:
        """What is done from now on."""
        self._progress(what, 1 - (max(0.0, self.left) + self._further) / (self._all + self._further))
