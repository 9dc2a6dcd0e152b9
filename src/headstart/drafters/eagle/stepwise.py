"""Drafting step by step: the head's own state, fed back with the token that was drafted, goes on from there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.drafters import Row
from headstart.drafters.eagle.texts import HeadText, Reader
from headstart.drafters.growing.grow import GrowingChain, grow_chains, grow_trees
from headstart.drafters.growing.policy import ChainPolicy, TreePolicy
from headstart.drafters.growing.tree import GrowingTree, TopK
from headstart.model.heads.eagle import HeadOutput
from headstart.model.packed import Segment
from headstart.rule.vocabulary import PartialVocabulary
from headstart.theory.trees import Shape
from headstart.types import Draft

SCRATCH = 128
"""Rows behind the text, for the nodes of a tree."""


class Stepwise:
    """Chains and trees of which every level is a forward of the head.

    vocabulary: of the head, where that is a part of the target's.
    """

    def __init__(self, reader: Reader, policy: ChainPolicy | TreePolicy, vocabulary: PartialVocabulary | None) -> None:
        self._reader, self.policy = reader, policy
        self._vocabulary = vocabulary

    def drafts(self, rows: Sequence[Row], rooms: Sequence[int], texts: Sequence[HeadText]) -> list[Draft]:
        """A draft for each row, of at most so many nodes, after a text that has been lined up for it."""
        if isinstance(self.policy, TreePolicy):
            plans = [self.policy.plan(row, room) for row, room in zip(rows, rooms, strict=True)]
            trees = [Growing(*each, self._vocabulary) for each in zip(rows, rooms, plans, texts, strict=True)]
            grow_trees(trees, self._level)
            return [tree.draft() for tree in trees]
        chains = [Chain(*each, None, self._vocabulary) for each in zip(rows, rooms, texts, strict=True)]
        try:
            grow_chains(chains, self._next)
        finally:
            for text in texts:
                self._reader.cache.rewind(text.seat(self._reader.cache), text.read)
        return [chain.draft() for chain in chains]

    def _next(self, live: Sequence[Chain]) -> Tensor:
        """The logits after each chain's last token, or after its text."""
        if not live[0].tokens:  # all of them begin together
            return self._begin(live)
        segments = [Segment(chain.memory.seat(self._reader.cache), (chain.tokens[-1],)) for chain in live]
        logits = self._go_on(live, segments, [chain.states for chain in live])
        for segment in segments:
            self._reader.cache.keep(segment.slot, 1)
        return logits

    def _level(self, live: Sequence[Growing]) -> Tensor:
        """The logits after each tree's fresh nodes."""
        if not live[0].tokens:  # all of them begin together
            return self._begin(live)
        segments = [tree.segment(tree.memory.seat(self._reader.cache)) for tree in live]
        return self._go_on(live, segments, [tree.states_above() for tree in live])

    def _begin(self, live: _Live) -> Tensor:
        """Read what is new in the texts; the last rows begin the drafts."""
        texts = [each.memory for each in live]
        for text in texts:
            self._reader.catch_up(text, self._reader.chunk)
        return self._take(live, self._reader.read(texts), [1] * len(live))

    def _go_on(self, live: _Live, segments: Sequence[Segment], states: Sequence[Tensor]) -> Tensor:
        """Draft on from the head's own states, which were left by the rows before."""
        given = states[0] if len(states) == 1 else torch.cat(tuple(states))
        return self._take(live, self._reader.run(segments, given, own=True), [segment.judged for segment in segments])

    def _take(self, live: _Live, output: HeadOutput, counts: Sequence[int]) -> Tensor:
        """Give each the states to go on from; returns the logits [R, draft V]."""
        parts = [output.states] if len(live) == 1 else torch.split(output.states, list(counts))
        for each, states in zip(live, parts, strict=True):
            each.take(states)
        return output.logits


class Chain(GrowingChain):
    """A chain, and the head's state behind its last token [1, d].

    left: what a head left of all its rows, where heads guess in turn.
    """

    states = left = torch.empty(0)

    @property
    def parents(self) -> Sequence[int]:
        return range(-1, len(self.tokens) - 1)

    @property
    def fresh(self) -> tuple[int, ...]:
        return (len(self.tokens) - 1,)

    def take(self, states: Tensor) -> None:
        self.states = states

    def states_above(self) -> Tensor:
        """Of its last token, the state of the one before."""
        return self.states


class Growing(GrowingTree):
    """A tree, and the head's states behind the nodes that were fed last [n, d].

    left: what a head left of all its rows, where heads guess in turn.
    """

    states = left = torch.empty(0)

    def __init__(
        self, row: Row, budget: int, plan: TopK | Shape, memory: HeadText, vocabulary: PartialVocabulary | None
    ) -> None:
        super().__init__(row, budget, plan, SCRATCH - 1, memory, vocabulary)  # heads in turn feed x0 as well
        self._first = -1

    def take(self, states: Tensor) -> None:
        self.states, self._first = states, self.fresh[0]

    def states_above(self) -> Tensor:
        """Of each fresh node, its parent's; parents are of the level before."""
        above = [self.parents[node] - self._first for node in self.fresh]
        if above == list(range(self.states.shape[0])):
            return self.states
        if not self.states.is_cpu or self.states.requires_grad or self.states.dtype != torch.float32:
            return self.states[above]
        # a tensor of places would cost more than the rows
        return torch.from_numpy(self.states.numpy().take(above, 0))


_Live = Sequence[Chain | Growing]
