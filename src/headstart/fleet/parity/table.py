"""A parity report for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headstart.fleet.parity.report import ParityReport
from headstart.theory.statistics import Interval

_DRAFTERS = {"eagle3": "EAGLE-3 head", "medusa": "Medusa heads", "draft_model": "draft model", "ngram": "n-grams"}


def render(report: ParityReport) -> RenderableType:
    """The figures of both sides, then the verdict with its reasons."""
    plan, count = report.plan, len(report.compared)
    tokens = report.ours.generated
    title = (
        f"{_DRAFTERS[plan.kind]}, K={plan.depth}, {plan.dtype}: {count} prompts, {tokens:,} greedy tokens, "
        "one request at a time"
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
    same = f"All counters are equal for {report.equal} of {count} prompts"
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
