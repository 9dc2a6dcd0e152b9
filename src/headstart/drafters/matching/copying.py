"""What is copied for one request: from its own text, from texts that it brings along, from an index that all share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headstart.drafters.matching.last_copy import Copied, LastCopy, Match
from headstart.drafters.matching.ngram_index import COMPARED, NgramIndex, alike

if TYPE_CHECKING:
    from headstart.drafters.matching.text_index import TextIndex


class Copying:
    """The longest match of a request's last tokens, wherever it is, and what follows it.

    Args:
        texts: the request's further ones (`Drafting.texts`), the likeliest first.
        lengths: of the n-grams that are looked up in them, longest first.
        factor: most tokens that are copied for each that matches.
    """

    def __init__(self, texts: Sequence[Sequence[int]], lengths: range, index: TextIndex | None, *, factor: int) -> None:
        self._further = tuple(token for text in reversed(texts) for token in text)
        self._ngrams = NgramIndex(lengths)
        self._index = index
        self._factor = factor
        self._last = LastCopy()

    def copy(self, tokens: Sequence[int], more: Sequence[int], own: Match, most: int) -> Copied:
        """What follows the longest match of a text that has `tokens`, and then `more`, which may not come.

        Args:
            own: the longest match in the text itself, as far as the caller has looked. Of equals it is taken before
                further texts, and the place of the last copy before it; an index only where more matches there.
        """
        last = (*tokens[-COMPARED:], *more) if more else tokens
        best = own
        place = 0
        if self._further:
            self._ngrams.extend(self._further)  # a slice each time, until all of it is known
            place = self._ngrams.find(last)
        matched = alike(self._further, place, last)
        if matched > best.matched:
            best = Match(self._further, place, matched)
        if not more:
            followed = self._last.find(tokens)
            if followed.matched and followed.matched >= best.matched:
                best = followed
        copied = None
        if self._index is not None:
            copied = self._index.after(last, best.matched + 1, most)
        if copied is None:
            copied = self._after(best, tokens, more, most)
        if not more:
            self.note(copied.match, len(tokens))
        return copied

    def note(self, match: Match, length: int) -> None:
        """What is drafted after `length` tokens comes from this place, if from anywhere."""
        if match.place:
            self._last.note(match, length)

    def _after(self, match: Match, tokens: Sequence[int], more: Sequence[int], most: int) -> Copied:
        count = most if match.near else min(most, self._factor * match.matched)
        if match.source is not None:
            found = match.source[match.place : match.place + count]
            found = found[: next((i for i, token in enumerate(found) if token < 0), count)]  # an index has ends
        elif match.place:
            period = (*tokens[match.place : match.place + count], *more)
            # The copy may run into its own end: then it goes on with itself, as repeating text does
            found = [period[i % len(period)] for i in range(count)]
        else:
            found = ()
        return Copied(match, found, float(len(found)))
