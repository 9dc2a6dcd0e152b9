"""`speculation.smooth`: the tokens of a burst shown evenly over the time that a burst takes."""

from __future__ import annotations

import time

LONGEST = 0.05
"""Seconds between two tokens, however slow the model is."""
_SHARE = 0.8
"""Of the time measured: so that showing never falls behind writing."""


class Pace:
    """How long to wait behind each piece of a burst, from how long the last bursts took."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._each = 0.0

    def burst(self, pieces: int) -> float:
        """A burst of so many pieces has come: the seconds to wait behind each of them."""
        now = time.monotonic()
        if self._last is not None and pieces:
            each = (now - self._last) / pieces
            self._each = each if self._each == 0.0 else 0.5 * (self._each + each)
        self._last = now
        return min(_SHARE * self._each, LONGEST) if pieces > 1 else 0.0
