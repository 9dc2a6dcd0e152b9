"""The options of a run that trains an early exit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from headstart.base.options import option, strict
from headstart.train.options.shared import RowTraining

_exit = partial(option, panel="The exit")


@strict
@dataclass(frozen=True, slots=True)
class ExitTraining(RowTraining):
    """One run that trains a way out of the target after some of its layers.

    The output matrix stays the target's. matrix_rate is smaller than elsewhere, as the map begins as the identity.
    """

    matrix_rate: float = 0.003
    layers: int | None = _exit(
        None, "After how many of the target's layers drafts are made. Default: a quarter of them.", low=1
    )
    draft_vocab_size: int | None = _exit(
        None, "Number of tokens that the exit can propose, the most frequent ones. Default: 16,384 where the "
        "vocabulary has 32,768 or more, else all.", low=1,
    )  # fmt: skip
