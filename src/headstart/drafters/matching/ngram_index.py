"""Where the last few tokens of a text stand: in the text itself."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.drafters.matching.kept import SLICE

COMPARED = 32
"""Tokens by which matches in different texts are compared."""


class NgramIndex:
    """For each n, where the latest occurrence of each n-gram ended. Each token is indexed once."""

    def __init__(self, lengths: range) -> None:
        self._after: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in lengths}
        self._indexed = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Index the n-grams that something follows, those that end before the last token: as many of them as are
        indexed at once."""
        last = min(len(tokens) - 1, self._indexed + SLICE)
        for end in range(self._indexed + 1, last + 1):
            for n, after in self._after.items():
                if end >= n:
                    after[tuple(tokens[end - n : end])] = end
        self._indexed = max(self._indexed, last)

    def find(self, tokens: Sequence[int]) -> int:
        """Index of the token that followed the longest matching suffix, or 0."""
        for n, after in self._after.items():
            found = after.get(tuple(tokens[-n:])) if len(tokens) >= n else None
            if found is not None:
                return found
        return 0


def alike(text: Sequence[int], end: int, tokens: Sequence[int]) -> int:
    """How many tokens before text[end] are the last ones of `tokens`, up to `COMPARED`."""
    most = min(end, len(tokens), COMPARED)
    return next((i for i in range(most) if text[end - 1 - i] != tokens[-1 - i]), most)
