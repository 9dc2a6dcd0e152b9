"""Rounds of speculation under processors, in exact arithmetic: a random model, drafts of another one, the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch

from headstart.drafters.forced import certain_after
from headstart.engine.drafts import allowed_part
from headstart.rule.distribution import SamplingRow, SamplingState, distribution
from headstart.rule.distributions import sampling_rows
from headstart.rule.softmax import softmax
from headstart.rule.verify import traverse, walk
from headstart.types import Draft
from support.enumeration import Oracle


@cache
def logits(seed: int, vocab: int, context: tuple[int, ...]) -> torch.Tensor:
    weights = np.random.default_rng([seed, len(context), *context]).normal(size=vocab)
    return torch.tensor(weights, dtype=torch.float32)


def exact(p: torch.Tensor) -> Any:
    """The very float32 numbers as rationals, with the sum 1."""
    weights = [Fraction(float(x)) for x in p]
    return np.array([weight / sum(weights) for weight in weights], dtype=object)


class World:
    """A target and a drafter of random logits, under the processors of a request.

    begin: the state before the first token.
    allowed: which tokens may follow a text, found out in another way; where given, the target's own distribution is
        made with it, and without a processor.
    """

    def __init__(
        self,
        begin: Callable[[], SamplingState],
        vocab: int,
        allowed: Callable[[tuple[int, ...]], Sequence[int]] | None = None,
    ) -> None:
        self.begin, self.vocab, self._allowed = begin, vocab, allowed
        self.model: Any = cache(self._plain)
        self.rows: Callable[[SamplingState, Draft], tuple[SamplingRow, ...]] = sampling_rows
        self.cuts_drawn = False
        self.lengthens = False
        """Whether what is certain after a chain is drafted as well."""

    def _plain(self, context: tuple[int, ...]) -> Any:
        """The target's distribution after every context, from a state that was extended to it token by token."""
        x = logits(1, self.vocab, context)
        if self._allowed is not None:
            masked = torch.full_like(x, -torch.inf)
            may = list(self._allowed(context))
            masked[may] = x[may]
            # what is found in another way is the mask: rounded as the engine does, the numbers are the same
            return exact(torch.from_numpy(softmax().distributions(masked[None].numpy(), [1.0])[0]))
        state = self.begin()
        for token in context:
            state = state.after((token,))
        return exact(distribution(x[None], [SamplingRow(state)])[0])

    def round(
        self, oracle: Oracle, state: SamplingState, text: tuple[int, ...], shape: Sequence[int], drawn: str | None
    ) -> tuple[int, ...]:
        """Draft, and judge, all rows of one state as the engine has it: returns what is emitted.

        shape: children of each node, by level. drawn: from the drafter's distribution, "masked" as the target's is or
            "unmasked"; None guesses anything.
        """
        tokens: list[int] = []
        parents: list[int] = []
        q_of: list[Any] = []
        paths: list[tuple[int, ...]] = [()]
        level = [-1]
        for width in shape:
            below = []
            for parent in level:
                path = paths[parent + 1]
                q = None
                if drawn is not None:
                    x = logits(2, self.vocab, (*text, *path))[None]
                    q = exact(distribution(x, [SamplingRow(state, path)])[0] if drawn == "masked" else x[0].softmax(-1))
                for sibling in range(width):
                    if q is not None and not q.sum() > 0:
                        break
                    token = (sibling + len(path)) % self.vocab if q is None else oracle.draw(q)
                    below.append(len(tokens))
                    tokens.append(token)
                    parents.append(parent)
                    paths.append((*path, token))
                    q_of.append(q)
                    if q is not None:
                        q = q.copy()
                        q[token] = Fraction(0)
                        q = q / q.sum() if q.sum() > 0 else q
            level = below
        if self.lengthens and all(state.place.after(tokens[:i]).allows(token) for i, token in enumerate(tokens)):
            for token in certain_after(state.place.after(tokens), 3):
                tokens.append(token)
                parents.append(len(tokens) - 2)
                q_of.append(np.array([Fraction(int(each == token)) for each in range(self.vocab)], dtype=object))
        draft = Draft(tuple(tokens), tuple(parents))
        if drawn is None or self.cuts_drawn:
            draft = allowed_part(draft, state.place)  # of a chain, its beginning
        rows = self.rows(state, draft)
        x = torch.stack([logits(1, self.vocab, (*text, *row.drafted)) for row in sampling_rows(state, draft)])
        p = [exact(row) for row in distribution(x, rows)]
        if drawn is None:
            verdict = walk(draft, p, lambda row, _: oracle.draw(row))
        else:
            verdict = traverse(draft, p, q_of, lambda a, _: oracle.uniform(a), lambda row, _: oracle.draw(row))
        return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)
