"""How much a step reads of prompts: as much as is asked for, or so little that no other request waits long.

The target reads prompts, and so do drafters with a cache of their own, once they are asked to guess. A step's time is
one for both: where both have something to read, each has half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headstart.types import CaughtUp

MOST_SECONDS = 0.08
"""Of a step that reads while other requests write, so that readers of theirs see the text go on within a tenth of a
second although steps scatter. Where a step takes more than half of that without any prompt, it may take twice as long
with one, so that prompts are read all the same."""
LEAST = 16
"""Tokens. Rows of a forward cost little beside the weights until there are about so many."""
MOST_OF_DRAFTERS = 8192
"""Tokens. A drafter reads many times as quickly as its target, or copies what that has read."""
_LATEST = 0.25
"""Weight of the latest step without prompts."""


class Reading(Protocol):
    """Says how many prompt tokens a step reads, over all requests."""

    def tokens(self, *, beside: bool) -> int:
        """That the target reads. beside: whether a request writes in this step that may not wait."""
        ...

    def left_to_drafters(self, *, target_reads: bool) -> int | None:
        """That drafters read, in a step in which somebody writes who would wait for them; None where that is no matter.
        target_reads: whether the target reads prompts in this step."""
        ...

    def took(self, tokens: int, seconds: float, caught_up: Sequence[CaughtUp] = ()) -> None:
        """Learn from a step, the drafter's part included. tokens: of prompts, among the rows of the target's forward.
        caught_up: what drafters read."""
        ...


class Chunks(Reading):
    """As many as are read in a given time, so that nobody waits long.

    Args:
        most: so many where nobody writes.
        bounded: whether they are fewer where somebody does. Where the width of a forward changes the bits of its rows,
            a text would depend on the clock then.
    """

    def __init__(self, most: int, *, bounded: bool) -> None:
        self.most = most
        self._bounded = bounded
        # nobody has seen yet how fast prompts are read
        self._target = _Bound(min(LEAST, most) if bounded else most, most)
        self._drafters: _Bound | None = None  # until one has read something: no slower than the target
        self._plain = 0.0
        self._behind = False  # whether a drafter lacked more in the last step than it was allowed to read

    def tokens(self, *, beside: bool) -> int:
        if not (beside and self._bounded):
            return self.most
        return self._target.half if self._behind else round(self._target.tokens)

    def left_to_drafters(self, *, target_reads: bool) -> int | None:
        if not self._bounded:
            return None
        bound = self._drafters or self._target
        if not target_reads:
            return round(bound.tokens)
        return bound.half if self._behind else bound.least

    def took(self, tokens: int, seconds: float, caught_up: Sequence[CaughtUp] = ()) -> None:
        read = sum(each.read for each in caught_up)
        # one that has read nothing waits for the target
        was_behind, self._behind = self._behind, read > 0 and any(each.unread for each in caught_up)
        if not self._bounded or seconds <= 0:
            return
        if tokens and read:
            self._took_both(seconds)
        elif tokens:
            self._target.took(tokens, seconds, self._plain)
        elif read:
            self._drafters = self._drafters or _Bound(self._target.tokens, MOST_OF_DRAFTERS)
            self._drafters.took(read, seconds, self._plain)
        elif not was_behind:
            self._plain += (_LATEST if self._plain else 1.0) * (seconds - self._plain)

    def _took_both(self, seconds: float) -> None:
        """Of two that have read nobody knows whose seconds they were: where they are too many, both read less."""
        allowed = _allowed(self._plain)
        if seconds > allowed:
            share = (allowed - self._plain) / (seconds - self._plain)
            self._target.shrink(share)
            if self._drafters is not None:
                self._drafters.shrink(share)


class _Bound:
    """The tokens that one reader may read in a step, learnt from how fast it has read."""

    def __init__(self, tokens: float, most: int) -> None:
        self.tokens = float(tokens)
        self.least = min(LEAST, most)
        self._most = most

    @property
    def half(self) -> int:
        """Where another reader has the other half of a step's time."""
        return max(self.least, round(self.tokens / 2))

    def took(self, tokens: int, seconds: float, plain: float) -> None:
        """A step that read so many took this long, and takes `plain` seconds where it reads none."""
        allowed = _allowed(plain)
        if seconds <= allowed and tokens < round(self.tokens):
            return  # a short prompt says nothing of long ones
        wanted = tokens * (allowed - plain) / max(seconds - plain, 1e-6)
        if wanted < self.tokens:
            wanted = max(wanted, self.tokens / 2)  # a step may have been disturbed
        else:
            wanted = (self.tokens + min(wanted, 3 * self.tokens)) / 2
        self.tokens = min(self._most, max(self.least, wanted))

    def shrink(self, share: float) -> None:
        """To this share, but by at most half: a step may have been disturbed."""
        self.tokens = max(self.least, self.tokens * max(share, 0.5))


def _allowed(plain: float) -> float:
    """Seconds that a step may take with what it reads, if it takes so many without."""
    return max(MOST_SECONDS, 2 * plain)
