"""The options of each kind of run: a draft model, an EAGLE-3, P-EAGLE or MTP head, Medusa heads, an early exit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, check_number, option, strict
from headstart.train.options.shared import DepthTraining, HeadTraining, RowTraining, UnrolledTraining

Format = Literal["hf", "speculators", "both"]

_run = partial(option, panel="Training run")
_size = partial(option, None, panel="Size of the draft model", low=1)
_draft = partial(option, panel="The draft model")
_head = partial(option, panel="The head")
_heads = partial(option, panel="The heads")
_exit = partial(option, panel="The exit")


@strict
@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a Llama-style draft. None takes a default from the target's size (`headstart.train.draft_start`)."""

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
    loss_tokens: of the other tokens a quarter as many are drawn again for each step, and represent all of them.
    begin_with: replaces `init` and `shape`.
    """

    shape: Shape = Shape()
    parallel: int | None = _draft(
        None, "Tokens that the draft learns to guess in one forward. Above 1 it gets a mask token in place of what "
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
            problem = f"sequence_length={self.sequence_length} is too short for parallel={self.parallel}"
            raise InvalidOption(problem, hint="each guess in a row needs one more token of a window")
        if self.begin_with is not None and self.shape != Shape():
            raise InvalidOption("begin_with and a shape are both given", hint="the draft model keeps its own shape")


@strict
@dataclass(frozen=True, slots=True)
class Eagle3Training(UnrolledTraining):
    """One run that trains an EAGLE-3 head for a target.

    layer_ids: None takes 2, L // 2 and L - 3, or what is nearest in a shallow target.
    begin_with: replaces `init`. The head's sizes are kept, and where they are not given its layers and its vocabulary.
    format: "speculators" is what vLLM loads directly; "both" puts it below `speculators/`.
    """

    layer_ids: Sequence[int] | None = _head(
        None, "A target layer whose input the head reads; give three. Default: an early, a middle and a late one.",
        "--layer-id", low=0,
    )  # fmt: skip
    layers: int = _head(1, "Number of decoder layers; those after the first start as the identity.", low=1, high=8)
    parallel: int = _head(
        0, "Guess this many tokens in one forward, with masked rows (P-EAGLE); it takes the place of --ttt-steps. "
        "Use two layers or more. Default: one forward for each token.", low=0, high=32,
    )  # fmt: skip
    mask_token: int | None = _head(
        None,
        "Id of the token of those masked rows. Default: one that the text does not have.",
        low=0,
    )
    learn_mask: bool = _head(
        False, "Learn the embedding of that token too; the head then has an embedding of its own, as large as the "
        "target's.",
    )  # fmt: skip
    freeze_first: bool = _run(
        False, "Keep the first guess of --begin-with as it is: train its masked rows and its selector alone.",
    )  # fmt: skip
    selector_rank: int = _head(
        0, "Rank of a selector, which corrects guesses by the token before them; 0 leaves it out. Try 32.", low=0
    )
    selector_top_k: int = _head(16, "Candidates of each guess among which the selector chooses.", low=2)
    freeze_output: bool = _run(False, "Do not train the output matrix, which makes steps cheaper.")
    draft_vocab_size: int | None = _head(
        None, "Number of tokens that the head can propose, the most frequent ones. Default: as many as cover 95% of "
        "the text, from 8,192 to 32,768.", low=1,
    )  # fmt: skip
    norm_before_residual: bool = _head(False, "The residual carries the normed hidden state, as in some checkpoints.")
    format: Format = _head("hf", "Layout on disk: for headstart and SGLang ('hf'), for vLLM ('speculators'), or both.")

    def __post_init__(self) -> None:
        UnrolledTraining.__post_init__(self)
        if self.parallel == 1:
            raise InvalidOption("parallel=1 guesses no token beyond the first", hint="use 2 or more, or leave it out")
        for name, usual in (("learn_mask", False), ("mask_token", None), ("selector_rank", 0)):
            if not self.parallel and getattr(self, name) != usual:
                raise InvalidOption(f"{name} is given, and the head guesses one token at a time", hint="add parallel=8")
        if self.freeze_first and not self._adds():
            problem = "freeze_first leaves nothing to train"
            raise InvalidOption(problem, hint="give begin_with, and parallel to add guesses to that head")
        if self.layer_ids is not None and len(set(self.layer_ids)) != 3:
            raise InvalidOption(f"layer_ids={self.layer_ids} are not three different layers", hint="give three")

    @property
    def depths(self) -> int:
        return self.parallel or self.ttt_steps

    @property
    def _deep(self) -> str:
        return "parallel" if self.parallel else "ttt_steps"

    def _adds(self) -> bool:
        return self.begin_with is not None and self.parallel > 0


@strict
@dataclass(frozen=True, slots=True)
class MtpTraining(UnrolledTraining):
    """One run that trains an MTP head, which lies beside its target in one checkpoint.

    init: "target" begins as the head that the target's checkpoint holds, if it holds one, and else as a regression.
    begin_with: a model's directory with a head for this target.
    """

    loss_tokens: int | None = _head(
        None, "Number of tokens over which the loss is computed and acceptance measured, the most frequent ones. "
        "Default: 32,768 where the vocabulary has more than twice as many, which is what drafts are made of, else all.",
        low=1,
    )  # fmt: skip


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
