"""How far a run has come, the learning rate there, and what its time went into.

The rate has a short warm-up, a plateau, and a straight line down to zero. The phases of a run (writing texts, reading
states, training, measuring) are counted over all processes that it was stopped into.

`Report` is what a run tells while it goes on, `TrainingResult` what it returns; a terminal shows both.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headstart.base.files import replacing
from headstart.base.words import counted
from headstart.train.acceptance import Acceptance


@dataclass(frozen=True)
class Budget:
    """A run ends after so many optimiser steps or so many minutes of training, whichever is given."""

    steps: int | None = None
    minutes: float | None = None

    def progress(self, steps: int, seconds: float) -> float:
        """Share of the budget that is spent, from 0 to 1."""
        spent = steps / self.steps if self.steps is not None else seconds / (60 * (self.minutes or 1e-9))
        return min(1.0, spent)


def rate(progress: float, steps: int, *, warmup: int = 50, plateau: float = 0.4) -> float:
    """Factor on the learning rate. The decay is tied to the budget, so that it reaches zero exactly at the end."""
    return min(1.0, (steps + 1) / warmup, (1 - progress) / (1 - plateau))


class Clock:
    """Seconds of training, counted on from those of the runs before a resume."""

    def __init__(self, before: float = 0.0) -> None:
        self._origin = time.monotonic() - before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._origin


Work = Literal["writing", "reading", "training", "measuring"]


@dataclass(slots=True)
class Phase:
    """One kind of work, over all runs that one run was stopped into."""

    seconds: float = 0.0
    tokens: int = 0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass
class Phases:
    """The phases of a run; time is counted for the innermost that is open.

    file: where they are kept between runs.
    """

    file: Path
    found: dict[str, Phase] = field(default_factory=dict)

    @classmethod
    def of(cls, file: Path) -> Phases:
        """Those of a run that was stopped, or none yet."""
        stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return cls(file, {name: Phase(**values) for name, values in stored.items()})

    def __post_init__(self) -> None:
        self._open: list[Work] = []
        self._since = time.monotonic()

    def __getitem__(self, work: Work) -> Phase:
        """What has been counted of it."""
        self._charge()
        return self.found.setdefault(work, Phase())

    @contextmanager
    def doing(self, work: Work) -> Iterator[Phase]:
        """Count time for this work until the block ends, however it ends; the block counts the tokens."""
        self._charge()
        self._open.append(work)
        try:
            yield self.found.setdefault(work, Phase())
        finally:
            self._charge()
            self._open.pop()
            self.save()

    def save(self) -> None:
        """Write what is counted, where a run that is resumed finds it."""
        self._charge()
        if self.file.parent.is_dir():  # claimed by this run
            with replacing(self.file) as partial:
                partial.write_text(
                    json.dumps({name: asdict(phase) for name, phase in self.found.items()}) + "\n", encoding="utf-8"
                )

    def record(self) -> dict[str, dict[str, Any]]:
        """For the provenance: seconds, tokens and tokens per second of each."""
        return {
            name: {
                "seconds": round(phase.seconds, 1),
                "tokens": phase.tokens,
                "tokens_per_second": round(phase.rate, 1),
            }
            for name, phase in self.found.items()
        }

    def _charge(self) -> None:
        now = time.monotonic()
        if self._open:
            self.found.setdefault(self._open[-1], Phase()).seconds += now - self._since
        self._since = now


def in_words(phases: Mapping[Any, Phase]) -> str:
    """One line for people."""
    return ", ".join(
        f"{name} {counted(phase.tokens, 'token', ',')} in {phase.seconds:.0f} s ({phase.rate:.0f}/s)"
        for name, phase in phases.items()
        if phase.tokens
    )


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
    used: tuple[str, str] = ("", "")
    """What `headstart.load` takes to draft with it: target and drafter."""


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
