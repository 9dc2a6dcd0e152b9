"""Drafting all at once (P-EAGLE): behind the text stand mask tokens, and each guesses one token more of the draft.

Row 0 is EAGLE's own, of the pending token and the state before it. The rows behind it are all alike, a mask token with
a state that was learnt in place of the target's, and know of their depth by their position alone. They see the text and
the masks before them, so one forward of the head makes every guess, and the draft is grown on the lattice of its
distributions. The masks' keys and values are scratch.

Source: P-EAGLE (arXiv:2602.01469).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from headstart.drafters import Row
from headstart.drafters.eagle.texts import HeadText, Reader
from headstart.drafters.growing.chains import GrowingChain
from headstart.drafters.growing.lattice import Lattice, grow_on
from headstart.drafters.growing.policy import ChainPolicy, TreePolicy
from headstart.drafters.growing.tree import GrowingTree
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import Draft


class AtOnce:
    """Chains and trees of which all levels together are one forward of the head.

    vocabulary: of the head, where that is a part of the target's.
    """

    def __init__(self, reader: Reader, policy: ChainPolicy | TreePolicy, vocabulary: PartialVocabulary | None) -> None:
        self._reader, self._head, self.policy = reader, reader.head, policy
        self._vocabulary = vocabulary

    def drafts(self, rows: Sequence[Row], rooms: Sequence[int], texts: Sequence[HeadText]) -> list[Draft]:
        """A draft for each row, of at most so many nodes, after a text that has been lined up for it."""
        if not rows:
            return []
        found = [self._begun(row, room) for row, room in zip(rows, rooms, strict=True)]
        depths = [each.budget if isinstance(each, GrowingChain) else each.plan.depth for each in found]
        lattices = self._lattices(rows, texts, depths)
        return [grow_on(lattice, each) for lattice, each in zip(lattices, found, strict=True)]

    def _begun(self, row: Row, room: int) -> GrowingChain | GrowingTree:
        if isinstance(self.policy, ChainPolicy):
            return GrowingChain(row, room, vocabulary=self._vocabulary)
        return GrowingTree(row, room, self.policy.plan(row, room), vocabulary=self._vocabulary)

    def _lattices(self, rows: Sequence[Row], texts: Sequence[HeadText], depths: Sequence[int]) -> list[Lattice]:
        """The distributions after each text, so many deep: one forward."""
        for text in texts:
            self._reader.catch_up(text, self._reader.chunk)
        token = self._head.config.mask_token_id
        assert token is not None, "heads without masks draft step by step"
        masks = [Draft.chain([token] * (depth - 1)) for depth in depths]
        output = self._reader.read_on(texts, masks, self._head.mask_states(max(map(len, masks))))
        lattices = []
        parts = (torch.split(each, list(depths)) for each in (output.logits, output.states))
        for row, logits, states in zip(rows, *parts, strict=True):
            selector = self._head.selector
            shortlists = None if selector is None else selector.shortlists(logits, states)
            lattices.append(Lattice(row, logits, vocabulary=self._vocabulary, shortlists=shortlists))
        return lattices
