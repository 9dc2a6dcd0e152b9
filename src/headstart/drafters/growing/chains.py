"""Chains drawn token by token from a law of the drafter's own, for several requests at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from headstart.drafters import Row
from headstart.rule.law import LawRow, greedy, law
from headstart.types import Draft


class GrowingChain:
    """One request's chain while it grows, to `budget` tokens. memory: what the drafter keeps of the request."""

    def __init__(self, row: Row, budget: int, memory: Any = None) -> None:
        self.row = row
        self.budget = budget
        self.memory = memory
        self.tokens: list[int] = []
        self._laws: list[Tensor] = []

    def extend(self, q: Tensor | int) -> None:
        """Draw the next token from q [V], or take the one that a greedy law leaves."""
        if isinstance(q, int):
            token = max(q, 0)  # broken logits (-1): any guess will do
        else:
            token = self.row.draw(q.cpu().numpy(), len(self.tokens))
            self._laws.append(q)
        self.tokens.append(token)

    def draft(self) -> Draft:
        if self.row.sampling.greedy or not self.tokens:
            return Draft.chain(self.tokens)
        return Draft.chain(self.tokens, torch.stack(self._laws))


G = TypeVar("G", bound=GrowingChain)


def grow_chains(chains: Sequence[G], forward: Callable[[Sequence[G]], Tensor]) -> None:
    """Extend every chain to its budget.

    forward: feeds each chain's last token (at first, whatever its request has not fed yet) and returns the logits
    [B, V] after them.
    """
    live = [chain for chain in chains if chain.budget > 0]
    while live:
        logits = forward(live)
        rows = [LawRow(chain.row.law, tuple(chain.tokens)) for chain in live]
        all_greedy = all(chain.row.sampling.greedy for chain in live)
        laws: Any = greedy(logits, rows) if all_greedy else law(logits, rows)
        for chain, q in zip(live, laws, strict=True):
            chain.extend(q)
        live = [chain for chain in live if len(chain.tokens) < chain.budget]
