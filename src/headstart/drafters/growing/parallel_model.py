"""A causal LM with a mask token: all guesses of a draft in one forward.

Behind the pending token x0 stand K - 1 mask tokens at the positions that follow. The row of x0 guesses the first token
as that of any causal LM would, the row of the j-th mask the token j + 1; so K rows guess K tokens. No row knows what
another guessed: given the text, the distributions q_1, ..., q_K are independent, and a token that is drawn from its row
is judged with that row. Only the text is kept in the cache; the masks are scratch behind it.

Source: PARD (arXiv:2504.18583).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.drafters import Row
from headstart.drafters.growing.chains import GrowingChain
from headstart.drafters.growing.lattice import Lattice, grow_on
from headstart.drafters.growing.own_model import GrowingModel
from headstart.drafters.growing.policy import ChainPolicy, TreePolicy
from headstart.drafters.growing.tree import GrowingTree
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft

MASK_FIELDS = ("pard_token", "ptd_token_id")
"""Fields of a config that name the mask token, in the order in which vLLM looks for them."""


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


class ParallelModel(GrowingModel):
    """Chains and trees whose tokens all come of one forward. It does not draft ahead, which would cost one forward for
    every outcome.

    Args:
        mask: the mask token.
        For the others see `GrowingModel`.
    """

    def __init__(
        self,
        runner: ModelRunner,
        policy: ChainPolicy | TreePolicy,
        *,
        mask: int,
        vocab_size: int,
        slots: int,
        budget: int | None = None,
        chunk: int = 512,
    ) -> None:
        super().__init__(runner, policy, vocab_size=vocab_size, slots=slots, budget=budget, chunk=chunk)
        self.mask = mask

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        memories = [self._memory(row) for row in rows]
        found = [self._begun(row, self._room(row, memory), memory) for row, memory in zip(rows, memories, strict=True)]
        live = [each for each in found if not each.done]
        self._catch_up([each.memory for each in live if each.memory.feed])
        guesses = self._guess(live)
        return [Draft() if each.done else grow_on(Lattice(each.row, guesses[each.row.request]), each) for each in found]

    def _begun(self, row: Row, room: int, memory: Any = None) -> Any:
        """As others do, but no deeper than there is room for masks."""
        levels = min(row.budget.nodes, room)
        begun = super()._begun(row, room, memory)
        if _depth(begun) > levels:  # a tree, so near the end of the context that even a chain of it must fit
            return super()._begun(row.with_budget(row.budget.within(levels)), room, memory)
        return begun

    def _guess(self, growing: Sequence[Any]) -> dict[int, Tensor]:
        """By request, the logits [K, V] of all depths of its draft, from one forward for all requests."""
        if not growing:
            return {}
        depths = [_depth(each) for each in growing]
        segments = [
            Segment(each.memory.slot, tuple(each.memory.feed), Draft.chain((self.mask,) * (depth - 1)), judged=depth)
            for each, depth in zip(growing, depths, strict=True)
        ]
        logits = self._fit(self.runner.forward(segments, self.cache).logits)
        for each in growing:
            self.cache.keep(each.memory.slot, len(each.memory.feed))
            each.memory.cached += each.memory.feed
        return {each.row.request: part for each, part in zip(growing, torch.split(logits, depths), strict=True)}


def _depth(growing: GrowingChain | GrowingTree) -> int:
    """How many guesses in a row a draft can have."""
    if isinstance(growing, GrowingChain):
        return growing.budget
    return min(growing.budget, growing.plan.depth)
