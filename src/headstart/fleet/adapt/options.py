"""How traffic is divided, how the gate judges, and how a deployed drafter is trained further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, option, strict

_PANEL = "Gate"


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What is held out, and how the two drafters are compared on it."""

    held_out: float = option(
        0.2,
        "Share of the conversations that both drafters are compared on, and that training never sees.",
        panel=_PANEL,
        above=0,
        high=0.9,
    )
    gate_prompts: int = option(200, "The most held-out prompts that are continued.", metavar="N", panel=_PANEL, low=20)
    gate_tokens: int = option(128, "The most tokens of each continuation.", metavar="N", panel=_PANEL, low=1)
    k: int = option(
        4,
        "Tokens drafted per step (K), the same for both drafters.",
        "--num-speculative-tokens",
        "-k",
        "--k",
        panel=_PANEL,
        low=1,
    )
    temperature: float | None = option(
        None, "Continue all prompts at this temperature. Default: each at its own.", "-T", panel=_PANEL, low=0
    )
    level: float = option(
        0.95, "Confidence of the intervals, below 1. A drafter without a gain passes with a probability of about "
        "(1 - confidence) / 2 at most.", "--confidence", panel=_PANEL, low=0.5, high=0.9999,
    )  # fmt: skip
    batch: int = option(8, "Prompts that are continued at once.", panel=_PANEL, low=1)
    seed: int = option(0, "Seed of sampling, of the split and of the training.", panel=_PANEL, low=0, high=2**31 - 1)

    def __post_init__(self) -> None:
        check_fields(self)


_TRAINING = "Training"


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How long and how fast the drafter learns. Its first weights are the deployed ones."""

    minutes: float | None = option(None, "Train for this long. Default: 10 minutes.", panel=_TRAINING, above=0)
    steps: int | None = option(None, "Train for this many steps instead, which is repeatable.", panel=_TRAINING, low=1)
    data: Sequence[str | Path] = option(
        (), "Also learn from this text, such as what the drafter was first trained on, so that it does not forget.",
        kind=list[Path], metavar="DATA", panel=_TRAINING,
    )  # fmt: skip
    matrix_rate: float = option(5e-3, "Peak learning rate of the matrices (Muon).", panel=_TRAINING, above=0)
    other_rate: float = option(1e-3, "Peak learning rate of embeddings and norms (AdamW).", panel=_TRAINING, above=0)
    batch_size: int = option(8, "Windows per step.", panel=_TRAINING, low=1)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "data", tuple(str(path) for path in self.data))
        if self.minutes is not None and self.steps is not None:
            raise InvalidOption("both minutes and steps are given", hint="give one of them")
