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
"""Tokens of a match that is taken before a later drafter is asked. After fewer a draft says how much it expects."""
_SLOW = 0.05
"""What one draft changes of what is expected of such drafts."""


class NgramDrafter(Drafter):
    """Point-mass chains copied from the request's own context, from its further texts, or from an index.

    Args:
        longest, shortest: tokens of the matches that are looked for.
        sure: tokens of a match whose draft is taken as it is. A draft after fewer says how many of such drafts' tokens
            were accepted so far, so that in a list a later drafter that should do better is asked.
        index: of texts that all requests share.
        budget: nodes of a draft where the user chooses no number.
    """

    limit = 31
    draws = False
    copies = True

    def __init__(
        self,
        *,
        longest: int = 3,
        shortest: int = 1,
        sure: int = 1,
        index: TextIndex | None = None,
        budget: int | None = None,
    ) -> None:
        check_number("shortest", shortest, low=1, integer=True)
        check_number("longest", longest, low=shortest, integer=True)
        self.name = "ngram"
        self.default_budget = 8 if budget is None else budget
        check_number("budget", self.default_budget, low=0, integer=True)
        check_number("sure", sure, low=1, integer=True)
        self._sure = sure
        self._hoped = 0.5
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
        draft = observation.step.draft
        if draft.source == self.name and draft.expected is not None and not draft.forced:
            self._hoped += _SLOW * (len(observation.step.path) - self._hoped)

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
        copied = self._memory(row).after(row.tokens, more, most)
        if not copied.tokens:
            return Draft()
        weak = copied.match.matched < self._sure and not copied.match.near
        # a promised text may not depend on what other requests taught
        expected = (0.0 if row.reproducible else self._hoped) if weak else None
        return replace(Draft.chain(copied.tokens), source=self.name, expected=expected)

    def _memory(self, row: Row) -> _Memory:
        memory = self._memories.get(row.request)
        if memory is None:
            # What has been indexed of a reproducible row's text, and when, must be a matter of the row alone
            known = None if row.reproducible else self._kept.take(row.sampling.cache_salt, row.tokens)
            own = known or NgramIndex(self._lengths)
            memory = self._memories[row.request] = _Memory(row, self._lengths, own, self._index)
        return memory


def build(context: BuildContext) -> NgramDrafter:
    longest, sure = (3, 1) if context.last else (5, SURE)
    return NgramDrafter(longest=longest, sure=sure, index=context.index, budget=context.budget)


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
