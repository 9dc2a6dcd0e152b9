"""Shortlists: the few candidates of each place of a forward, and their scores after the tokens drafted before them.

Guesses of one forward do not know of each other. A selector corrects them by pairs: among the likeliest candidates of
a place, the score of c after the token p is

    logit[c] + <A[p] * (W h), B[c]>

with h the state from which the place's logits were made, and two codebooks of low rank, A of predecessors and B of
successors. It needs no forward, and with B = 0 it changes nothing.

Source: the candidate selector of DFlash2 (z-lab, 2026). `markov` has DSpark's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Shortlists(ABC):
    """The candidates of one forward's places, on the CPU. K places, S candidates of each.

    places: [K, S] their indices in the logits, rising. logits: [K, S] theirs, float32, before any correction.
    """

    by_pairs: ClassVar[bool] = True
    """Whether a score depends on the one token before it, and on none before that."""

    places: Tensor
    logits: Tensor

    @abstractmethod
    def scores(self, place: int, paths: Sequence[tuple[int, ...]]) -> Tensor:
        """[R, S]: the candidates' logits at one place, float32.

        paths: the target's ids of the tokens before the place, x0 first; the last of them where `by_pairs`.
        """


def candidates(logits: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Of each row of logits [K, W] the likeliest: `places` and `logits` of its shortlist."""
    places = logits.topk(min(top, logits.shape[-1])).indices.sort(-1).values
    return places.cpu(), logits.gather(-1, places).float().cpu()


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
