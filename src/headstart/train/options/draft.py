"""The options of a run that distils a draft model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, option, strict
from headstart.train.options.shared import DepthTraining

_draft = partial(option, panel="The draft model")
_run = partial(option, panel="Training run")
_size = partial(option, None, panel="Size of the draft model", low=1)


@strict
@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a Llama-style draft. None takes a default from the target's size (`headstart.train.student`)."""

    hidden: int | None = _size("Hidden size. Default: from the target's size.")
    layers: int | None = _size("Number of layers.")
    intermediate: int | None = _size("Width of the MLP.")
    heads: int | None = _size("Number of attention heads.")
    kv_heads: int | None = _size("Number of key and value heads.")

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_divides("hidden", "heads")
        self._check_divides("heads", "kv_heads")

    def _check_divides(self, of: str, into: str) -> None:
        whole, parts = getattr(self, of), getattr(self, into)
        if whole is not None and parts is not None and whole % parts:
            raise InvalidOption(f"{of}={whole} cannot be divided among {into}={parts}", hint="make it a multiple")


@strict
@dataclass(frozen=True, slots=True)
class DraftTraining(DepthTraining):
    """One run that distils a draft LM from a target.

    parallel: PARD (arXiv:2504.18583); such a draft goes on guessing beyond what it was trained on.
    loss_tokens: of the other tokens a quarter as many are drawn anew for each step, and stand for all of them.
    begin_with: replaces `init` and `shape`.
    """

    shape: Shape = Shape()
    parallel: int | None = _draft(
        None, "Tokens that the draft learns to guess in one forward. Above 1 it gets a mask token that stands for what "
        "is still to come, and its drafts cost one forward whatever their length. Default: 1, or 8 for a draft with a "
        "mask token.", low=1, high=16,
    )  # fmt: skip
    loss_tokens: int | None = _run(
        None, "Number of tokens over which the loss is computed, the most frequent ones; a few of the others are drawn "
        "for each step. Default: 8,192 where the vocabulary has 32,768 or more, else all.", low=1,
    )  # fmt: skip

    def __post_init__(self) -> None:
        DepthTraining.__post_init__(self)
        if (self.parallel or 1) + 1 > self.sequence_length:
            raise InvalidOption(
                f"sequence_length={self.sequence_length} is too short for parallel={self.parallel}",
                hint="each guess in a row needs one more token of a window",
            )
        if self.begin_with is not None and self.shape != Shape():
            raise InvalidOption("begin_with and a shape are both given", hint="the draft model keeps its own shape")
