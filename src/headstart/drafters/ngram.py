"""N-gram prompt lookup: find the last few tokens earlier in the context and propose what followed them there.

Source: prompt lookup decoding (Saxena 2023), n = `longest` down to `shortest`. The most recent earlier occurrence
wins. It costs microseconds and little memory, and pays on text that quotes itself: edits, summaries, code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headstart.base.options import check_number
from headstart.drafters import BuildContext, Drafter, Row, Weights
from headstart.types import Draft

WEIGHTS: Weights = "none"
SURE = 3
"""Tokens of match that are required where a later drafter does better than a weaker match."""


class NgramDrafter(Drafter):
    """Point-mass chains copied from the request's own context."""

    limit = 31
    draws = False
    copies = True

    def __init__(self, *, longest: int = 3, shortest: int = 1, budget: int | None = None) -> None:
        check_number("shortest", shortest, low=1, integer=True)
        check_number("longest", longest, low=shortest, integer=True)
        self.name = "ngram"
        self.default_budget = 8 if budget is None else budget
        check_number("budget", self.default_budget, low=0, integer=True)
        self._lengths = range(longest, shortest - 1, -1)
        self._indexes: dict[int, _Index] = {}

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [self._one(row) for row in rows]

    def release(self, request: int) -> None:
        self._indexes.pop(request, None)

    def beyond(self, row: Row, tokens: Sequence[int], most: int) -> Draft:
        return self._copy(row, tuple(tokens), most)

    def _one(self, row: Row) -> Draft:
        return self._copy(row, (), row.budget.nodes)

    def _copy(self, row: Row, more: tuple[int, ...], most: int) -> Draft:
        """What followed the last tokens of the row's text and `more`, earlier in the text."""
        index = self._indexes.setdefault(row.request, _Index(self._lengths))
        index.extend(row.tokens)
        after = index.find((*row.tokens[-self._lengths[0] :], *more) if more else row.tokens)
        if after is None:
            return Draft()
        # The copy may run into its own end: then it goes on with itself, as repeating text does
        period = (*row.tokens[after:], *more)
        return replace(Draft.chain([period[i % len(period)] for i in range(most)]), source=self.name)


def build(context: BuildContext) -> NgramDrafter:
    longest, shortest = (3, 1) if context.last else (5, SURE)
    return NgramDrafter(longest=longest, shortest=shortest, budget=context.budget)


class _Index:
    """For each n, where the latest occurrence of each n-gram ended. Each token is indexed once."""

    def __init__(self, lengths: range) -> None:
        self._after: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in lengths}
        self._indexed = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Index all n-grams that something follows: those that end before the last token."""
        for end in range(self._indexed + 1, len(tokens)):
            for n, after in self._after.items():
                if end >= n:
                    after[tuple(tokens[end - n : end])] = end
        self._indexed = max(self._indexed, len(tokens) - 1)

    def find(self, tokens: Sequence[int]) -> int | None:
        """Index of the token that followed the longest matching suffix, or None."""
        for n, after in self._after.items():
            found = after.get(tuple(tokens[-n:])) if len(tokens) >= n else None
            if found is not None:
                return found
        return None
