"""What may be copied beside a request's own text: texts that it brings along, and an index that all requests share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headstart.drafters.matching.ngram_index import NgramIndex, alike

if TYPE_CHECKING:
    from headstart.drafters.matching.text_index import TextIndex


@dataclass(frozen=True, slots=True)
class Copied:
    """What followed a match, and how many tokens of it should be right; nothing where nothing matched."""

    tokens: Sequence[int] = ()
    expected: float = 0.0


class FurtherTexts:
    """A request's further texts (`Drafting.texts`), as one text in which the likeliest comes last, and the index.

    Args:
        lengths: of the n-grams that are looked up in the request's texts, longest first.
        factor: most tokens that are copied for each that matches.
    """

    def __init__(self, texts: Sequence[Sequence[int]], lengths: range, index: TextIndex | None, *, factor: int) -> None:
        self._tokens = tuple(token for text in reversed(texts) for token in text)
        self._ngrams = NgramIndex(lengths)
        self._ngrams.extend(self._tokens)
        self._index = index
        self._factor = factor

    def copy(self, tokens: Sequence[int], own: int, most: int) -> Copied:
        """What goes on where the most of the last tokens match, if these are more than the `own` tokens that the
        request's own text matches. tokens: of the text, at least its last `COMPARED`."""
        place = self._ngrams.find(tokens) if self._tokens else 0
        matched = alike(self._tokens, place, tokens)
        found = Copied()
        if matched > own:
            copied = self._tokens[place : place + min(most, self._factor * matched)]
            found = Copied(copied, float(len(copied)))
        if self._index is not None:
            copied, matched, expected = self._index.after(tokens, max(own, matched) + 1, most)
            if copied:
                kept = copied[: self._factor * matched]
                found = Copied(kept, expected * len(kept) / len(copied))
        return found
