"""The options of a run that trains Medusa heads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from headstart.base.options import check_number, option, strict
from headstart.train.options.shared import HeadTraining

_heads = partial(option, panel="The heads")


@strict
@dataclass(frozen=True, slots=True)
class MedusaTraining(HeadTraining):
    """One run that trains Medusa heads for a target.

    init: "target" begins each head as the target's output matrix after a linear forecast of the state, "random" with
    noise.
    """

    other_rate: float = 1e-3
    heads: int = _heads(4, "Number of heads, each for a token one further ahead.", low=1)
    blocks: int = _heads(1, "Residual blocks of a head before its output matrix.", low=1)
    head_decay: float = _heads(0.8, "Weight of each head's loss relative to that of the head before.", above=0, high=1)

    def __post_init__(self) -> None:
        HeadTraining.__post_init__(self)
        check_number("heads", self.heads, low=1, high=self.sequence_length - 2, integer=True)
