"""A small causal LM as drafter: K cheap forwards guess a chain of K tokens, or a tree of K levels.

Chains are sampled from its own distribution q; trees are grown as in `growing.grow`. It runs on the same runner and
cache as the target. A model that was trained with a mask token, which its config names, guesses all K tokens in one
forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.drafters import BuildContext, Row, Weights
from headstart.drafters.growing.grow import Residual
from headstart.drafters.growing.lattice import Lattice, depth_of, grow_on
from headstart.drafters.growing.own_model import ForeseeingModel, GrowingModel, with_reading
from headstart.drafters.growing.policy import MOST, policy_of
from headstart.model.kept.config import MASK_FIELDS
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft, TreeKind

WEIGHTS: Weights = "model"

LONGEST = 12
"""Tokens of the longest chain."""
PARALLEL, LONGEST_PARALLEL = 8, 16
"""Tokens of a parallel draft where the user chooses no number, and of the longest: published ones were trained on 8,
and go on guessing well up to about 16."""


def mask_token(config: Any) -> int | None:
    """The mask token that a causal LM was trained with, by its config; None for a model that knows none.

    Raises:
        UnsupportedModel: the field does not name a token of the model.
    """
    found = next(((name, value) for name in MASK_FIELDS if (value := getattr(config, name, None)) is not None), None)
    if found is None:
        return None
    name, token = found
    vocab_size = int(config.get_text_config().vocab_size)
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocab_size:
        raise UnsupportedModel(
            f"the draft model's config says {name}={token!r}, and its tokens are 0 to {vocab_size - 1}",
            hint=f"set {name} to the mask token that it was trained with, or remove it to draft token by token",
        )
    return token


class DraftModel(ForeseeingModel):
    """Chains drawn from a draft LM, or trees.

    Args:
        runner: the draft.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        budget: nodes where the user chooses no number; None is a chain of 5, or a tree of 32.
        chunk: tokens that the draft reads in one forward.
        tree: "none" for chains, "top-k" for dynamic trees of the likeliest nodes (point masses, at any temperature),
            "sampled" for static trees whose shape is learnt, "mixed" for what suits a request.
        width, depth: of trees, see `TreePolicy`.
        residual: what drawn tokens leave to the target, if anything; for chains.
        copy: whether it is a copy of the target, which need not read what the target has read.
        same_model: whether it is a copy, whatever it reads.
    """

    runner: ModelRunner

    def __init__(
        self,
        runner: ModelRunner,
        *,
        name: str,
        vocab_size: int,
        slots: int,
        budget: int | None = None,
        chunk: int = 512,
        tree: TreeKind = "none",
        width: int = 8,
        depth: int | None = None,
        residual: Residual | None = None,
        copy: bool = False,
        same_model: bool = False,
    ) -> None:
        policy = policy_of(tree, chain=(5, LONGEST), trees=(32, MOST), width=width, depth=depth, residual=residual)
        super().__init__(runner, policy, vocab_size=vocab_size, slots=slots, budget=budget, chunk=chunk, copy=copy)
        self.name = name
        self.same_model = same_model


class ParallelDraft(GrowingModel):
    """Chains or trees of a draft LM with a mask token: one forward guesses all tokens.

    Behind the pending token x0 are K - 1 mask tokens at the positions that follow. The row of x0 guesses the first
    token as that of any causal LM would, the row of the j-th mask the token j + 1; so K rows guess K tokens. No row
    knows what another guessed: given the text, the distributions q_1, ..., q_K are independent, and a token that is
    drawn from its row is judged with that row. Only the text is kept in the cache; the masks are scratch behind it. It
    does not draft ahead, which would cost one forward for every outcome.

    Source: PARD (arXiv:2504.18583).

    Args:
        runner: the draft.
        mask: its mask token.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        budget: nodes where the user chooses no number; None is a chain of 8, or a tree of 32.
        chunk: tokens that the draft reads in one forward.
        tree: as of `DraftModel`, but that the likeliest nodes of all are found, not only those of each level.
        depth: of trees, the most levels: masks of a forward, whose number hardly changes what it costs.
        residual: what drawn tokens leave to the target, if anything; for chains.
    """

    def __init__(
        self,
        runner: ModelRunner,
        *,
        name: str,
        mask: int,
        vocab_size: int,
        slots: int,
        budget: int | None = None,
        chunk: int = 512,
        tree: TreeKind = "none",
        depth: int = PARALLEL,
        residual: Residual | None = None,
    ) -> None:
        policy = policy_of(tree, chain=(PARALLEL, LONGEST_PARALLEL), trees=(32, MOST), depth=depth, residual=residual)
        super().__init__(runner, policy, vocab_size=vocab_size, slots=slots, budget=budget, chunk=chunk)
        self.name = name
        self.mask = mask

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        memories = [self._memory(row) for row in rows]
        found = [self._begun(row, self._room(row, memory), memory) for row, memory in zip(rows, memories, strict=True)]
        caught_up = self._catch_up([(each.row, each.memory) for each in found if not each.done])
        waiting = {request for request, each in caught_up.items() if each.unread}
        guesses = self._guess([each for each in found if not each.done and each.row.request not in waiting])
        grown = [
            grow_on(Lattice(each.row, guesses[each.row.request]), each) if each.row.request in guesses else Draft()
            for each in found
        ]
        return [with_reading(draft, caught_up.get(row.request)) for row, draft in zip(rows, grown, strict=True)]

    def _begun(self, row: Row, room: int, memory: Any = None) -> Any:
        """As others do, but no deeper than there is room for masks."""
        levels = min(row.budget.nodes, room)
        begun = super()._begun(row, room, memory)
        if depth_of(begun) > levels:  # a tree, so near the end of the context that even a chain of it must fit
            return super()._begun(row.with_budget(row.budget.within(levels)), room, memory)
        return begun

    def _guess(self, growing: Sequence[Any]) -> dict[int, Tensor]:
        """By request, the logits [K, V] of all depths of its draft, from one forward for all requests."""
        if not growing:
            return {}
        depths = [depth_of(each) for each in growing]
        segments = [
            Segment(each.memory.slot, tuple(each.memory.feed), Draft.chain((self.mask,) * (depth - 1)), judged=depth)
            for each, depth in zip(growing, depths, strict=True)
        ]
        logits = self._fit(self.runner.forward(segments, self.cache).logits)
        for each in growing:
            self.cache.keep(each.memory.slot, len(each.memory.feed))
            each.memory.cached += each.memory.feed
        return {each.row.request: part for each, part in zip(growing, torch.split(logits, depths), strict=True)}


def build(context: BuildContext) -> DraftModel | ParallelDraft:
    """The drafter. A model whose config names a mask token drafts in parallel."""
    assert context.draft is not None, "a draft model has been read"
    mask = mask_token(context.draft.config)
    if mask is not None:
        return ParallelDraft(
            context.draft,
            name=context.name,
            mask=mask,
            vocab_size=context.target.vocab_size,
            slots=context.slots,
            budget=context.budget,
            tree=context.tree or "none",
            residual=context.residual,
        )
    return DraftModel(
        context.draft,
        name=context.name,
        vocab_size=context.target.vocab_size,
        slots=context.slots,
        budget=context.budget,
        tree=context.tree or "none",
        residual=context.residual,
        copy=context.copy and not context.apart,
        same_model=context.copy,
    )
