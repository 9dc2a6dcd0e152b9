"""The laws q that a draft's nodes were drawn from, as the rule reads them.

A drafter with a reduced vocabulary draws from a law over the tokens that it knows. The law is 0 everywhere else, and
nothing as wide as the target's vocabulary is made of it: the rule asks only for the probability of the drafted token,
and for what the target's law has left once q is taken from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.types import Draft


@dataclass(frozen=True, slots=True, eq=False)
class PartialLaw:
    """A law over a part of the vocabulary.

    tokens: [W] int64, no token twice. weights: [W].
    """

    tokens: NDArray[np.int64]
    weights: NDArray[Any]

    def __getitem__(self, token: int) -> Any:
        """The weight of a token, 0 for one that is not there."""
        at = np.flatnonzero(self.tokens == token)
        return self.weights[at[0]] if at.size else self.weights.dtype.type(0)

    def over(self, size: int) -> NDArray[Any]:
        """The same over a vocabulary of that size, [V]."""
        law = np.zeros(size, dtype=self.weights.dtype)
        law[self.tokens] = self.weights
        return law

    def taken_from(self, law: NDArray[Any]) -> NDArray[Any]:
        """max(law - self, 0), [V], in the place of `law`, which has no weight below 0."""
        law[self.tokens] = np.maximum(law[self.tokens] - self.weights, 0)
        return law


def whole(law: NDArray[Any] | PartialLaw, size: int) -> NDArray[Any]:
    """A node's law over a vocabulary of that size, [V]."""
    return law.over(size) if isinstance(law, PartialLaw) else law


def drafted_laws(draft: Draft) -> Sequence[NDArray[Any] | PartialLaw]:
    """The law of each node of a draft that was drawn, on the host."""
    assert draft.q is not None, "only asked of drawn nodes"
    q: Any = draft.q.detach().cpu().numpy()
    if draft.vocabulary is None:
        return list(q)
    tokens = draft.vocabulary.cpu().numpy()
    return [PartialLaw(tokens, row) for row in q]
