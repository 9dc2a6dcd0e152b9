"""Suffix drafting: what followed, the last times the text stood like this, here or in past outputs.

The longest suffixes of a request's text that occur earlier, in the text itself or in a store of past outputs, are
looked up in a `SuffixTrie`; from there the likeliest continuations are followed, each with its share of the cases as an
estimate of its probability. The draft whose shares add up to most expected tokens is proposed: a chain, or a tree of
the likeliest nodes. Costs microseconds, no weights, and pays where text repeats itself or former answers: edits,
summaries, agents.

Source: SuffixDecoding (arXiv:2411.04975).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from headstart.drafters import BuildContext, Drafter, Observation, Row, Weights
from headstart.drafters.matching.suffix_store import SuffixStore
from headstart.drafters.matching.suffix_trie import Continuation, Place, SuffixTrie, Text
from headstart.options import check_number
from headstart.types import Draft

WEIGHTS: Weights = "none"
SURE = 3
"""Tokens of match that are asked for where a drafter further back does better on a weaker match."""

LONGEST = 16
"""Tokens of context that are looked up in the store."""
_SLOW = 0.03
LEAST = 0.1
"""Continuations of a lower estimated probability are not drafted."""


class SuffixDrafter(Drafter):
    """Point masses copied from the request's own text and from past outputs.

    Args:
        store: of past outputs, to which the outputs of ended requests are added; None looks at the request's own text
            alone.
        tree: draft a tree of the likeliest nodes, instead of the likeliest chain.
        factor: most nodes of a draft for each token of the match it follows; a short match is no promise of a long one.
        shortest: tokens that must match at least.
        budget: nodes per draft where nobody chooses.
    """

    limit = 31
    draws = False
    copies = True
    name = "suffix"

    def __init__(
        self,
        *,
        store: SuffixStore | None = None,
        tree: bool = False,
        factor: float = 2.0,
        shortest: int = 1,
        budget: int = 16,
    ) -> None:
        check_number("factor", factor, above=0)
        check_number("shortest", shortest, low=1, integer=True)
        check_number("budget", budget, low=0, integer=True)
        self.default_budget = budget
        self.store = store
        self._tree = tree
        self._factor = factor
        self._shortest = shortest
        self._hoped = self._got = 4.0
        self._trust = 1.0
        self._rows: dict[int, _Row] = {}
        self._outputs: dict[int, list[int]] = {}

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        return [self._one(context) for context in contexts]

    def observe(self, observation: Observation) -> None:
        step = observation.step
        if step.draft.source == self.name and step.draft.expected is not None:
            # Shares are no probabilities: what stood here once may never come again. How far they are is learnt
            self._hoped += _SLOW * (step.draft.expected / self._trust - self._hoped)
            self._got += _SLOW * (len(step.path) - self._got)
            self._trust = self._got / self._hoped
        if self.store is not None:
            self._outputs.setdefault(step.request, []).extend(step.tokens)

    def release(self, request: int) -> None:
        row, output = self._rows.pop(request, None), self._outputs.pop(request, None)
        if row is not None and output and self.store is not None:
            self.store.add(output, row.salt)

    def _one(self, context: Row) -> Draft:
        row = self._rows.get(context.request)
        if row is None:
            row = self._rows[context.request] = _Row(context.sampling.cache_salt)
        row.follow(context.tokens)
        best, most = Draft(), 0.0
        for trie, place, matched in self._matches(row, context):
            nodes = min(context.budget.nodes, math.ceil(self._factor * matched))
            # Its own text may be followed round and round; a past one has ended
            draft, expected = (_tree if self._tree else _chain)(trie, place, nodes, loop=trie is row.trie)
            if expected > most:
                best, most = draft, expected
        if not len(best):
            return best
        return replace(best, expected=most * (1.0 if context.reproducible else self._trust))

    def _matches(self, row: _Row, context: Row) -> Iterator[tuple[SuffixTrie, Place, int]]:
        """Where suffixes of the text stand in the tries, and their lengths: the longest, half of that, and so on."""
        for length in self._lengths(len(row.text.ends) - 1):
            yield row.trie, Place(row.text.ends[length]), length
        past = None if self.store is None or context.reproducible else self.store.trie(row.salt)
        if past is None:
            return
        tokens = context.tokens
        for length in self._lengths(past.longest(tokens, min(LONGEST, past.depth))):
            place = past.find(tokens[len(tokens) - length :])
            if place is not None:
                yield past, place, length

    def _lengths(self, longest: int) -> Iterator[int]:
        while longest >= self._shortest:
            yield longest
            longest //= 2


def build(context: BuildContext) -> SuffixDrafter:
    return SuffixDrafter(store=context.store, shortest=1 if context.last else SURE, **context.given("budget"))


class _Row:
    """One request's own text."""

    def __init__(self, salt: str) -> None:
        self.salt = salt
        self.trie = SuffixTrie()
        self.text = Text()

    def follow(self, tokens: Sequence[int]) -> None:
        self.trie.extend(self.text, tokens[len(self.text.tokens) :])


def _chain(trie: SuffixTrie, place: Place, nodes: int, *, loop: bool) -> tuple[Draft, float]:
    """The likeliest continuation, token by token, and how many of its tokens should be accepted."""
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
    return Draft.chain(tokens), expected


def _tree(trie: SuffixTrie, place: Place, nodes: int, *, loop: bool) -> tuple[Draft, float]:
    """The likeliest nodes, parents before children, and how many tokens should be accepted."""
    tokens: list[int] = []
    parents: list[int] = []
    paths: list[tuple[int, ...]] = []
    expected = 0.0
    waiting: list[tuple[float, int, int, Continuation]] = []
    met = 0

    def open_(node: int, chance: float, at: Place, path: tuple[int, ...]) -> None:
        nonlocal met
        for one in trie.after(at, path if loop else ()):
            if chance * one.share >= LEAST:
                heapq.heappush(waiting, (-chance * one.share, met, node, one))
                met += 1

    open_(-1, 1.0, place, ())
    while waiting and len(tokens) < nodes:
        minus, _, parent, one = heapq.heappop(waiting)
        path = (*(paths[parent] if parent >= 0 else ()), one.token)
        tokens.append(one.token)
        parents.append(parent)
        paths.append(path)
        expected -= minus
        open_(len(tokens) - 1, -minus, one.place, path)
    return Draft(tuple(tokens), tuple(parents)), expected
