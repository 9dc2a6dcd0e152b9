"""N-gram prompt lookup: find the last few tokens earlier in the context and propose what followed them there.

Source: prompt lookup decoding (Saxena 2023), n = `longest` down to `shortest`. The most recent earlier occurrence
wins; one in the request's further texts (`Drafting.texts`), or in an index that all requests share, wins over it where
more of the text stands there. It costs microseconds and little memory, and pays on text that quotes itself: edits,
summaries, code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headstart.base.options import check_number
from headstart.drafters import BuildContext, Drafter, Observation, Row, Weights
from headstart.drafters.matching.copying import Copying
from headstart.drafters.matching.kept import KeptMemories, read_of_prompt
from headstart.drafters.matching.last_copy import Copied, Match
from headstart.drafters.matching.ngram_index import COMPARED, NgramIndex, alike
from headstart.types import Draft

if TYPE_CHECKING:
    from headstart.drafters.matching.text_index import TextIndex

WEIGHTS: Weights = "none"
SURE = 3
"""Tokens of match that are required where a later drafter does better than a weaker match."""


class NgramDrafter(Drafter):
    """Point-mass chains copied from the request's own context, from its further texts, or from an index."""

    limit = 31
    draws = False
    copies = True

    def __init__(
        self, *, longest: int = 3, shortest: int = 1, index: TextIndex | None = None, budget: int | None = None
    ) -> None:
        check_number("shortest", shortest, low=1, integer=True)
        check_number("longest", longest, low=shortest, integer=True)
        self.name = "ngram"
        self.default_budget = 8 if budget is None else budget
        check_number("budget", self.default_budget, low=0, integer=True)
        self._lengths = range(longest, shortest - 1, -1)
        self._index = index
        self._memories: dict[int, _Memory] = {}
        self._kept: KeptMemories[NgramIndex] = KeptMemories()

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [self._one(row) for row in rows]

    def observe(self, observation: Observation) -> None:
        read, row = read_of_prompt(self, observation), observation.row
        if read and row is not None:
            self._memory(row).own.extend(row.tokens[:read])

    def release(self, request: int) -> None:
        memory = self._memories.pop(request, None)
        if memory is not None:
            self._kept.keep(memory.salt, memory.tokens, memory.own)

    def beyond(self, row: Row, tokens: Sequence[int], most: int) -> Draft:
        return self._copy(row, tuple(tokens), most)

    def _one(self, row: Row) -> Draft:
        return self._copy(row, (), row.budget.nodes)

    def _copy(self, row: Row, more: tuple[int, ...], most: int) -> Draft:
        """What followed the last tokens of the row's text and `more`, earlier in the text or in the further ones."""
        tokens = self._memory(row).after(row.tokens, more, most).tokens
        return replace(Draft.chain(tokens), source=self.name) if tokens else Draft()

    def _memory(self, row: Row) -> _Memory:
        memory = self._memories.get(row.request)
        if memory is None:
            # What has been indexed of a reproducible row's text, and when, must be a matter of the row alone
            known = None if row.reproducible else self._kept.take(row.sampling.cache_salt, row.tokens)
            own = known or NgramIndex(self._lengths)
            memory = self._memories[row.request] = _Memory(row, self._lengths, own, self._index)
        return memory


def build(context: BuildContext) -> NgramDrafter:
    longest, shortest = (3, 1) if context.last else (5, SURE)
    return NgramDrafter(longest=longest, shortest=shortest, index=context.index, budget=context.budget)


class _Memory:
    """What may be copied for one request: its own text, as far as it is indexed, and its further ones."""

    def __init__(self, row: Row, lengths: range, own: NgramIndex, index: TextIndex | None) -> None:
        self.salt = row.sampling.cache_salt
        self.own = own
        self.tokens: tuple[int, ...] = ()
        self._copying = Copying(row.drafting.texts, lengths, index, factor=NgramDrafter.limit)

    def after(self, tokens: tuple[int, ...], more: tuple[int, ...], most: int) -> Copied:
        """What followed the longest match of a text that has `tokens`, then `more`: the latest of its own, or one
        elsewhere."""
        if len(tokens) > len(self.tokens):  # else it is asked again in the same step
            self.own.extend(tokens)
            self.tokens = tokens
        last = (*tokens[-COMPARED:], *more) if more else tokens
        place = self.own.find(last)
        return self._copying.copy(tokens, more, Match(None, place, alike(tokens, place, last)), most)
