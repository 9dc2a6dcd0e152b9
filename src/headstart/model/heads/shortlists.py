"""Shortlists: the few candidates of each place of a forward, and their scores after the tokens drafted before them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

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
