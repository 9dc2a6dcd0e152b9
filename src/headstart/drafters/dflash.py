"""DFlash and DSpark: a few layers guess a block of tokens at once, to which the target's hidden states are the text.

Behind the text stand the pending token x0 and mask tokens, and one forward of the head guesses them all: a lattice of
distributions, on which a chain or a tree is grown as on P-EAGLE's. DSpark corrects each guess by the tokens drafted
before it (`model.heads.markov`); the distribution that a token is drawn from is the corrected one, and that is the row
that is judged. In every round the states of the tokens that were committed are read, as keys and values alone; the
block is scratch.

Sources: DFlash (arXiv:2602.06036), DSpark (2607.05147), trees on a lattice (DDTree, 2604.12989).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from headstart.base.options import check_number
from headstart.drafters import BuildContext, Observation, Row, Weights
from headstart.drafters.growing.chains import GrowingChain
from headstart.drafters.growing.from_states import FromStates
from headstart.drafters.growing.lattice import Lattice, grow_on
from headstart.drafters.growing.policy import ChainPolicy, policy_of, usual_tree
from headstart.drafters.growing.tree import GrowingTree
from headstart.model.heads.borrowed import borrowed
from headstart.model.heads.dflash import Block, DFlashHead
from headstart.model.heads.dflash_checkpoint import is_dflash as recognises
from headstart.model.heads.dflash_checkpoint import read
from headstart.model.runner import ModelRunner
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import NO_DRAFT, Draft, TreeKind

__all__ = ["WEIGHTS", "DFlashDrafter", "build", "recognises"]

WEIGHTS: Weights = "head"

CHAIN = 7
"""Most tokens of a chain where nobody chooses."""
TREE = 24
"""Nodes of a tree where nobody chooses."""
NODES = 60
"""Of the largest tree."""


class DFlashDrafter(FromStates["_Text"]):
    """Drafts of one head. It holds a cache of its own.

    Args:
        head: ready to run.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        max_length: tokens of text and draft together, at most.
        budget: nodes where nobody chooses; None takes what the kind of draft usually has.
        tree: the kind of drafts, as for an EAGLE head.
        chunk: tokens whose states are read at once.
    """

    def __init__(
        self,
        head: DFlashHead,
        *,
        vocab_size: int,
        slots: int,
        max_length: int,
        budget: int | None = None,
        tree: TreeKind = "mixed",
        name: str = "dflash",
        chunk: int = 512,
    ) -> None:
        depth = head.config.guesses
        policy = policy_of(tree, chain=(min(depth, CHAIN), depth), trees=(TREE, NODES), width=10, depth=depth)
        super().__init__(policy, budget, cache=head.new_cache(slots), max_length=max_length)
        self.name = name
        check_number("budget", self.default_budget, low=0, integer=True)
        self.taps = tuple(dict.fromkeys(head.config.layer_ids))
        self.head = head
        self._vocabulary = None if head.token_ids is None else PartialVocabulary(head.token_ids, vocab_size)
        self._chunk = chunk

    @classmethod
    def load(
        cls,
        folder: str | Path,
        runner: ModelRunner,
        *,
        target_folder: str | Path,
        slots: int,
        budget: int | None = None,
        tree: TreeKind | Literal["auto"] = "auto",
        name: str = "dflash",
    ) -> DFlashDrafter:
        """Read a head for this target.

        Args:
            target_folder: where the target's safetensors are, for heads that borrow its output matrix.
            tree: "auto" takes trees ("mixed"), but chains for a small target (`growing.policy.usual_tree`).

        Raises:
            ModelNotFound, PickleCheckpoint, UnsupportedModel: see `dflash_checkpoint.read`.
        """
        checkpoint = read(folder, runner.config)
        embedding, output = borrowed(runner, target_folder, checkpoint.tensors)
        limit = min(runner.max_length, checkpoint.config.max_length)
        head = DFlashHead(
            checkpoint, embedding=embedding, output=output, dtype=runner.dtype, device=runner.device, length=limit
        )
        return cls(
            head,
            vocab_size=runner.vocab_size,
            slots=slots,
            max_length=limit,
            budget=budget,
            tree=usual_tree(runner.config) if tree == "auto" else tree,
            name=name,
        )

    def weights(self) -> Iterable[Tensor]:
        return self.head.weights()

    @property
    def weights_in_words(self) -> str:
        return self.head.weights_in_words

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        rooms = {row.request: room for row in rows if (room := self._room(row)) > 0}
        live = [self._growing(row, rooms[row.request]) for row in rows if row.request in rooms]
        drafts = {
            growing.row.request: grow_on(lattice, growing)
            for growing, lattice in zip(live, self._lattices(live), strict=True)
        }
        return [drafts.get(row.request, NO_DRAFT) for row in rows]

    def _learn(self, text: _Text, tokens: Sequence[int], hidden: Mapping[int, Tensor]) -> None:
        text.learn(tokens, torch.cat([hidden[layer] for layer in self.head.config.layer_ids], -1))
        if text.waiting >= self._chunk:  # a long prompt's states do not wait until somebody asks
            self._read([text])

    def _read_all(self, text: _Text) -> None:
        self._read([text])

    def _first_seen(self, observation: Observation) -> _Text:
        row, start = observation.row, observation.start
        if row is None or not self._keeps_texts:
            return _Text(start)
        slot = self.cache.acquire(row.tokens, row.sampling.cache_salt)
        held = row.tokens[:start] if self.cache.lengths[slot] >= start else ()
        self.cache.rewind(slot, len(held))
        return _Text(start, held, slot, row.sampling.cache_salt)

    def _growing(self, row: Row, room: int) -> GrowingChain | GrowingTree:
        """A draft that is still to grow, of at most so many nodes."""
        if isinstance(self.policy, ChainPolicy):
            return GrowingChain(row, room, vocabulary=self._vocabulary)
        return GrowingTree(row, room, self.policy.plan(row, room), vocabulary=self._vocabulary)

    def _read(self, texts: Sequence[_Text]) -> None:
        """Read all states that wait, at most a chunk of all texts together at once."""
        for text in texts:
            if text.slot is None:
                text.slot = self.cache.acquire()
        while waiting := [text for text in texts if text.waiting]:
            share = max(1, self._chunk // len(waiting))
            self.head.read(self.cache, [(self._slot(text), text.pop(share)) for text in waiting])

    def _slot(self, text: _Text) -> int:
        assert text.slot is not None, "taken when the text was read first"
        return text.slot

    def _lattices(self, live: Sequence[GrowingChain | GrowingTree]) -> list[Lattice]:
        """The distributions after each text, as deep as its draft can be: one forward."""
        if not live:
            return []
        texts = [self._texts[growing.row.request] for growing in live]
        self._read(texts)
        depths = [each.budget if isinstance(each, GrowingChain) else each.plan.depth for each in live]
        found = self.head.guess(
            self.cache,
            [
                Block(self._slot(text), growing.row.tokens[-1], depth)
                for text, growing, depth in zip(texts, live, depths, strict=True)
            ],
        )
        lattices = []
        parts = (torch.split(each, depths) for each in (found.logits, found.states))
        for growing, logits, states in zip(live, *parts, strict=True):
            shortlists = None if self.head.markov is None else self.head.markov.shortlists(logits, states)
            lattices.append(Lattice(growing.row, logits, vocabulary=self._vocabulary, shortlists=shortlists))
        return lattices


class _Text:
    """What is known of one request's text: the states of tokens that were seen, of which some are in the head's cache
    and the others wait.

    start: the position of the first of them. Where it is not 0 the target had read the text before in an earlier
        request, and it was not kept here; the head then sees only what came since, at positions that begin with 0,
        which costs acceptance at most.
    held: the text before `start`, where it is in the slot: as if it had been read just now.
    salt: of its texts in the cache.
    """

    def __init__(self, start: int = 0, held: Sequence[int] = (), slot: int | None = None, salt: Hashable = "") -> None:
        self.start = start - len(held)
        self.slot = slot
        self.salt = salt
        self._tokens = list(held)
        self._states: list[Tensor] = []
        self._closed = False

    @property
    def known(self) -> int:
        """Tokens whose states were seen."""
        return len(self._tokens)

    @property
    def waiting(self) -> int:
        """Those of them that are not in the cache."""
        return sum(map(len, self._states))

    @property
    def kept(self) -> Sequence[int]:
        """The tokens in the cache that are of use to others; none where some before them are missing."""
        return self._tokens if self.start == 0 and not self._closed else ()

    def learn(self, tokens: Sequence[int], states: Tensor) -> None:
        """The target has read these tokens, and had these states [n, features]."""
        if not self._closed:
            self._tokens += tokens
            self._states.append(states)

    def close(self) -> None:
        """No more states are taken; what is known no longer reaches the end of the text."""
        self._closed = True
        self._states.clear()

    def pop(self, count: int) -> Tensor:
        """The next states to read, at most `count`."""
        states = self._states[0] if len(self._states) == 1 else torch.cat(self._states)
        self._states = [states[count:]] if len(states) > count else []
        return states[:count]


def build(context: BuildContext) -> DFlashDrafter:
    return DFlashDrafter.load(
        context.source,
        context.target,
        target_folder=context.target_source,
        slots=context.slots,
        name=context.name,
        budget=context.budget,
        tree=context.tree or "auto",
    )
