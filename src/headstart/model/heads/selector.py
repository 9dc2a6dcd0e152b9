"""A selector: which of a few likely tokens follows the one drafted before it.

Guesses of one forward do not know of each other. The selector corrects them by pairs: among the likeliest candidates of
a place, the score of c after the token p is

    logit[c] + <A[p] * (W h), B[c]>

with h the state from which the place's logits were made, and two codebooks of low rank, A of predecessors and B of
successors. It needs no forward, and with B = 0 it changes nothing.

Source: the candidate selector of DFlash2 (z-lab, 2026). `markov` has DSpark's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.model.heads.shortlists import Shortlists, candidates


@dataclass(frozen=True, slots=True, eq=False)
class PairLists(Shortlists):
    """The candidates, and what makes their scores. Rank r.

    weights: [K, S, r] B[c] * (W h). predecessors: [V, r], A.
    """

    weights: Tensor
    predecessors: Tensor

    def scores(self, place: int, paths: Sequence[tuple[int, ...]]) -> Tensor:
        before = self.predecessors[torch.tensor([path[-1] for path in paths])].float()
        return self.logits[place] + before @ self.weights[place].T


class Selector:
    """The codebooks, ready to run.

    Args:
        predecessors: A [V, r], by the target's ids.
        successors: B [draft V, r], by the indices of the logits.
        projection: W [r, d].
        top: candidates of a place.
    """

    def __init__(self, predecessors: Tensor, successors: Tensor, projection: Tensor, top: int) -> None:
        self._predecessors, self._successors, self._projection = predecessors.cpu(), successors, projection
        self.top = min(top, len(successors))

    def shortlists(self, logits: Tensor, states: Tensor) -> PairLists:
        """The candidates of each place. logits: [K, draft V]; states: [K, d], those that the logits were made from."""
        places, likeliest = candidates(logits, self.top)
        hidden = (states.to(self._projection.dtype) @ self._projection.T).float()
        weights = self._successors[places.to(self._successors.device)].float() * hidden[:, None]
        return PairLists(places, likeliest, weights.cpu(), self._predecessors)

    def weights(self) -> tuple[Tensor, ...]:
        """Its tensors."""
        return self._predecessors, self._successors, self._projection
