"""DFlash and DSpark: a few layers guess a block of tokens at once, to which the target's hidden states are the text.

Behind the text stand the pending token x0 and mask tokens, and one forward of the head guesses them all: a lattice of
distributions, on which a chain or a tree is grown as on P-EAGLE's. DSpark corrects each guess by the tokens drafted
before it (`model.heads.markov`); the distribution that a token is drawn from is the corrected one, and that is the row
that is judged. In every round the states of the tokens that were committed are read, as keys and values alone; the
block is scratch.

Sources: DFlash (arXiv:2602.06036), DSpark (2607.05147), trees on a lattice (DDTree, 2604.12989).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from headstart.drafters import BuildContext, Row, Weights
from headstart.drafters.growing.block import BlockDrafter, BlockText
from headstart.drafters.growing.lattice import depth_of, grow_block
from headstart.drafters.growing.policy import policy_of, usual_tree
from headstart.model.heads.borrowed import borrowed
from headstart.model.heads.dflash import Block, DFlashHead
from headstart.model.heads.dflash_checkpoint import is_dflash as recognises
from headstart.model.heads.dflash_checkpoint import read
from headstart.model.runner import ModelRunner
from headstart.types import Draft, TreeKind

__all__ = ["WEIGHTS", "DFlashDrafter", "build", "recognises"]

WEIGHTS: Weights = "head"

CHAIN = 7
"""Most tokens of a chain where nobody chooses."""
TREE = 24
"""Nodes of a tree where nobody chooses."""
NODES = 60
"""Of the largest tree."""


class DFlashDrafter(BlockDrafter["_Text"]):
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
        super().__init__(
            head,
            policy,
            budget,
            name=name,
            cache=head.new_cache(slots),
            taps=tuple(dict.fromkeys(head.config.layer_ids)),
            vocab_size=vocab_size,
            max_length=max_length,
        )
        self.head = head
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
        floats = embedding if isinstance(embedding, Tensor) else embedding.weight
        limit = min(runner.max_length, checkpoint.config.max_length)
        head = DFlashHead(
            checkpoint, embedding=floats, output=output, dtype=runner.dtype, device=runner.device, length=limit
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

    @property
    def _at_once(self) -> int:
        return self._chunk

    def _text(self, start: int, held: Sequence[int] = (), slot: int | None = None, salt: Hashable = "") -> _Text:
        return _Text(start, held, slot, salt)

    def _learn(self, text: _Text, tokens: Sequence[int], hidden: Mapping[int, Tensor]) -> None:
        text.learn(tokens, torch.cat([hidden[layer] for layer in self.head.config.layer_ids], -1))
        if text.waiting > text.most_waiting:
            self._read([text])

    def _read_all(self, text: _Text) -> None:
        self._read([text])

    def _read(self, texts: Sequence[_Text]) -> None:
        """Read all states that wait, at most a chunk of all texts together at once."""
        for text in texts:
            text.seat(self.cache)
        while waiting := [text for text in texts if text.waiting]:
            share = max(1, self._chunk // len(waiting))
            self.head.read(self.cache, [(text.seat(self.cache), text.pop(share)) for text in waiting])

    def _drafts(self, rows: Sequence[Row], rooms: Sequence[int], texts: Sequence[_Text]) -> list[Draft]:
        """All guesses of all drafts in one forward."""
        live = [self._growing(row, room) for row, room in zip(rows, rooms, strict=True)]
        self._read(texts)
        blocks = [
            Block(text.seat(self.cache), each.row.tokens[-1], depth_of(each))
            for text, each in zip(texts, live, strict=True)
        ]
        found = self.head.guess(self.cache, blocks)
        return grow_block(live, found.logits, found.states, self.head.markov, self.vocabulary)


class _Text(BlockText):
    """Of the states that were seen, some are in the head's cache and the others wait."""

    def __init__(self, start: int = 0, held: Sequence[int] = (), slot: int | None = None, salt: Hashable = "") -> None:
        super().__init__(start, held, slot, salt)
        self._states: list[Tensor] = []

    @property
    def waiting(self) -> int:
        """How many states are not in the cache."""
        return sum(map(len, self._states))

    def learn(self, tokens: Sequence[int], states: Tensor) -> None:
        """The target has read these tokens, and had these states [n, features]."""
        if not self.closed:
            self.tokens += tokens
            self._states.append(states)

    def close(self) -> None:
        super().close()
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
