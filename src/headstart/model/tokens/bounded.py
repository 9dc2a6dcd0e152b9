"""Tokenizing no more of a text than matters: a tokenizer takes a second and 200 MB for each megabyte."""

from __future__ import annotations

from collections.abc import Callable, Sequence

CHARACTERS_PER_TOKEN = 8
"""More than texts have on average; of single tokens there is no bound: some tokenizers shorten runs of spaces."""
_LEAST = 4096
"""Characters that are tokenized in any case."""


def ids_unless_far_too_many(ids: Callable[[str], Sequence[int]], text: str, most: int) -> tuple[int, ...] | None:
    """The token ids of a text. None if they are certainly more than `most`; then only its beginning was tokenized.

    The beginning is tokenized as far as `most` tokens usually reach, then twice as far, and so on until it has more
    than twice as many. What follows a text can change the tokens at its end, but cannot halve their number.
    """
    end = max(_LEAST, CHARACTERS_PER_TOKEN * most)
    while end < len(text):
        if len(ids(text[:end])) > 2 * most:
            return None
        end *= 2
    return tuple(ids(text))
