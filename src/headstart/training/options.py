"""What a distillation run is told: `DraftTraining`, which checks itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from headstart.errors import InvalidOption
from headstart.options import check_number, strict

INITS = ("target", "random")
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
class DraftTraining:
    """One run that distils a draft from a target.

    target: directory or hub id of a causal LM. output: directory of the new draft; run the same again to resume.
    data: text files, directories of them, or JSONL with `text`, `prompt` or `turns` (Spec-Bench).
    generations: texts of `generation_tokens` tokens that the target writes itself, from prompts out of the data, at
    each of `generation_temperatures` in turn; they show the draft what it will meet.
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
    shape: Shape = Shape()
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
        if self.init not in INITS:
            raise InvalidOption(f"init={self.init!r} does not exist", hint=f"it is one of {', '.join(INITS)}")
        if self.dtype not in DTYPES:
            raise InvalidOption(f"dtype={self.dtype!r} is not known", hint=f"it is one of {', '.join(DTYPES)}")

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
