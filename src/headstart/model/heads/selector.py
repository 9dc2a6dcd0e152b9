"""A selector: which of a few likely tokens follows the one drafted before it.

Guesses of one forward do not know of each other. The selector corrects them by pairs: among the likeliest candidates of
a place, the score of c after the token p is

    logit[c] + <A[p] * (W h), B[c]>

with h the state from which the place's logits were made, and two codebooks of low rank, A of predecessors and B of
successors. It needs no forward, and with B = 0 it changes nothing.

Source: the candidate selector of DFlash2 (z-lab, 2026); DSpark (arXiv:2607.05147) corrects the whole vocabulary so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Shortlists:
    """The candidates of one forward's places, on the CPU. K places, S candidates of each, rank r.

    places: [K, S] their indices in the logits, rising. logits: [K, S] theirs, float32. weights: [K, S, r]
    B[c] * (W h). predecessors: [V, r], A.
    """

    places: Tensor
    logits: Tensor
    weights: Tensor
    predecessors: Tensor

    def scores(self, place: int, tokens: Sequence[int]) -> Tensor:
        """[R, S]: the candidates' logits at one place after each of these tokens, float32."""
        before = self.predecessors[torch.tensor(tokens)].float()
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

    def shortlists(self, logits: Tensor, states: Tensor) -> Shortlists:
        """The candidates of each place. logits: [K, draft V]; states: [K, d], those that the logits were made from."""
        places = logits.topk(self.top).indices.sort(-1).values
        hidden = (states.to(self._projection.dtype) @ self._projection.T).float()
        weights = self._successors[places].float() * hidden[:, None]
        return Shortlists(places.cpu(), logits.gather(-1, places).float().cpu(), weights.cpu(), self._predecessors)

    def weights(self) -> tuple[Tensor, ...]:
        """Its tensors."""
        return self._predecessors, self._successors, self._projection
