"""What every training run shares, and what those share that learn from the target's states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, check_number, described, option, strict

Init = Literal["target", "random"]
DType = Literal["auto", "float32", "bfloat16"]
Quantize = Literal["int8", "int4", "none"]

_data = partial(option, panel="Training data")
_run = partial(option, panel="Training run")
_head = partial(option, panel="The head")


@strict
@dataclass(frozen=True, slots=True)
class Training:
    """What every kind of run shares.

    Exactly one of steps and minutes is given. The loss is (1 - tv_weight) * KL(p||q) + tv_weight * TV(p, q), where
    TV = 1 - sum min(p, q) is the rejection rate itself (Leviathan et al. 2023, section 3.4), but a poor guide at the
    start.
    """

    target: str | Path = field(
        metadata=described(
            "The model to draft for: a folder or a hub id. It may also come first, without a flag.",
            "--model", "-m", "--target", metavar="MODEL", panel="Model",
        )
    )  # fmt: skip
    output: str | Path = field(
        metadata=described(
            "Folder of the new drafter. The same command again resumes.",
            "--output",
            "-o",
            metavar="DIR",
            kind=Path,
            panel="Output",
        )
    )
    data: Sequence[str | Path] = option(
        (), 'The model, as --model takes it; then text files, folders of them, or JSONL with "text", "prompt" or '
        '"turns".',
        metavar="MODEL [DATA]...", kind=list[Path], positional=True, others=(0, math.inf),
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
        None, "Let the target write with rounded weights, which is faster: the texts are then those of the rounded "
        "model. Default: with the weights as they are trained on.",
    )  # fmt: skip
    tv_weight: float = _run(
        0.0, "Weight of the rejection rate in the loss; the rest is the KL divergence.", low=0, high=1
    )
    init: Init = _run(
        "target", "First weights: the target's as far as the shapes permit ('target'), or noise ('random')."
    )
    steps: int | None = _run(None, "Train for this many steps, which makes the run repeatable.", low=1)
    minutes: float | None = _run(
        None,
        "Train for this many minutes instead, reading the target's states included. Texts are written before.",
        above=0,
    )
    batch_size: int = _run(8, "Windows per step.", low=1)
    micro_batch: int | None = _run(None, "Windows held in memory at once. Default: as many as fit with their logits.")
    sequence_length: int = _data(512, "Length of a window in tokens.", low=8)
    matrix_rate: float = _run(0.02, "Peak learning rate of the matrices (Muon).", above=0)
    other_rate: float = _run(3e-3, "Peak learning rate of embeddings and norms (AdamW).", above=0)
    validation: float = _data(0.02, "Share of the documents held out for validation.", above=0, high=0.5)
    validation_windows: int = _data(64, "Number of held-out windows to measure on.", low=1)
    evaluate_every: int = _run(500, "Steps between measurements.", low=1)
    patience: int | None = _run(
        None, "Stop after this many evaluations without an increase in the accepted length, and keep the best weights.",
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
            problem = "data is empty" + (", and generations continue it" if self.generations else "")
            hint = "name text files, directories or JSONL files; for a chat model, self_prompts=2000 needs none"
            raise InvalidOption(problem, hint=hint)
        object.__setattr__(self, "data", tuple(str(path) for path in self.data))
        object.__setattr__(self, "target", str(self.target))
        object.__setattr__(self, "output", str(self.output))
        if (self.steps is None) == (self.minutes is None):
            problem = f"steps={self.steps} and minutes={self.minutes}: exactly one must be given"
            raise InvalidOption(problem, hint="steps=... for a repeatable run, minutes=... for a known end")
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
        None, "Read the states of the target with weights rounded as it is to run: a head learns best "
        "from the states that it will be given.",
    )  # fmt: skip


@strict
@dataclass(frozen=True, slots=True)
class RowTraining(HeadTraining):
    """What the runs share that can leave positions out of the loss."""

    row_share: float = _run(
        1.0, "Share of the positions on which the loss is computed; a smaller one makes steps cheaper.", above=0, high=1
    )


@strict
@dataclass(frozen=True, slots=True)
class DepthTraining(RowTraining):
    """What the runs share that learn several guesses in a row, and can continue from a drafter of their kind.

    begin_with: replaces `init`.
    """

    depth_keep: float = _run(
        0.7, "Share of the rows of each guess in a row that the next one is trained on.", above=0, high=1
    )
    depth_floor: float = _run(0.2, "Share of the rows that every guess is trained on at least.", low=0, high=1)
    begin_with: str | Path | None = _run(
        None, "A drafter of the same kind to continue from, for example to adapt it.", metavar="MODEL", kind=str
    )

    def __post_init__(self) -> None:
        Training.__post_init__(self)
        if self.begin_with is not None:
            object.__setattr__(self, "begin_with", str(self.begin_with))


DepthWeights = Literal["decay", "confidence"]


@strict
@dataclass(frozen=True, slots=True)
class UnrolledTraining(DepthTraining):
    """What the runs share whose head guesses from the target's states, then from its own.

    ttt_steps: the first pass is included.
    """

    tv_weight: float = 0.5
    batch_size: int = 4
    row_share: float = 0.6
    ttt_steps: int = _head(
        4, "Passes of the training-time test: how many tokens in a row the head learns to draft.", low=1, high=16
    )
    depth_weights: DepthWeights = _run(
        "decay", "Weight of each pass: falling by --step-decay ('decay'), or by how many guesses the head itself "
        "expects to be accepted there and after ('confidence').",
    )  # fmt: skip
    step_decay: float = _head(0.8, "Weight of each pass relative to the one before.", above=0, high=1)
    tv_warmup: int = _run(0, "Steps over which the weight of the rejection rate rises to that of --tv-weight.", low=0)
    tv_ramp: float = _run(
        0.0, "Let that weight also grow with a guess's own chance a of acceptance, as 1 - exp(-ramp * a); 0 does not.",
        low=0,
    )  # fmt: skip

    def __post_init__(self) -> None:
        DepthTraining.__post_init__(self)
        if self.depths + 2 > self.sequence_length:
            problem = f"sequence_length={self.sequence_length} is too short for {self._deep}={self.depths}"
            raise InvalidOption(problem, hint="each further step needs one more token of a window")

    @property
    def depths(self) -> int:
        """Guesses in a row that the head learns to make."""
        return self.ttt_steps

    @property
    def _deep(self) -> str:
        """The option that says how many."""
        return "ttt_steps"
