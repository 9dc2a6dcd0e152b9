"""A causal LM with a mask token: all guesses of a draft in one forward.

Behind the pending token x0 stand K - 1 mask tokens at the positions that follow. The row of x0 guesses the first token
as that of any causal LM would, the row of the j-th mask the token j + 1; so K rows guess K tokens. No row knows what
another guessed: given the text, the laws q_1, ..., q_K are independent, and a token that is drawn from its row is
judged with that row. Only the text is kept in the cache; the masks are scratch behind it.

Source: PARD (arXiv:2504.18583).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.drafters import Row
from headstart.drafters.growing.chains import GrowingChain, grow_chains
from headstart.drafters.growing.own_model import GrowingModel
from headstart.drafters.growing.policy import ChainPolicy
from headstart.errors import UnsupportedModel
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
    """Chains whose tokens all come of one forward.

    Args:
        mask: the mask token.
        For the others see `GrowingModel`.
    """

    can_foresee = False  # its drafts cost one forward, which drafting ahead would make for every outcome

    def __init__(
        self,
        runner: ModelRunner,
        policy: ChainPolicy,
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
        chains = [self._begun(row, self._room(row, memory), memory) for row, memory in zip(rows, memories, strict=True)]
        live = [chain for chain in chains if not chain.done]
        self._catch_up([chain.memory for chain in live if chain.memory.feed])
        guesses = self._guess(live)

        def after(chains: Sequence[GrowingChain]) -> Tensor:
            found = [guesses[chain.row.request][len(chain.tokens)] for chain in chains]
            return found[0][None] if len(found) == 1 else torch.stack(found)

        grow_chains(chains, after)
        return [chain.draft() for chain in chains]

    def _guess(self, chains: Sequence[GrowingChain]) -> dict[int, Tensor]:
        """By request, the logits [K, V] of all its guesses, from one forward for all requests."""
        if not chains:
            return {}
        segments = [
            Segment(
                chain.memory.slot,
                tuple(chain.memory.feed),
                Draft.chain((self.mask,) * (chain.budget - 1)),
                judged=chain.budget,
            )
            for chain in chains
        ]
        logits = self._fit(self.runner.forward(segments, self.cache).logits)
        for chain in chains:
            memory = chain.memory
            self.cache.keep(memory.slot, len(memory.feed))
            memory.cached += memory.feed
        parts = torch.split(logits, [chain.budget for chain in chains])
        return {chain.row.request: part for chain, part in zip(chains, parts, strict=True)}
