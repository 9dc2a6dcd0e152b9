"""Chains drawn token by token from a law of the drafter's own, for several requests at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from headstart.drafters import Row
from headstart.rule.law import LawRow, greedy, law
from headstart.types import Draft


class Guess:
    """One request's draft while it grows."""

    def __init__(self, context: Row, budget: int) -> None:
        self.context = context
        self.budget = budget
        self.tokens: list[int] = []
        self._laws: list[Tensor] = []

    def extend(self, q: Tensor | int) -> None:
        """Draw the next token from q [V], or take the one that a greedy law leaves."""
        if isinstance(q, int):
            token = max(q, 0)  # broken logits (-1): any guess will do
        else:
            token = self.context.draw(q.cpu().numpy(), len(self.tokens))
            self._laws.append(q)
        self.tokens.append(token)

    def draft(self) -> Draft:
        if self.context.sampling.greedy or not self.tokens:
            return Draft.chain(self.tokens)
        return Draft.chain(self.tokens, torch.stack(self._laws))


G = TypeVar("G", bound=Guess)


def draw(
    guesses: Sequence[G],
    forward: Callable[[Sequence[G]], Tensor],
    sure: Callable[[Tensor], Sequence[bool]] | None = None,
) -> None:
    """Extend every guess to its budget.

    forward: feeds each guess's last token (at first, whatever its request has not fed yet) and returns the logits
    [B, V] after them. sure: whether each row's logits are worth a token after the first; a guess ends where not. That
    is a function of the text up to there, so each position is still judged against the law its token was drawn from.
    """
    live = [guess for guess in guesses if guess.budget > 0]
    while live:
        logits = forward(live)
        certain = [True] * len(live) if sure is None else sure(logits)
        rows = [LawRow(guess.context.law, tuple(guess.tokens)) for guess in live]
        all_greedy = all(guess.context.sampling.greedy for guess in live)
        laws: Any = greedy(logits, rows) if all_greedy else law(logits, rows)
        going = []
        for guess, q, going_on in zip(live, laws, certain, strict=True):
            if guess.tokens and not going_on:
                continue
            guess.extend(q)
            if len(guess.tokens) < guess.budget:
                going.append(guess)
        live = going
