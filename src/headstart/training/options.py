"""What a run is told: `Training`, what every kind of run shares, and a class for each kind. All check themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from headstart.errors import InvalidOption
from headstart.options import check_number, strict

INITS = ("target", "random")
FORMATS = ("hf", "speculators", "both")
DTYPES = ("auto", "float32", "bfloat16")


@strict
@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a Llama-style draft. None takes a default from the target's size (`headstart.training.student`)."""

    hidden: int | None = None
    layers: int | None = None
    intermediate: int | None = None
    heads: int | None = None
    kv_heads: int | None = None

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "intermediate", "heads", "kv_heads"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, low=1, integer=True)
        if self.hidden is not None and self.heads is not None and self.hidden % self.heads:
            raise InvalidOption(
                f"hidden={self.hidden} cannot be divided among heads={self.heads}", hint="make it a multiple"
            )
        if self.heads is not None and self.kv_heads is not None and self.heads % self.kv_heads:
            raise InvalidOption(
                f"heads={self.heads} cannot be divided among kv_heads={self.kv_heads}", hint="make it a multiple"
            )


@strict
@dataclass(frozen=True, slots=True)
class Training:
    """What every kind of run shares.

    target: directory or hub id of a causal LM. output: directory of the new drafter; run the same again to resume.
    data: text files, directories of them, or JSONL with `text`, `prompt` or `turns` (Spec-Bench).
    generations: texts of `generation_tokens` tokens that the target writes itself, from prompts out of the data, at
    each of `generation_temperatures` in turn; they show the drafter what it will meet.
    tv_weight: the loss is (1 - tv_weight) * KL(p||q) + tv_weight * TV(p, q). TV = 1 - sum min(p, q) is the rejection
    rate itself (Leviathan et al. 2023, section 3.4), but a poor guide at the start.
    init: "target" begins with the target's weights as far as shapes permit, "random" with noise.
    steps or minutes: the budget; exactly one. The learning rate falls to zero at its end.
    batch_size: windows of `sequence_length` tokens per step; micro_batch of them are held in memory at once.
    matrix_rate, other_rate: peak learning rates of Muon (matrices) and AdamW (embeddings, norms).
    validation: share of the documents held out. evaluate_every: steps. save_every: seconds.
    """

    target: str | Path
    output: str | Path
    data: Sequence[str | Path]
    generations: int = 0
    generation_tokens: int = 256
    generation_temperatures: Sequence[float] = (0.0, 1.0)
    tv_weight: float = 0.0
    init: Literal["target", "random"] = "target"
    steps: int | None = None
    minutes: float | None = None
    batch_size: int = 8
    micro_batch: int | None = None
    sequence_length: int = 512
    matrix_rate: float = 0.02
    other_rate: float = 3e-3
    validation: float = 0.02
    validation_windows: int = 64
    evaluate_every: int = 500
    save_every: float = 120.0
    seed: int = 0
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"

    def __post_init__(self) -> None:
        self._check_data()
        self._check_budget()
        counts = ("generation_tokens", "batch_size", "validation_windows", "evaluate_every")
        for name in counts:
            check_number(name, getattr(self, name), low=1, integer=True)
        check_number("generations", self.generations, low=0, integer=True)
        check_number("sequence_length", self.sequence_length, low=8, integer=True)
        check_number("seed", self.seed, low=0, high=2**31 - 1, integer=True)
        check_number("tv_weight", self.tv_weight, low=0, high=1)
        check_number("validation", self.validation, above=0, high=0.5)
        for name in ("matrix_rate", "other_rate", "save_every"):
            check_number(name, getattr(self, name), above=0)
        if self.micro_batch is not None:
            check_number("micro_batch", self.micro_batch, low=1, high=self.batch_size, integer=True)
        _check_choice("init", self.init, INITS)
        _check_choice("dtype", self.dtype, DTYPES)

    def _check_data(self) -> None:
        if isinstance(self.data, (str, Path)):
            object.__setattr__(self, "data", (self.data,))
        if not self.data:
            raise InvalidOption("data is empty", hint="name text files, directories or JSONL files")
        object.__setattr__(self, "data", tuple(str(path) for path in self.data))
        object.__setattr__(self, "target", str(self.target))
        object.__setattr__(self, "output", str(self.output))
        object.__setattr__(self, "generation_temperatures", tuple(self.generation_temperatures))
        if not self.generation_temperatures:
            raise InvalidOption("generation_temperatures is empty", hint="give at least one, 0 is greedy")
        for temperature in self.generation_temperatures:
            check_number("generation_temperatures", temperature, low=0)

    def _check_budget(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise InvalidOption(
                f"steps={self.steps} and minutes={self.minutes}: exactly one must be given",
                hint="steps=... for a repeatable run, minutes=... for a known end",
            )
        if self.steps is not None:
            check_number("steps", self.steps, low=1, integer=True)
        if self.minutes is not None:
            check_number("minutes", self.minutes, above=0)

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
class DraftTraining(Training):
    """One run that distils a draft LM of this shape from a target."""

    shape: Shape = Shape()


@strict
@dataclass(frozen=True, slots=True)
class Eagle3Training(Training):
    """One run that trains an EAGLE-3 head for a target.

    layer_ids: the three hidden states the head reads, as inputs of these layers; None takes 2, L // 2 and L - 3, or
    what is nearest in a shallow target.
    ttt_steps: how often the head is fed its own output in training, the first pass included; each further pass weighs
    `step_decay` times the one before.
    draft_vocab_size: the head proposes only so many tokens, those most frequent in the training windows; None takes
    32,000, or all if there are fewer.
    row_share: share of the positions whose loss is computed in each pass; a smaller one makes steps cheaper.
    norm_before_residual: the residual carries the normed hidden state (some checkpoints of the field do).
    cache_hidden: gigabytes of disk for the target's hidden states; beyond it they are computed anew. 0 keeps none.
    begin_with: directory of an EAGLE-3 head to go on from, instead of `init`; its sizes, and where they are not given
    its layers and its vocabulary, are kept.
    format: "hf", "speculators" (which vLLM loads directly, below `speculators/` when "both").
    """

    layer_ids: Sequence[int] | None = None
    ttt_steps: int = 4
    step_decay: float = 0.8
    tv_weight: float = 0.5
    draft_vocab_size: int | None = None
    row_share: float = 1.0
    norm_before_residual: bool = False
    cache_hidden: float = 0.0
    begin_with: str | Path | None = None
    format: Literal["hf", "speculators", "both"] = "hf"

    def __post_init__(self) -> None:
        Training.__post_init__(self)
        check_number("ttt_steps", self.ttt_steps, low=1, high=16, integer=True)
        check_number("step_decay", self.step_decay, above=0, high=1)
        check_number("row_share", self.row_share, above=0, high=1)
        check_number("cache_hidden", self.cache_hidden, low=0)
        if self.draft_vocab_size is not None:
            check_number("draft_vocab_size", self.draft_vocab_size, low=1, integer=True)
        _check_choice("format", self.format, FORMATS)
        if self.begin_with is not None:
            object.__setattr__(self, "begin_with", str(self.begin_with))
        if self.ttt_steps + 2 > self.sequence_length:
            raise InvalidOption(
                f"sequence_length={self.sequence_length} is too short for ttt_steps={self.ttt_steps}",
                hint="each further step needs one more token of a window",
            )
        if self.layer_ids is not None:
            object.__setattr__(self, "layer_ids", tuple(self.layer_ids))
            for layer in self.layer_ids:
                check_number("layer_ids", layer, low=0, integer=True)
            if len(set(self.layer_ids)) != 3:
                raise InvalidOption(f"layer_ids={self.layer_ids} are not three different layers", hint="give three")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidOption(f"{name}={value!r} is not known", hint=f"it is one of {', '.join(choices)}")
