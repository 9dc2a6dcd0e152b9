"""A training run seen on a terminal: a bar, the loss, and the acceptance that the drafter would get."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headstart.train.acceptance import Acceptance
from headstart.train.reports import Report


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
