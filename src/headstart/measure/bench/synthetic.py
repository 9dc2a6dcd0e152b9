"""Accepted lengths that are drawn instead of found out: what a round costs where no trained drafter can be had.

What a round costs depends on the shapes of target and drafter, and not on what their weights say. `SyntheticJudge` lets
the rule do its work, then keeps as many guesses as it draws: each with the same probability, until one is not kept. The
text is then not the target's, and says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from headstart.engine.judging import Judge, Outcome
from headstart.rule.row import Row
from headstart.types import Draft


class SyntheticJudge(Judge):
    """Keeps each guess with a probability, whatever it is.

    Args:
        inner: the judge whose time is spent all the same.
        acceptance: the probability, from 0 to 1.
        seed: of the draws, which depend on the request and on the place in its text alone.
    """

    def __init__(self, inner: Judge, acceptance: float, seed: int = 0) -> None:
        self._inner, self._acceptance, self._seed = inner, acceptance, seed

    def outcomes(self, rows: Sequence[Row], drafts: Sequence[Draft], logits: Tensor) -> list[Outcome]:
        found = self._inner.outcomes(rows, drafts, logits)
        return [self._kept(*each) for each in zip(rows, drafts, found, strict=True)]

    def _kept(self, row: Row, draft: Draft, outcome: Outcome) -> Outcome:
        """The same outcome with another path: at each depth the first child, the drafter's best guess."""
        if not row.judged or outcome.error is not None or not len(draft):
            return outcome
        draws = np.random.default_rng((self._seed, row.request, len(row.tokens))).random(max(draft.depths))
        path: list[int] = []
        while len(path) < len(draws) and draws[len(path)] < self._acceptance:
            below = draft.children[path[-1] + 1 if path else 0]
            if not below:
                break
            path.append(below[0])
        tokens = (*(draft.tokens[node] for node in path), outcome.tokens[-1])
        return replace(outcome, path=tuple(path), tokens=tokens, logprobs=None)
