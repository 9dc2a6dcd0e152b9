"""What came of benchmarks/peers.py, as tables, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from configurations import OURS, Configuration, role_label
from peer_rounds import Role, Rounds, Selected, Trial, Work, speed
from rich.console import Console
from rich.table import Table
from workers import Sample

REFERENCE: Role = ("transformers", "bf16", "plain")


@dataclass(frozen=True)
class Entry:
    """One engine in one mode at one batch size: samples[round][call], and the setting it ran with."""

    role: Role
    batch: int
    configuration: Configuration
    samples: list[list[Sample]]

    @property
    def speeds(self) -> list[float]:
        return [speed(row) for row in self.samples]

    @property
    def median(self) -> float:
        return median(self.speeds)

    def same(self, other: Entry) -> int:
        """On how many prompts the tokens were the other's, in every round."""
        mine, theirs = (list(zip(*[_texts(row) for row in e.samples], strict=True)) for e in (self, other))
        return sum(len({*a, *b}) == 1 for a, b in zip(mine, theirs, strict=True))

    @property
    def prompts(self) -> int:
        return len(_texts(self.samples[0]))


def _texts(row: Sequence[Sample]) -> list[tuple[int, ...]]:
    return [tokens for sample in row for tokens in sample.tokens]


@dataclass(frozen=True)
class Headline:
    """The best of ours over the best of theirs, each by its median."""

    name: str
    batch: int
    ours: Callable[[Entry], bool]
    theirs: Callable[[Entry], bool]


def _of(precision: str, mode: str | None = None) -> Callable[[Entry], bool]:
    return lambda e: e.role[1] == precision and mode in (None, e.role[2])


def headlines(batches: Sequence[int]) -> list[Headline]:
    found = []
    for batch in batches:
        bf16, int8, plain = _of("bf16"), _of("int8"), _of("bf16", "plain")
        found += [
            Headline("best bf16 / best bf16 of a peer", batch, bf16, bf16),
            Headline("best int8 / best int8 of a peer", batch, int8, int8),
            Headline("best int8 / OpenVINO int8, its best", batch, int8, lambda e: e.role[:2] == ("openvino", "int8")),
            Headline("plain bf16 / best plain bf16 of a peer", batch, plain, plain),
            Headline("best bf16 / vLLM, its best", batch, bf16, lambda e: e.role[0] == "vllm"),
            Headline("best of all / best of all peers", batch, lambda _: True, lambda _: True),
        ]
    return found


def ratio(headline: Headline, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Round by round; None where one side has no entry."""
    here = [e for e in entries if e.batch == headline.batch]
    ours = [e for e in here if e.role[0] == OURS and headline.ours(e)]
    theirs = [e for e in here if e.role[0] != OURS and headline.theirs(e)]
    if not ours or not theirs:
        return None
    a, b = (max(side, key=lambda e: e.median) for side in (ours, theirs))
    values = [x / y for x, y in zip(a.speeds, b.speeds, strict=True)]
    names = {"ours": str(a.configuration), "theirs": str(b.configuration)}
    return {"name": headline.name, "batch": headline.batch, **names, "ratios": values}


def entries_of(selected: Selected, rounds: Rounds, number: int, works: Sequence[Work]) -> list[Entry]:
    complete = rounds.complete_rows(number, works)
    order = {seat: place for place, seat in enumerate(selected)}
    return [
        Entry(selected[seat].configuration.role, seat[1], selected[seat].configuration, complete[seat])
        for seat in sorted(complete, key=order.__getitem__)
    ]


def spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def absences(trials: Sequence[Trial], failures: dict[str, str]) -> dict[str, str]:
    """Why something is missing, by configuration; one line for an engine whose settings all failed alike."""
    found: dict[str, str] = {}
    for role in dict.fromkeys(t.configuration.role for t in trials):
        own = [t for t in trials if t.configuration.role == role]
        reasons = {t.absent for t in own}
        if None not in reasons and len(reasons) == 1:
            found[role_label(role)] = str(own[0].absent)
        else:
            found |= {str(t.configuration): t.absent for t in own if t.absent is not None}
    return found | {f"{name}, in the rounds": reason for name, reason in failures.items()}


def rows_of(entries: Sequence[Entry], batch: int) -> list[tuple[str, ...]]:
    """name, setting, tokens/s, headstart's best of that precision over this, same tokens; of one batch size."""
    here = [e for e in entries if e.batch == batch]
    reference = next((e for e in here if e.role == REFERENCE), None)
    rows: list[tuple[str, ...]] = []
    for entry in here:
        ours = [e for e in here if e.role[:2] == (OURS, entry.role[1])]
        best = max(ours, key=lambda e: e.median, default=None)
        over = "" if best is None else f"{median(x / y for x, y in zip(best.speeds, entry.speeds, strict=True)):.2f}"
        same = "" if reference is None else f"{entry.same(reference)} of {entry.prompts}"
        choice = entry.configuration.choice
        rows.append((role_label(entry.role), choice, spread(entry.speeds, ".1f"), over, same))
    return rows


HEADINGS = ("", "setting", "tokens/s, median (range)", "headstart's best / this", "same tokens")


def report(console: Console, entries: Sequence[Entry], batches: Sequence[int], title: str) -> None:
    for batch in batches:
        table = Table(
            title=f"{title}, batch {batch}",
            caption="headstart's best of the same precision; "
            '"same tokens": prompts on which they are those of transformers, plain, in every round',
        )
        for index, heading in enumerate(HEADINGS):
            table.add_column(heading, justify="left" if index < 2 else "right")
        for row in rows_of(entries, batch):
            table.add_row(*row)
        console.print(table)
    faster = Table("headstart over the peers, round by round", "batch", "median (range)", "of", "over")
    for found in found_ratios(entries, batches):
        faster.add_row(
            found["name"], str(found["batch"]), spread(found["ratios"], ".2f"), found["ours"], found["theirs"]
        )
    console.print(faster)


def found_ratios(entries: Sequence[Entry], batches: Sequence[int]) -> list[dict[str, Any]]:
    return [found for each in headlines(batches) if (found := ratio(each, entries)) is not None]


def markdown(entries: Sequence[Entry], batches: Sequence[int]) -> str:
    """The table and the ratios, for a README: tokens/s, a column for each batch size."""
    lines = ["| |" + "".join(f" batch {b} |" for b in batches), "|---|" + "---:|" * len(batches)]
    speeds = {(e.role, e.batch): e.median for e in sorted(entries, key=lambda e: e.median)}  # a role's best stays
    for role in dict.fromkeys(e.role for e in entries):
        cells = [f"{speeds[role, b]:.1f}" if (role, b) in speeds else "" for b in batches]
        lines.append(f"| {role_label(role)} |" + "".join(f" {cell} |" for cell in cells))
    for found in found_ratios(entries, batches):
        cells = [f"**{median(found['ratios']):.2f}**" if found["batch"] == b else "" for b in batches]
        lines.append(f"| **{found['name']}** |" + "".join(f" {cell} |" for cell in cells))
    return "\n".join(lines)


def as_json(entries: Sequence[Entry], trials: Sequence[Trial], selected: Selected) -> dict[str, Any]:
    winners = {(t.configuration, batch) for (_, batch), t in selected.items()}
    references = {e.batch: e for e in entries if e.role == REFERENCE}
    return {
        "selection": [
            {
                "configuration": str(t.configuration),
                "tokens_per_second": {str(batch): value for batch, value in t.speeds.items()},
                "chosen_for_batch": [b for b in t.speeds if (t.configuration, b) in winners],
                "memory_bytes": t.memory,
                "absent": t.absent,
            }
            for t in trials
        ],
        "rounds": [
            {
                "configuration": str(e.configuration),
                "batch": e.batch,
                "tokens_per_second": e.speeds,
                "same_tokens_as_transformers": e.same(references[e.batch]) if e.batch in references else None,
                "prompts": e.prompts,
                "seconds": [[s.seconds for s in row] for row in e.samples],
                "forwards": [[s.forwards for s in row] for row in e.samples],
            }
            for e in entries
        ],
        "engines": {t.configuration.engine: t.facts for t in trials if t.facts},
    }
