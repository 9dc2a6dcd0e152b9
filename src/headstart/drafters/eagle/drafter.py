"""`EagleDrafter`: which texts it can draft for, and what is kept of them; how it drafts is a way of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torch import Tensor

from headstart.base.options import check_number
from headstart.drafters import BuildContext, Observation, Row
from headstart.drafters.eagle.at_once import AtOnce
from headstart.drafters.eagle.stepwise import SCRATCH, Stepwise
from headstart.drafters.eagle.texts import HeadText, Reader
from headstart.drafters.growing.from_states import FromStates
from headstart.drafters.growing.policy import policy_of, usual_tree
from headstart.model.heads.borrowed import borrowed
from headstart.model.heads.eagle import Head, complete
from headstart.model.heads.eagle_checkpoint import read
from headstart.model.heads.eagle_fused import make_head
from headstart.model.runner import ModelRunner
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import NO_DRAFT, Draft, TreeKind

CHAIN = 5
"""Tokens of a chain where nobody chooses and every one of them costs a forward of the head."""
AT_ONCE = 7
"""The same where all of them cost one."""
LONGEST = 12
"""Tokens of the longest chain."""
TREE = 24
"""Nodes of a tree where nobody chooses."""
NODES = 60
"""Of the largest tree."""
WIDTH = 10
"""Nodes that a dynamic tree expands in a level, and children of each."""


class EagleDrafter(FromStates[HeadText]):
    """Drafts of one head. It holds a cache of its own.

    Args:
        head: ready to run.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        max_length: tokens of text and draft together, at most.
        budget: nodes where nobody chooses; None takes what the kind of draft usually has.
        tree: the kind of drafts, as the module describes them.
        chunk: rows that are read at once.
    """

    def __init__(
        self,
        head: Head,
        *,
        vocab_size: int,
        slots: int,
        max_length: int,
        budget: int | None = None,
        tree: TreeKind = "mixed",
        name: str = "eagle",
        chunk: int = 512,
    ) -> None:
        at_once, depth = head.config.parallel, head.config.depth or AT_ONCE
        chain = (min(depth, LONGEST), LONGEST) if at_once else (CHAIN, LONGEST)
        policy = policy_of(tree, chain=chain, trees=(TREE, NODES), width=WIDTH, depth=depth if at_once else None)
        reader = Reader(head, slots, chunk)
        super().__init__(policy, budget, cache=reader.cache, max_length=max_length)
        self.name = name
        check_number("budget", self.default_budget, low=0, integer=True)
        self.taps = head.config.layer_ids
        self.head = head
        self._reader = reader
        vocabulary = None if head.token_ids is None else PartialVocabulary(head.token_ids, vocab_size)
        self._way = (AtOnce if at_once else Stepwise)(self._reader, policy, vocabulary)

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
        quantize: str | None = "auto",
        name: str = "eagle",
    ) -> EagleDrafter:
        """Read a head for this target.

        Args:
            target_folder: where the target's safetensors are, for heads that borrow its output matrix.
            quantize: see `make_head`; rounding costs acceptance at most.
            tree: "auto" takes trees ("mixed"), but chains for a target so small that growing a tree takes about as long
                as one of its forwards, and a distribution for each node of a drawn one is a good part of it.

        Raises:
            ModelNotFound, PickleCheckpoint, UnsupportedModel: see `eagle_checkpoint.read`.
        """
        checkpoint = read(folder, runner.config)
        embedding, output = borrowed(runner, target_folder, checkpoint.tensors)
        weights = complete(checkpoint, embedding=embedding, head=output, dtype=runner.dtype, device=runner.device)
        limit = min(runner.max_length, checkpoint.config.max_length)
        head = make_head(weights, limit + SCRATCH, quantize=quantize)
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
        ready = [row for row in rows if self._room(row) > 0]
        drafts = dict(zip((row.request for row in ready), self._drafts(ready), strict=True))
        return [drafts.get(row.request, NO_DRAFT) for row in rows]

    def _learn(self, text: HeadText, tokens: Sequence[int], hidden: Mapping[int, Tensor]) -> None:
        text.learn(tokens, [hidden[layer] for layer in self.taps])
        self._reader.catch_up(text, self._reader.chunk - 1)  # a long prompt's states do not wait until somebody asks

    def _read_all(self, text: HeadText) -> None:
        self._reader.catch_up(text, 0)

    def _first_seen(self, observation: Observation) -> HeadText:
        """What is known of a request at its first step: nothing, or the rows of a text that was kept, by the target and
        here, up to where this step begins.

        Row t belongs to token t + 1, and depends on those before: so texts are kept from their second token on, apart
        by their first.
        """
        row, start = observation.row, observation.start
        if row is None or not self._keeps_texts:
            return HeadText(start)
        salt = row.sampling.cache_salt, row.tokens[0]
        slot = self.cache.acquire(row.tokens[1:], salt)
        text = HeadText(start, held=row.tokens[:start] if self.cache.lengths[slot] >= start else (), salt=salt)
        text.slot = slot
        self.cache.rewind(slot, text.read)
        return text

    def _drafts(self, rows: Sequence[Row]) -> list[Draft]:
        texts = [self._texts[row.request] for row in rows]
        for row, text in zip(rows, texts, strict=True):
            self._reader.follow(text, row.tokens[-1])
        return self._way.drafts(rows, [self._room(row) for row in rows], texts)


def build(context: BuildContext) -> EagleDrafter:
    return EagleDrafter.load(
        context.source,
        context.target,
        target_folder=context.target_source,
        slots=context.slots,
        quantize=context.quantize,
        name=context.name,
        budget=context.budget,
        tree=context.tree or "auto",
    )
