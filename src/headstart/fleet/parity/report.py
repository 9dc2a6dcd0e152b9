"""What parity found: both sides' counters by prompt and position, and the verdict, as JSON and for the terminal."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headstart.base.as_json import as_json
from headstart.base.words import counted
from headstart.fleet.parity.counts import Counts, total
from headstart.fleet.parity.plan import Plan
from headstart.fleet.parity.reference import Predicted
from headstart.theory.statistics import Interval


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt: what headstart predicts, and what the server counted."""

    prompt_tokens: int
    predicted: Predicted
    theirs: Counts

    @property
    def ours(self) -> Counts:
        return self.predicted.counts

    @property
    def equal(self) -> bool:
        """Whether every counter is the same."""
        return self.ours == self.theirs


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of both sides, and the interval of theirs minus ours over all prompts."""

    name: str
    ours: float
    theirs: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class Position:
    """Acceptance at one position of the drafts, counted from 1, where everything before it was accepted."""

    position: int
    ours: tuple[int, int]
    """Accepted, and tested."""
    theirs: tuple[int, int]


@dataclass(frozen=True)
class ParityReport:
    """The verdict, and everything that it rests on.

    reasons: why it did not pass, in sentences; empty if it did.
    differences: by position, and of tokens per forward. They decide where the counters need not be equal; the chance
        that at least one interval misses 0 by bad luck is 1 - level.
    """

    plan: Plan
    server: str
    target: str
    level: float
    compared: tuple[Compared, ...]
    differences: tuple[Difference, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        return not self.reasons

    @cached_property
    def ours(self) -> Counts:
        return total(each.ours for each in self.compared)

    @cached_property
    def theirs(self) -> Counts:
        return total(each.theirs for each in self.compared)

    @property
    def equal(self) -> int:
        """Prompts whose counters are all the same."""
        return sum(each.equal for each in self.compared)

    @property
    def same_text(self) -> int:
        """Prompts whose text is headstart's own greedy text."""
        return sum(each.predicted.gap == 0 for each in self.compared)

    @property
    def positions(self) -> tuple[Position, ...]:
        sides = self.ours, self.theirs
        return tuple(
            Position(i + 1, *((side.accepted_per_position[i], side.tested(i)) for side in sides))
            for i in range(self.plan.depth)
        )

    def as_json(self) -> dict[str, Any]:
        """Everything as values of JSON; `forwards` beside the counters that it follows from."""
        record = as_json({name: getattr(self, name) for name in self.__dataclass_fields__})
        record["plan"] |= {name: str(value) for name, value in record["plan"].items() if isinstance(value, Path)}
        sides = {"headstart": self.ours, "server": self.theirs}
        totals = {name: {**as_json(side), "forwards": side.forwards} for name, side in sides.items()}
        summary = {"passed": self.passed, "prompts": len(self.compared), "equal": self.equal}
        return {
            **summary,
            "same_text": self.same_text,
            "totals": totals,
            "positions": as_json(self.positions),
            **record,
        }


_DRAFTERS = {"eagle3": "EAGLE-3 head", "medusa": "Medusa heads", "draft_model": "draft model", "ngram": "n-grams"}


def render(report: ParityReport) -> RenderableType:
    """The figures of both sides, then the verdict with its reasons."""
    plan, count = report.plan, len(report.compared)
    tokens = report.ours.generated
    title = (
        f"{_DRAFTERS[plan.kind]}, K={plan.depth}, {plan.dtype}: {counted(count, 'prompt')}, "
        f"{counted(tokens, 'greedy token', ',')}, one request at a time"
    )
    table = Table()
    table.add_column("")
    for name in ("headstart", "vLLM"):
        table.add_column(name, justify="right")
    table.add_column("difference")
    for name, attribute in (("forwards", "forwards"), ("drafts verified", "drafts"), ("drafted tokens", "drafted")):
        ours, theirs = getattr(report.ours, attribute), getattr(report.theirs, attribute)
        table.add_row(name, f"{ours:,}", f"{theirs:,}", "" if ours == theirs else f"{theirs - ours:+,}")
    for position, difference in zip(report.positions, report.differences, strict=False):
        sides = [f"{accepted} of {tested}" for accepted, tested in (position.ours, position.theirs)]
        table.add_row(f"accepted at position {position.position}", *sides, _interval(report, difference.interval))
    last = report.differences[-1]
    table.add_row(last.name, f"{last.ours:.3f}", f"{last.theirs:.3f}", _interval(report, last.interval))
    return Group(Text(title), table, *_verdict(report))


def _interval(report: ParityReport, interval: Interval) -> str:
    if report.equal == len(report.compared):
        return ""
    return f"{interval.low:+.3f} to {interval.high:+.3f}" if interval.known else "not known"


def _verdict(report: ParityReport) -> list[Text]:
    count = len(report.compared)
    same = f"All counters are equal for {report.equal} of {counted(count, 'prompt')}"
    lines = []
    if report.passed and report.equal == count:
        lines.append(Text(f"PARITY: {same}, forward by forward and position by position.", style="green"))
    elif report.passed:
        lines.append(
            Text(
                f"PARITY within the noise: {same}; every difference may be 0 (all intervals together at the level "
                f"{report.level:g}).",
                style="green",
            )
        )
    else:
        lines.append(Text(f"NO PARITY. {same}.", style="bold red"))
    return [*lines, *(Text(each) for each in (*report.reasons, *report.notes))]
