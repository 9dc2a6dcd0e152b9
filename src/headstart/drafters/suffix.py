"""Suffix drafting: copy what followed earlier occurrences of the text's last tokens, here or in past outputs.

The longest suffixes of a request's text that occur earlier, in the text itself or in a store of past outputs, are
looked up in a `SuffixTrie`; from there the likeliest continuations are followed, each with its share of the cases as an
estimate of its probability. The chain whose shares add up to most expected tokens is proposed. It costs microseconds,
needs no weights, and pays where text repeats itself or former answers: edits, summaries, agents. A request's further
texts (`Drafting.texts`), and an index that all requests share, are copied where they match more of it than it does
itself.

Source: SuffixDecoding (arXiv:2411.04975).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headstart.base.options import check_number
from headstart.drafters import BuildContext, Drafter, Observation, Row, Weights
from headstart.drafters.matching.copying import Copying
from headstart.drafters.matching.kept import SLICE, KeptMemories, read_of_prompt
from headstart.drafters.matching.last_copy import Copied, Match
from headstart.drafters.matching.ngram_index import COMPARED
from headstart.drafters.matching.suffix_store import SuffixStore
from headstart.drafters.matching.suffix_trie import Place, SuffixTrie, Text
from headstart.types import Draft

if TYPE_CHECKING:
    from headstart.drafters.matching.text_index import TextIndex

WEIGHTS: Weights = "none"
SURE = 3
"""Tokens of match that are required where a later drafter does better than a weaker match."""
LONGEST = 16
"""Tokens of context that are looked up in the store."""
_SLOW = 0.03
FACTOR = 2
"""Most nodes of a draft for each token of the match it follows: a short match does not promise a long one."""
LEAST = 0.1
"""Continuations of a lower estimated probability are not drafted."""


class SuffixDrafter(Drafter):
    """Point masses copied from the request's own text and from past outputs.

    Args:
        store: of past outputs, to which the outputs of ended requests are added; None looks at the request's own text
            alone.
        shortest: tokens that must match at least.
        index: of texts that all requests share.
        budget: nodes per draft where the user chooses no number; None is 16.
    """

    limit = 31
    draws = False
    copies = True
    name = "suffix"

    def __init__(
        self,
        *,
        store: SuffixStore | None = None,
        shortest: int = 1,
        index: TextIndex | None = None,
        budget: int | None = None,
    ) -> None:
        check_number("shortest", shortest, low=1, integer=True)
        self.default_budget = 16 if budget is None else budget
        check_number("budget", self.default_budget, low=0, integer=True)
        self.store = store
        self._shortest = shortest
        self._index = index
        self._hoped = self._got = 4.0
        self._trust = 1.0
        self._memories: dict[int, _Memory] = {}
        self._kept: KeptMemories[tuple[SuffixTrie, Text]] = KeptMemories()
        self._outputs: dict[int, list[int]] = {}

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [self._one(row) for row in rows]

    def observe(self, observation: Observation) -> None:
        step, row = observation.step, observation.row
        read = read_of_prompt(self, observation)
        if read and row is not None:
            self._memory(row).follow(row.tokens[:read])
        if step.draft.source == self.name and step.draft.expected is not None and not step.draft.forced:
            # Shares are no probabilities: what stood here once may never come again. How far they are is learnt
            self._hoped += _SLOW * (step.draft.expected / self._trust - self._hoped)
            self._got += _SLOW * (len(step.path) - self._got)
            self._trust = self._got / self._hoped
        if self.store is not None:
            self._outputs.setdefault(step.request, []).extend(step.tokens)

    def release(self, request: int) -> None:
        memory, output = self._memories.pop(request, None), self._outputs.pop(request, None)
        if memory is None:
            return
        self._kept.keep(memory.salt, memory.text.tokens, (memory.trie, memory.text))
        if output and self.store is not None:
            self.store.add(output, memory.salt)

    def beyond(self, row: Row, tokens: Sequence[int], most: int) -> Draft:
        memory = self._memory(row)
        if not memory.reaches(row.tokens):
            return Draft()
        text = (*row.tokens[-COMPARED:], *tokens)
        trie = memory.trie
        longest = trie.longest(text, min(LONGEST, trie.depth))
        copied = memory.copied(row.tokens, tokens, longest, LONGEST, most)
        if copied is not None:
            return replace(Draft.chain(copied.tokens), source=self.name)
        for length in self._lengths(longest):
            place = trie.find(text[len(text) - length :])
            if place is not None:
                draft, _, _ = _chain(trie, place, min(most, FACTOR * length), loop=False)
                if len(draft):
                    return replace(draft, source=self.name)
        return Draft()

    def _memory(self, row: Row) -> _Memory:
        memory = self._memories.get(row.request)
        if memory is None:
            # What has been indexed of a reproducible row's text, and when, must be a matter of the row alone
            kept = None if row.reproducible else self._kept.take(row.sampling.cache_salt, row.tokens)
            trie, text = kept or (SuffixTrie(), Text())
            memory = self._memories[row.request] = _Memory(row, self._shortest, self._index, trie, text)
        return memory

    def _one(self, row: Row) -> Draft:
        memory = self._memory(row)
        if not memory.reaches(row.tokens):
            return Draft()
        own = len(memory.text.ends) - 1
        copied = memory.copied(row.tokens, (), own, memory.trie.depth - 1, row.budget.nodes)
        best, most = Draft(), 0.0
        if copied is not None:
            best, most = Draft.chain(copied.tokens), copied.expected
        for trie, place, matched in self._matches(memory, row):
            nodes = min(row.budget.nodes, FACTOR * matched)
            # Its own text may be followed round and round; a past one has ended
            draft, expected, start = _chain(trie, place, nodes, loop=trie is memory.trie)
            if expected > most:
                best, most = draft, expected
                if trie is memory.trie and start:
                    memory.copying.note(Match(None, start, matched), len(row.tokens))
        if not len(best):
            return best
        return replace(best, expected=most * (1.0 if row.reproducible else self._trust))

    def _matches(self, memory: _Memory, row: Row) -> Iterator[tuple[SuffixTrie, Place, int]]:
        """Where suffixes of the text stand in the tries, and their lengths: the longest, half of that, and so on."""
        for length in self._lengths(len(memory.text.ends) - 1):
            yield memory.trie, Place(memory.text.ends[length]), length
        past = None if self.store is None or row.reproducible else self.store.trie(memory.salt)
        if past is None:
            return
        tokens = row.tokens
        for length in self._lengths(past.longest(tokens, min(LONGEST, past.depth))):
            place = past.find(tokens[len(tokens) - length :])
            if place is not None:
                yield past, place, length

    def _lengths(self, longest: int) -> Iterator[int]:
        while longest >= self._shortest:
            yield longest
            longest //= 2


def build(context: BuildContext) -> SuffixDrafter:
    store = SuffixStore() if context.store == "auto" else context.store
    return SuffixDrafter(store=store, shortest=1 if context.last else SURE, index=context.index, budget=context.budget)


class _Memory:
    """One request's own text, and its further ones."""

    def __init__(self, row: Row, shortest: int, index: TextIndex | None, trie: SuffixTrie, text: Text) -> None:
        self.salt = row.sampling.cache_salt
        self.trie = trie
        self.text = text
        self._asked = 0  # tokens of the text when a draft was wanted last
        lengths = range(max(SURE, shortest), shortest - 1, -1)
        self.copying = Copying(row.drafting.texts, lengths, index, factor=FACTOR)

    def follow(self, tokens: Sequence[int]) -> None:
        """Index what is new of the text, as much of it as is indexed at once."""
        known = len(self.text.tokens)
        self.trie.extend(self.text, tokens[known : known + SLICE])

    def reaches(self, tokens: Sequence[int]) -> bool:
        """Whether all of the text is indexed, after as much more of it as a step may index."""
        if len(tokens) > self._asked:
            self._asked = len(tokens)
            self.follow(tokens)
        return len(self.text.tokens) == len(tokens)

    def copied(self, tokens: Sequence[int], more: Sequence[int], own: int, known: int, most: int) -> Copied | None:
        """What goes on elsewhere, where more matches than the `own` tokens that the trie has found, of which no more
        than `known` were looked at; None where nothing does."""
        found = Match(None, 0, own if own < known else COMPARED)
        copied = self.copying.copy(tokens, more, found, most)
        return None if copied.match is found else copied


def _chain(trie: SuffixTrie, place: Place, nodes: int, *, loop: bool) -> tuple[Draft, float, int]:
    """The likeliest continuation, token by token, how many of its tokens should be accepted, and where in its text it
    begins, if it is the only one; else 0."""
    tokens: list[int] = []
    chance, expected = 1.0, 0.0
    while len(tokens) < nodes:
        step = max(
            trie.after(place, tokens if loop else ()), key=lambda one: one.share, default=None
        )  # of equals the newest
        if step is None or chance * step.share < LEAST:
            break
        chance *= step.share
        expected += chance
        tokens.append(step.token)
        place = step.place
    return Draft.chain(tokens), expected, max(place.at - len(tokens), 0)
