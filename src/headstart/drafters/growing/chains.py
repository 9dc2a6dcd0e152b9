"""Chains drawn token by token from a distribution of the drafter's own, for several requests at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from headstart.drafters import Row
from headstart.drafters.growing.residual import Residual
from headstart.rule.distribution import SamplingRow, distribution, greedy
from headstart.rule.noise import Purpose
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import Draft


class GrowingChain:
    """One request's chain while it grows, to `budget` tokens.

    memory: what the drafter keeps of the request. residual: what drawn tokens leave to the target, if anything.
    vocabulary: of its distributions [W], where that is a part of the target's.
    """

    def __init__(
        self,
        row: Row,
        budget: int,
        memory: Any = None,
        residual: Residual | None = None,
        vocabulary: PartialVocabulary | None = None,
    ) -> None:
        self._residual = None if row.sampling.greedy or row.purpose is not Purpose.DRAFT else residual
        self.row = row
        self.budget = budget
        self.memory = memory
        self.vocabulary = vocabulary
        self.tokens: list[int] = []
        self.logits: list[Tensor] = []
        """[i]: the drafter's logits [1, W] after x0 and i tokens."""
        self._distributions: list[Tensor] = []

    def extend(self, q: Tensor | int) -> None:
        """Draw the next token from q [W], or take the one that a greedy distribution leaves: its column.

        The chain ends where q is no distribution, since the logits are broken or every token is forbidden."""
        if isinstance(q, int):
            column = max(q, 0)  # broken logits (-1): any guess will do
            token = column if self.vocabulary is None else self.vocabulary.tokens[column]
        else:
            if self._residual is not None:
                q = self._residual.lower(q)
            on_host = q.cpu().numpy()
            if not math.isfinite(on_host[0]):  # softmax spreads a NaN over its whole row
                self.budget = len(self.tokens)
                return
            token = self.row.draw(on_host, len(self.tokens), self.vocabulary)
            self._distributions.append(q)
        self.tokens.append(token)

    @property
    def done(self) -> bool:
        return len(self.tokens) >= self.budget

    @property
    def growing(self) -> tuple[tuple[int, int], ...]:
        """(token, index of its parent) of the tokens whose children come next: the last, or none at first."""
        return ((self.tokens[-1], len(self.tokens) - 2),) if self.tokens else ()

    def resize(self, budget: int) -> None:
        """Make it the chain of another budget, which begins alike: no draw looks ahead."""
        self.budget = budget
        del self.tokens[budget:], self._distributions[budget:], self.logits[budget:]

    def fed(self) -> list[int]:
        """Of each token, its index: a chain is fed as it is drafted."""
        return list(range(len(self.tokens)))

    def draft(self) -> Draft:
        if self.row.sampling.greedy or not self.tokens:
            return Draft.chain(self.tokens)
        ids = None if self.vocabulary is None else self.vocabulary.ids
        return Draft.chain(self.tokens, torch.stack(self._distributions), ids)


G = TypeVar("G", bound=GrowingChain)


def grow_chains(chains: Sequence[G], forward: Callable[[Sequence[G]], Tensor]) -> None:
    """Extend every chain to its budget.

    forward: feeds each chain's last token (at first, whatever its request has not fed yet) and returns the logits
    [B, W] after them, over the vocabulary of the chains, which is the same.
    """
    live = [chain for chain in chains if not chain.done]
    while live:
        extend_chains(live, forward(live))
        live = [chain for chain in live if not chain.done]


def extend_chains(chains: Sequence[GrowingChain], logits: Tensor) -> None:
    """Extend every chain by one token, drawn from the distribution of its row of the logits [B, W]."""
    rows = [SamplingRow(chain.row.sampling_state, tuple(chain.tokens)) for chain in chains]
    all_greedy = all(chain.row.sampling.greedy for chain in chains)
    vocabulary = chains[0].vocabulary
    distributions: Any = greedy(logits, rows, vocabulary) if all_greedy else distribution(logits, rows, vocabulary)
    for index, (chain, q) in enumerate(zip(chains, distributions, strict=True)):
        chain.logits.append(logits[index : index + 1])
        chain.extend(q)
