"""`EagleDrafter`: what it reads of each text, and its ways to draft: step by step (`stepwise`; `in_turn` where further
tokens have heads of their own) and all at once.

All at once (P-EAGLE): behind the text are mask tokens, and each guesses one token more of the draft. Row 0 is EAGLE's
own, of the pending token and the state before it. The rows behind it are all alike, a mask token with a state that was
learnt in place of the target's, and know of their depth by their position alone. They see the text and the masks before
them, so one forward of the head makes every guess, and the draft is grown on the lattice of its distributions. The
masks' keys and values are scratch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torch import Tensor

from headstart.drafters import BuildContext, Row
from headstart.drafters.eagle.in_turn import InTurn, TurnReader
from headstart.drafters.eagle.stepwise import SCRATCH, Stepwise
from headstart.drafters.eagle.texts import HeadText, Reader
from headstart.drafters.growing.block import BlockDrafter
from headstart.drafters.growing.lattice import depth_of, grow_block
from headstart.drafters.growing.policy import policy_of, usual_tree
from headstart.model.heads.borrowed import borrowed
from headstart.model.heads.eagle import Head, complete
from headstart.model.heads.eagle_checkpoint import EagleCheckpoint, read
from headstart.model.heads.eagle_fused import make_head
from headstart.model.runner import ModelRunner
from headstart.types import Draft, TreeKind

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


class EagleDrafter(BlockDrafter[HeadText]):
    """Drafts of one head. It holds a cache of its own.

    Args:
        head: ready to run.
        later: the heads that guess the tokens after the first, in turn, where each has one of its own; see `in_turn`.
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
        later: Sequence[Head] = (),
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
        self._later = later
        self._reader = TurnReader(head, later, slots, chunk) if later else Reader(head, slots, chunk)
        super().__init__(
            head,
            policy,
            budget,
            name=name,
            cache=self._reader.cache,
            taps=head.config.layer_ids,
            vocab_size=vocab_size,
            max_length=max_length,
        )
        self.head = head
        self._stepwise: Stepwise | None = None
        if isinstance(self._reader, TurnReader):
            self._stepwise = InTurn(self._reader, policy, self.vocabulary)
        elif not at_once:
            self._stepwise = Stepwise(self._reader, policy, self.vocabulary)

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
        """Read a head for this target. The options are those of `of`.

        Raises:
            ModelNotFound, PickleCheckpoint, UnsupportedModel: see `eagle_checkpoint.read`.
        """
        return cls.of(
            read(folder, runner.config),
            runner,
            target_folder=target_folder,
            slots=slots,
            budget=budget,
            tree=tree,
            quantize=quantize,
            name=name,
        )

    @classmethod
    def of(
        cls,
        checkpoint: EagleCheckpoint,
        runner: ModelRunner,
        *,
        later: Sequence[EagleCheckpoint] = (),
        target_folder: str | Path,
        slots: int,
        budget: int | None = None,
        tree: TreeKind | Literal["auto"] = "auto",
        quantize: str | None = "auto",
        name: str = "eagle",
    ) -> EagleDrafter:
        """The drafter of a head that was read for this target, with what the head borrows of it.

        Args:
            later: further heads that guess in turn, of the same vocabulary.
            target_folder: where the target's safetensors are, or its GGUF file, for heads that borrow its output
                matrix.
            quantize: see `make_head`; rounding costs acceptance at most.
            tree: "auto" takes trees ("mixed"), but chains for a target so small that growing a tree takes about as long
                as one of its forwards, and a distribution for each node of a drawn one is a good part of it.
        """
        embedding, output = borrowed(runner, target_folder, checkpoint.tensors, checkpoint.token_ids)
        weights = complete(checkpoint, embedding=embedding, head=output, dtype=runner.dtype, device=runner.device)
        limit = min(runner.max_length, checkpoint.config.max_length)
        head = make_head(weights, limit + SCRATCH, quantize=quantize)
        others = []
        for each in later:
            table, matrix = weights.embedding, weights.head
            other = complete(each, embedding=table, head=matrix, dtype=runner.dtype, device=runner.device)
            lender = head if other.head is weights.head else None
            others.append(make_head(other, limit + SCRATCH, quantize=quantize, lender=lender))
        return cls(
            head,
            later=others,
            vocab_size=runner.vocab_size,
            slots=slots,
            max_length=limit,
            budget=budget,
            tree=usual_tree(runner.config) if tree == "auto" else tree,
            name=name,
        )

    def weights(self) -> Iterable[Tensor]:
        yield from super().weights()
        for head in self._later:
            yield from head.weights()

    def release(self, request: int) -> None:
        text = self._texts.get(request)
        super().release(request)
        if text is not None and isinstance(self._reader, TurnReader):
            self._reader.release(text)

    @property
    def _at_once(self) -> int:
        return self._reader.chunk

    def _text(self, start: int, held: Sequence[int] = (), slot: int | None = None, salt: Hashable = "") -> HeadText:
        return HeadText(start, held, slot, salt)

    def _kept(self, tokens: Sequence[int], salt: str) -> tuple[Sequence[int], Hashable]:
        """Row t belongs to token t + 1, and depends on those before: so texts are kept from their second token on,
        apart by their first."""
        return tokens[1:], (salt, tokens[0])

    def _learn(self, text: HeadText, tokens: Sequence[int], hidden: Mapping[int, Tensor]) -> None:
        text.learn(tokens, [hidden[layer] for layer in self.taps])
        self._reader.catch_up(text, text.most_waiting)

    def _read_all(self, text: HeadText) -> None:
        self._reader.catch_up(text, 0)

    def _drafts(self, rows: Sequence[Row], rooms: Sequence[int], texts: Sequence[HeadText]) -> list[Draft]:
        for row, text in zip(rows, texts, strict=True):
            self._reader.follow(text, row.tokens[-1])
        if self._stepwise is not None:
            return self._stepwise.drafts(rows, rooms, texts)
        live = [self._growing(row, room) for row, room in zip(rows, rooms, strict=True)]
        for text in texts:
            self._reader.catch_up(text, self._reader.chunk)
        token = self.head.config.mask_token_id
        assert token is not None, "heads without masks draft step by step"
        masks = [Draft.chain([token] * (depth_of(each) - 1)) for each in live]
        found = self._reader.read_on(texts, masks, self.head.mask_states(max(map(len, masks))))
        return grow_block(live, found.logits, found.states, self.head.selector, self.vocabulary)


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
