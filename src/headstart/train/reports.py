"""What a training run says while it goes on, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headstart.train.acceptance import Acceptance
from headstart.train.phases import Phase

Stage = Literal["loading", "generating", "reading", "training", "measuring", "done"]


@dataclass(frozen=True, slots=True)
class Report:
    """What an observer is given after every step, and when the stage changes."""

    stage: Stage
    progress: float
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss: float = math.nan
    acceptance: Acceptance | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A finished drafter: its directory, how much it was trained, and how it did on held-out text."""

    path: Path
    steps: int
    tokens: int
    seconds: float
    acceptance: Acceptance
    resumed_from: int = 0
    prompts: tuple[tuple[int, ...], ...] = ()
    """Beginnings of held-out windows, in token ids, to measure the speedup on."""
    phases: Mapping[str, Phase] = field(default_factory=dict)
    """What the time went into: "writing" texts, "reading" states, "training", "measuring"."""
    stopped: str = ""
    """Why it ended before its budget did, if it did."""


Observer = Callable[[Report], None]
