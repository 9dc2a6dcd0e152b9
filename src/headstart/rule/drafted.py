"""The distributions q that a draft's nodes were drawn from, as the rule reads them.

A drafter with a reduced vocabulary draws from a distribution over the tokens that it knows. The distribution is 0
everywhere else, and nothing as wide as the target's vocabulary is made of it: the rule asks only for the probability of
the drafted token, and for what the target's distribution has left once q is taken from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.types import Draft


class Known:
    """The tokens of a part of the vocabulary [W] int64, none twice; and the place of each among them."""

    def __init__(self, tokens: NDArray[np.int64]) -> None:
        self.tokens = tokens
        self.columns = {token: column for column, token in enumerate(tokens.tolist())}


@dataclass(frozen=True, slots=True, eq=False)
class PartialDistribution:
    """A distribution over a part of the vocabulary.

    weights: [W].
    """

    known: Known
    weights: NDArray[Any]

    def __getitem__(self, token: int) -> Any:
        """The weight of a token, 0 for one that is not there."""
        column = self.known.columns.get(token)
        return self.weights.dtype.type(0) if column is None else self.weights[column]

    def over(self, size: int) -> NDArray[Any]:
        """The same over a vocabulary of that size, [V]."""
        distribution = np.zeros(size, dtype=self.weights.dtype)
        distribution[self.known.tokens] = self.weights
        return distribution

    def taken_from(self, distribution: NDArray[Any]) -> NDArray[Any]:
        """max(distribution - self, 0), [V], in the place of `distribution`, which has no weight below 0."""
        distribution[self.known.tokens] = np.maximum(distribution[self.known.tokens] - self.weights, 0)
        return distribution


def whole(distribution: NDArray[Any] | PartialDistribution, size: int) -> NDArray[Any]:
    """A node's distribution over a vocabulary of that size, [V]."""
    return distribution.over(size) if isinstance(distribution, PartialDistribution) else distribution


def drafted_distributions(draft: Draft) -> Sequence[NDArray[Any] | PartialDistribution]:
    """The distribution of each node of a draft that was drawn, on the host."""
    assert draft.q is not None, "only asked of drawn nodes"
    q: Any = draft.q.detach().cpu().numpy()
    if draft.vocabulary is None:
        return list(q)
    known = _known(draft.vocabulary)
    return [PartialDistribution(known, row) for row in q]


@lru_cache(maxsize=8)
def _known(vocabulary: Any) -> Known:
    """Kept by the tensor itself, which is the same in all drafts of a drafter."""
    return Known(vocabulary.cpu().numpy())
