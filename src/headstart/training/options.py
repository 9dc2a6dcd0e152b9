"""The options of a training run: `Training`, which every kind of run shares, and a class for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from headstart.errors import InvalidOption
from headstart.options import check_fields, check_number, described, option, strict

Init = Literal["target", "random"]
Format = Literal["hf", "speculators", "both"]
DepthWeights = Literal["decay", "confidence"]
DType = Literal["auto", "float32", "bfloat16"]
Quantize = Literal["int8", "int4", "none"]

_size = partial(option, None, panel="Size of the draft model", low=1)
_data = partial(option, panel="Training data")
_run = partial(option, panel="Training run")
_head = partial(option, panel="The head")
_draft = partial(option, panel="The draft model")
_exit = partial(option, panel="The exit")
_heads = partial(option, panel="The heads")


@strict
@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a Llama-style draft. None takes a default from the target's size (`headstart.training.student`)."""

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
class Training:
    """What every kind of run shares.

    Exactly one of steps and minutes is given. The loss is (1 - tv_weight) * KL(p||q) + tv_weight * TV(p, q), where
    TV = 1 - sum min(p, q) is the rejection rate itself (Leviathan et al. 2023, section 3.4), but a poor guide at the
    start.
    """

    target: str | Path = field(
        metadata=described("The model to draft for: a directory or a hub id.", "-t", metavar="MODEL")
    )
    output: str | Path = field(
        metadata=described(
            "Directory of the new drafter. The same command again resumes.", "-o", metavar="DIR", kind=Path
        )
    )
    data: Sequence[str | Path] = option(
        (), 'Text files, directories of them, or JSONL with "text", "prompt" or "turns".',
        metavar="DATA", kind=list[Path], positional=True,
    )  # fmt: skip
    self_prompts: int = _data(
        0, "Number of conversations that the target, a chat model, writes whole: the user's message, then its answer. "
        "They need no data.", low=0,
    )  # fmt: skip
    generations: int = _data(
        0, "Number of texts that the target itself writes, continuing prompts from the data.", low=0
    )
    generation_tokens: int = _data(256, "Length of each such text in tokens.", low=1)
    generation_temperatures: Sequence[float] = _data(
        (0.0, 1.0), "Temperature of these texts and answers; several are used in turn.", "--generation-temperature",
        low=0,
    )  # fmt: skip
    generation_quantize: Quantize | None = _data(
        None, "Let the target write with this 'quantize', which is faster: the texts are then those of the rounded "
        "model. Default: with the weights as they are trained on.",
    )  # fmt: skip
    tv_weight: float = _run(
        0.0, "Weight of the rejection rate in the loss; the rest is the KL divergence.", low=0, high=1
    )
    init: Init = _run(
        "target", "First weights: the target's as far as the shapes permit ('target'), or noise ('random')."
    )
    steps: int | None = option(None, "Train for this many steps, which makes the run repeatable.", low=1)
    minutes: float | None = option(
        None, "Train for this long instead, reading the target's states included; texts are written before.", above=0
    )
    batch_size: int = _run(8, "Windows per step.", low=1)
    micro_batch: int | None = _run(
        None, "Windows held in memory at once. Default: as many as have room for their logits."
    )
    sequence_length: int = _data(512, "Length of a window in tokens.", low=8)
    matrix_rate: float = _run(0.02, "Peak learning rate of the matrices (Muon).", above=0)
    other_rate: float = _run(3e-3, "Peak learning rate of embeddings and norms (AdamW).", above=0)
    validation: float = _data(0.02, "Share of the documents held out for validation.", above=0, high=0.5)
    validation_windows: int = _data(64, "Number of held-out windows to measure on.", low=1)
    evaluate_every: int = _run(500, "Steps between measurements.", low=1)
    patience: int | None = _run(
        None, "End once so many measurements in a row brought no longer accepted drafts, and keep the best weights.",
        low=1,
    )  # fmt: skip
    save_every: float = _run(120.0, "Seconds between checkpoints.", above=0)
    seed: int = _run(0, "Seed of the order of the data and of random first weights.", low=0, high=2**31 - 1)
    device: str = _run("auto", "'auto', 'cpu' or 'cuda'.")
    dtype: DType = _run("auto", "Number format of the weights during training.")

    def __post_init__(self) -> None:
        if isinstance(self.data, (str, Path)):
            object.__setattr__(self, "data", (self.data,))
        if not self.data and (self.generations or not self.self_prompts):
            raise InvalidOption(
                "data is empty" + (", and generations continue it" if self.generations else ""),
                hint="name text files, directories or JSONL files; for a chat model, self_prompts=2000 needs none",
            )
        object.__setattr__(self, "data", tuple(str(path) for path in self.data))
        object.__setattr__(self, "target", str(self.target))
        object.__setattr__(self, "output", str(self.output))
        if (self.steps is None) == (self.minutes is None):
            raise InvalidOption(
                f"steps={self.steps} and minutes={self.minutes}: exactly one must be given",
                hint="steps=... for a repeatable run, minutes=... for a known end",
            )
        check_fields(self)
        if not self.generation_temperatures:
            raise InvalidOption("generation_temperatures is empty", hint="give at least one, 0 is greedy")
        if self.micro_batch is not None:
            check_number("micro_batch", self.micro_batch, low=1, high=self.batch_size, integer=True)

    @property
    def folder(self) -> Path:
        """The output directory."""
        return Path(self.output).expanduser()

    def record(self) -> dict[str, Any]:
        """All options as plain values."""
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """What must not change between a run and its resumption: all but where it runs and how long."""
        same = replace(self, steps=1, minutes=None, save_every=1.0, evaluate_every=1, device="auto")
        return {k: v for k, v in same.record().items() if k not in ("output", "steps", "minutes")}


@strict
@dataclass(frozen=True, slots=True)
class HeadTraining(Training):
    """What the runs share that learn from the target's hidden states."""

    cache_hidden: float | None = _run(
        None, "Gigabytes of disk for the target's hidden states, which are then read once; 0 keeps none, and what has "
        "no room is computed whenever it is needed. Default: 20, or a quarter of what is free.", metavar="GB", low=0,
    )  # fmt: skip
    target_quantize: Quantize | None = _run(
        None, "Read the states of the target as it runs with this 'quantize', if it is to run so: a head learns best "
        "from the states that it will be given.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        Training.__post_init__(self)


@strict
@dataclass(frozen=True, slots=True)
class DraftTraining(HeadTraining):
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
    depth_keep: float = _draft(
        0.7, "Share of the rows of each guess in a row that the next one is trained on.", above=0, high=1
    )
    depth_floor: float = _draft(0.2, "Share of the rows that every guess is trained on at least.", low=0, high=1)
    loss_tokens: int | None = _run(
        None, "Number of tokens over which the loss is computed, the most frequent ones; a few of the others are drawn "
        "for each step. Default: 8,192 where the vocabulary has 32,768 or more, else all.", low=1,
    )  # fmt: skip
    row_share: float = _run(
        1.0, "Share of the positions on which the loss is computed; a smaller one makes steps cheaper.", above=0, high=1
    )
    begin_with: str | Path | None = _run(
        None, "A draft model to continue from, for example to adapt it.", metavar="MODEL", kind=str
    )

    def __post_init__(self) -> None:
        HeadTraining.__post_init__(self)
        if (self.parallel or 1) + 1 > self.sequence_length:
            raise InvalidOption(
                f"sequence_length={self.sequence_length} is too short for parallel={self.parallel}",
                hint="each guess in a row needs one more token of a window",
            )
        if self.begin_with is None:
            return
        object.__setattr__(self, "begin_with", str(self.begin_with))
        if self.shape != Shape():
            raise InvalidOption("begin_with and a shape are both given", hint="the draft model keeps its own shape")


@strict
@dataclass(frozen=True, slots=True)
class Eagle3Training(HeadTraining):
    """One run that trains an EAGLE-3 head for a target.

    layer_ids: None takes 2, L // 2 and L - 3, or what is nearest in a shallow target.
    ttt_steps: the first pass is included.
    begin_with: replaces `init`. The head's sizes are kept, and where they are not given its layers and its vocabulary.
    format: "speculators" is what vLLM loads directly; "both" puts it below `speculators/`.
    """

    tv_weight: float = 0.5
    layer_ids: Sequence[int] | None = _head(
        None, "A target layer whose input the head reads; give three. Default: an early, a middle and a late one.",
        "--layer-id", low=0,
    )  # fmt: skip
    ttt_steps: int = _head(
        4, "Passes of the training-time test: how many tokens in a row the head learns to draft.", low=1, high=16
    )
    depth_keep: float = _run(
        0.7, "Share of the rows of each pass that the next one keeps: deep guesses are trained on fewer.", above=0,
        high=1,
    )  # fmt: skip
    depth_floor: float = _run(0.2, "Share of the rows that every pass keeps at least.", low=0, high=1)
    depth_weights: DepthWeights = _run(
        "decay", "Weight of each pass: by 'step_decay', or by how many guesses the head itself expects to be accepted "
        "there and after ('confidence').",
    )  # fmt: skip
    tv_warmup: int = _run(0, "Steps over which the weight of the rejection rate rises to 'tv_weight'.", low=0)
    tv_ramp: float = _run(
        0.0, "Let that weight also grow with a guess's own chance a of acceptance, as 1 - exp(-ramp * a); 0 does not.",
        low=0,
    )  # fmt: skip
    layers: int = _head(1, "Decoder layers; those after the first begin as the identity.", low=1, high=8)
    parallel: int = _head(
        0, "Guess this many tokens in one forward, with masked rows (P-EAGLE); it takes the place of 'ttt_steps'. "
        "Use two layers or more. Default: one forward for each token.", low=0, high=32,
    )  # fmt: skip
    mask_token: int | None = _head(
        None, "Id of the token that stands for a guess in those rows. Default: one that the text does not have.", low=0
    )
    learn_mask: bool = _head(
        False, "Learn the embedding of that token too; the head then has an embedding of its own, as large as the "
        "target's.",
    )  # fmt: skip
    freeze_first: bool = _run(
        False, "Keep the first guess of 'begin_with' as it is: train its masked rows and its selector alone.",
    )  # fmt: skip
    selector_rank: int = _head(
        0, "Rank of a selector, which corrects guesses by the token before them; 0 leaves it out. Try 32.", low=0
    )
    selector_top_k: int = _head(16, "Candidates of each guess among which the selector chooses.", low=2)
    freeze_output: bool = _run(False, "Leave the output matrix as it begins, which makes steps cheaper.")
    step_decay: float = _head(0.8, "Weight of each pass relative to the one before.", above=0, high=1)
    draft_vocab_size: int | None = _head(
        None, "Number of tokens that the head can propose, the most frequent ones. Default: as many as cover 99.5% of "
        "the text, from 8,192 to 32,768.", low=1,
    )  # fmt: skip
    row_share: float = _run(
        1.0, "Share of the positions on which the loss is computed; a smaller one makes steps cheaper.", above=0, high=1
    )
    norm_before_residual: bool = _head(False, "The residual carries the normed hidden state, as in some checkpoints.")
    begin_with: str | Path | None = _head(
        None, "An EAGLE-3 head to continue from, for example to adapt it.", metavar="DIR", kind=Path
    )
    format: Format = _head("hf", "Layout on disk: for headstart and SGLang ('hf'), for vLLM ('speculators'), or both.")

    def __post_init__(self) -> None:
        Training.__post_init__(self)
        if self.begin_with is not None:
            object.__setattr__(self, "begin_with", str(self.begin_with))
        if self.depths + 2 > self.sequence_length:
            name = "parallel" if self.parallel else "ttt_steps"
            raise InvalidOption(
                f"sequence_length={self.sequence_length} is too short for {name}={self.depths}",
                hint="each further step needs one more token of a window",
            )
        if self.parallel == 1:
            raise InvalidOption("parallel=1 guesses no token beyond the first", hint="use 2 or more, or leave it out")
        for name, usual in (("learn_mask", False), ("mask_token", None), ("selector_rank", 0)):
            if not self.parallel and getattr(self, name) != usual:
                raise InvalidOption(f"{name} is given, and the head guesses one token at a time", hint="add parallel=8")
        if self.freeze_first and not self._adds():
            raise InvalidOption(
                "freeze_first leaves nothing to train",
                hint="give begin_with, and parallel to add guesses to that head",
            )
        if self.layer_ids is not None and len(set(self.layer_ids)) != 3:
            raise InvalidOption(f"layer_ids={self.layer_ids} are not three different layers", hint="give three")

    @property
    def depths(self) -> int:
        """Guesses in a row that the head learns to make."""
        return self.parallel or self.ttt_steps

    def _adds(self) -> bool:
        return self.begin_with is not None and self.parallel > 0


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
        Training.__post_init__(self)
        check_number("heads", self.heads, low=1, high=self.sequence_length - 2, integer=True)


@strict
@dataclass(frozen=True, slots=True)
class ExitTraining(HeadTraining):
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
    row_share: float = _run(
        1.0, "Share of the positions on which the loss is computed; a smaller one makes steps cheaper.", above=0, high=1
    )
