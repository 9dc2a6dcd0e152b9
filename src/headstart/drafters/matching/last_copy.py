"""The place that a text was last copied from, and where it goes on there once it has left it.

An edit repeats a passage with changes: the new text leaves the old one at each of them and comes back to it a few
tokens further on. The last token or two are then found in many places, and the one near the place where the copy
broke off is the likeliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.drafters.matching.ngram_index import alike

BEFORE = 4
"""Tokens before the place where the text has left, in which it may come back."""
NEAR = 24
"""Tokens behind that place in which it may come back, and of text in which it may do so."""
PASSAGE = 8
"""Tokens that a text must have repeated from a place to be looked for near it."""
STRONG = 6
"""Tokens of a match elsewhere that end the search for a text that has left its last place."""


@dataclass(frozen=True, slots=True)
class Match:
    """The last tokens of a text, somewhere."""

    source: Sequence[int] | None = None
    """Where they are; None is the text itself."""
    place: int = 0
    """The token of the source that follows them."""
    matched: int = 0
    """How many of them are there, up to `COMPARED`; 0 for none."""
    near: bool = False
    """Whether it is near the place where a long copy broke off, which says more than its few tokens."""


NO_MATCH = Match()


@dataclass(frozen=True, slots=True)
class Copied:
    """What goes on after a match, and how many tokens of it should be right."""

    match: Match
    tokens: Sequence[int] = ()
    expected: float = 0.0


class LastCopy:
    """Of one request."""

    def __init__(self) -> None:
        self._source: Sequence[int] | None = None
        self._at: int | None = None  # the token of the source that should come next; None where nothing is followed
        self._repeated = 0  # tokens of the source that the text has repeated so far
        self._read = 0  # tokens of the text that have been looked at
        self._left = 0  # of these, tokens since the text has left the source
        self._back = False  # whether it has just come back
        self._found = NO_MATCH

    def find(self, tokens: Sequence[int]) -> Match:
        """Where the text is in the source now: behind what it has just repeated, or where it may have come back. All of
        the text is given."""
        self._found = NO_MATCH if self._at is None else self._followed(tokens, self._at)
        return self._found

    def _followed(self, tokens: Sequence[int], at: int) -> Match:
        source = tokens if self._source is None else self._source
        new = tokens[self._read :]
        right = 0
        while right < min(len(new), len(source) - at) and new[right] == source[at + right]:
            right += 1
        self._at = at = at + right
        self._read = len(tokens)
        self._repeated += right
        if new:
            self._back = self._left > 0 and right == len(new)  # to the very place: something was put in
            self._left = 0 if right == len(new) else self._left + len(new) - right
        if not self._left:
            return Match(self._source, at, alike(source, at, tokens), near=self._back)
        if self._left > NEAR or self._repeated < PASSAGE:
            self._at = None
            return NO_MATCH
        return self._near(source, at, tokens)

    def _near(self, source: Sequence[int], left: int, tokens: Sequence[int]) -> Match:
        """The most of the last tokens near the place where the text has left, of equals the first. Not just there: what
        follows there did not come."""
        best = NO_MATCH
        for place in range(max(1, left - BEFORE + 1), min(left + NEAR + 1, len(source))):
            if place != left and source[place - 1] == tokens[-1]:
                matched = alike(source, place, tokens)
                if matched > best.matched:
                    best = Match(self._source, place, matched, near=True)
        return best

    def note(self, match: Match, length: int) -> None:
        """What is drafted comes from this place, after `length` tokens of text. A weak match elsewhere does not end the
        search for a text that has left its last place."""
        if match is self._found:
            if match.near:
                self._repeated = max(match.matched, self._repeated // 2)  # so that few wrong guesses end it
                self._back = False
            self._at, self._left = match.place, 0
        elif self._at is None or not self._left or match.matched >= STRONG:
            self._source, self._at, self._repeated, self._left = match.source, match.place, match.matched, 0
        self._read = length
