"""How much a step reads of prompts: as much as is asked for, or so little that no other request waits long.

The target reads prompts, and so do drafters with a cache of their own, once they are asked to guess. A step's time is
one for both: where both have something to read, each has half.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Protocol

from headstart.types import CaughtUp

MOST_SECONDS = 0.1
"""Of a step that reads while other requests write, so that readers of theirs see the text go on. Where a step takes
nearly half of that without any prompt, it may take twice as long with one, so that prompts are read all the same."""
LEAST = 16
"""Tokens. Rows of a forward cost little beside the weights until there are about so many."""
MOST_OF_DRAFTERS = 8192
"""Tokens. A drafter reads many times as quickly as its target, or copies what that has read."""
_LATEST = 0.25
"""Weight of the latest step without prompts."""
_MARGINS = (0.15, 0.25, 0.6)
"""By how much of what it aimed at a step may last longer: at least, before any is known, and at most, since a step may
have been disturbed."""
_MORE = 1.2
"""How much of what a step needed a margin becomes, so that the next such step finds it wide enough still."""
_WIDENS, _FADES = 0.1, 0.995
"""By how much a margin grows at most for one step that it was too small for, and what is left of it after another."""


class Reading(Protocol):
    """Says how many prompt tokens a step reads, over all requests."""

    def tokens(self, *, beside: bool, at: int = 0) -> int:
        """That the target reads. beside: whether a request writes in this step that may not wait. at: how many tokens
        of its text come before the first of them."""
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
        self._target = _Pace(MOST_SECONDS / min(LEAST, most), most)
        self._drafters: _Pace | None = None  # until one has read something: no slower than the target
        self._plain = 0.0
        self._margin = _MARGINS[1]
        self._at = self._drafters_at = 0  # where the target's piece of this step lies, and the drafters' next one
        self._behind = False  # whether a drafter lacked more in the last step than it was allowed to read
        self._beside = False  # whether anybody waits for this step

    def tokens(self, *, beside: bool, at: int = 0) -> int:
        self._at, self._beside = at, beside
        if not (beside and self._bounded):
            return self.most
        return self._target.tokens(self._left / 2 if self._behind else self._left, at)

    def left_to_drafters(self, *, target_reads: bool) -> int | None:
        if not self._bounded:
            return None
        pace, at = self._drafters or self._target, self._drafters_at
        if not target_reads:
            return pace.tokens(self._left, at)
        return pace.tokens(self._left / 2, at) if self._behind else pace.least

    @property
    def _allowed(self) -> float:
        """Seconds that a step may take with what it reads."""
        return max(MOST_SECONDS / (1 + self._margin), 2 * self._plain)

    @property
    def _left(self) -> float:
        """Seconds that a step may take longer for what it reads."""
        return self._allowed - self._plain

    def took(self, tokens: int, seconds: float, caught_up: Sequence[CaughtUp] = ()) -> None:
        read, at = sum(each.read for each in caught_up), self._drafters_at
        # one that has read nothing waits for the target
        was_behind, self._behind = self._behind, read > 0 and any(each.unread for each in caught_up)
        self._drafters_at = at + read if self._behind else 0
        if not self._bounded or seconds <= 0:
            return
        if not (tokens or read):
            if not was_behind:
                self._plain += (_LATEST if self._plain else 1.0) * (seconds - self._plain)
            return
        allowed, left = self._allowed, self._left
        taken = max(seconds - self._plain, 1e-6)
        late = seconds > allowed
        full = late and tokens + read > LEAST * ((tokens > 0) + (read > 0))  # nobody reads fewer, whatever is aimed at
        if tokens and read:
            # nobody knows whose seconds they were: where they are too many, both read less
            if late:
                for pace in filter(None, (self._target, self._drafters)):
                    pace.slow(taken / left)
        elif tokens:
            full |= self._target.took(tokens, taken, left, self._at, late=late)
        else:
            self._drafters = self._drafters or _Pace(self._target.each, MOST_OF_DRAFTERS)
            full |= self._drafters.took(read, taken, left, at, late=late)
        if full and self._beside:
            least, _, most = _MARGINS
            needed = min(_MORE * (seconds / allowed - 1), self._margin + _WIDENS, most)
            self._margin = max(needed, _FADES * self._margin, least)


class _Pace:
    """How fast one reader reads: the seconds of a token, which grow with the tokens before it, since it attends to all
    of them.

    Args:
        each: seconds of a text's first token, as long as none has been read.
        most: tokens of a step.
    """

    def __init__(self, each: float, most: int) -> None:
        self.each, self.least = each, min(LEAST, most)
        self._most = most
        self._growth = _Growth()

    def tokens(self, seconds: float, at: int) -> int:
        """How many are read in this time after so many others."""
        # n tokens cost each * (n + growth * (n * at + n**2 / 2))
        growth, first = self._growth.each, 1 + self._growth.each * at
        wanted = seconds / self.each
        return min(self._most, max(self.least, round(2 * wanted / (first + sqrt(first**2 + 2 * growth * wanted)))))

    def took(self, tokens: int, seconds: float, left: float, at: int, *, late: bool) -> bool:
        """So many after `at` others took so long, which was too long or not, where `left` seconds were. Returns whether
        fewer could have been read: a short prompt says nothing of long ones."""
        if not late and tokens < self.tokens(left, at):
            return False
        middle = at + tokens / 2
        before = self.each * (1 + self._growth.each * middle)  # seconds of a token, as it was believed
        each = seconds / tokens
        if tokens > 2 * LEAST:  # fewer cost little beside the weights
            self._growth.observe(middle, min(each, 2 * before))
        # by at most twice, since a step may have been disturbed; and less is believed by half
        each = min(each, 2 * before) if each >= before else 2 / (1 / before + min(1 / each, 3 / before))
        self.each = each / (1 + self._growth.each * middle)
        # no less than what the most that is ever read would take: what comes then should be noticed at once
        self.each = max(self.each, left / self._work(self._most, at))
        return tokens > self.least

    def slow(self, times: float) -> None:
        """By so many times, but at most twice: a step may have been disturbed."""
        self.each *= min(times, 2.0)

    def _work(self, tokens: int, at: int) -> float:
        """What so many tokens cost after so many others, in first tokens of a text."""
        return tokens * (1 + self._growth.each * (at + tokens / 2))


class _Growth:
    """By which part of a text's first token each later one costs more than the one before it: the slope of a line
    through what tokens cost at their places, by least squares. It changes slowly, however fast the machine is now."""

    _KEPT = 0.98
    """Of what was seen, at each new piece."""
    _DOUBT = 300.0**2
    """Places squared: pieces that lie closer together say little of a slope."""

    def __init__(self) -> None:
        self.each = 0.0
        self._sums = [0.0] * 5  # of 1, place, cost, place squared, place times cost

    def observe(self, place: float, cost: float) -> None:
        new = (1.0, place, cost, place * place, place * cost)
        self._sums = [self._KEPT * old + one for old, one in zip(self._sums, new, strict=True)]
        count, places, costs, squares, products = self._sums
        at, mean = places / count, costs / count
        slope = max(0.0, products / count - at * mean) / (squares / count - at * at + self._DOUBT)
        self.each = slope / max(mean - slope * at, mean / 8)
