"""What a training run reports while it goes on, what it returns, and both as a terminal shows them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headstart.train.acceptance import Acceptance
from headstart.train.schedule import Phase

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


def sentence(acceptance: Acceptance) -> str:
    """One line for people."""
    rates = ", ".join(f"{rate:.1%} at T={temperature}" for temperature, rate in acceptance.rate.items())
    longest = "/".join(f"{length:.2f}" for length in acceptance.length.values())
    return (
        f"held out: {rates} of draft tokens accepted; {longest} of {acceptance.guesses} in a row; "
        f"KL {acceptance.kl:.3f} nats"
    )


class TrainingProgress:
    """Observer for a training run: a live bar on a terminal. Elsewhere a line when what it does changes, then one every
    `every` steps and every `seconds`."""

    def __init__(self, console: Console | None = None, *, every: int = 100, seconds: float = 60.0) -> None:
        self.console = console or Console()
        self.every, self.seconds = every, seconds
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}"))
        self._bar = Progress(
            *columns,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task("loading", total=1.0, loss="")
        self._accepted = ""  # the last measurement, shown until the next
        self._stage, self._printed = "", time.monotonic()

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, report: Report) -> None:
        loss = f"loss {report.loss:.4f}" if report.loss == report.loss else report.note
        if report.acceptance is not None:
            longest = next(iter(report.acceptance.length.values()), 0.0)
            self._accepted = f", {longest:.2f} of {report.acceptance.guesses} accepted"
        loss += self._accepted
        self._bar.update(self._task, description=report.stage, completed=report.progress, loss=loss)
        if report.acceptance is not None:
            self._print(f"step {report.step}: {sentence(report.acceptance)}")
        elif not self.console.is_terminal and self._is_due(report):
            self._print(_line(report, loss))

    def _is_due(self, report: Report) -> bool:
        """Whether it is time for a line: something else began or is through, or the last line is long ago."""
        changed = report.stage != self._stage
        self._stage = report.stage
        through = report.progress >= 1 and report.stage in ("generating", "reading")
        counted = report.stage == "training" and report.step % self.every == 0
        return changed or through or counted or time.monotonic() - self._printed >= self.seconds

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        self.console.print(line, highlight=False, soft_wrap=True)


def _line(report: Report, loss: str) -> str:
    if report.stage == "loading":
        return "loading"
    if report.stage != "training":
        return f"{report.stage} {report.progress:.1%} {loss}".rstrip()
    speed = report.tokens / max(report.seconds, 1e-9)
    return f"step {report.step} {report.progress:.1%} {loss} {speed:.0f} tokens/s"
