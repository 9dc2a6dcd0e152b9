"""What a drafter's completions show: speed, tokens per forward, acceptance by depth, its share of the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

import headstart as hs

SHOWN = 5
"""Depths whose acceptance the table shows."""

Rows = Sequence[Sequence["Sample"]]
"""[round][prompt]"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion. tested, held: by depth, how often a guess's fate was known, and how often it was accepted."""

    text: tuple[int, ...]
    seconds: float
    drafting: float
    forwards: int
    drafted: int
    tested: tuple[int, ...]
    held: tuple[int, ...]

    @classmethod
    def of(cls, out: hs.Output) -> Sample:
        stats = out.stats
        if out.error is not None or stats.speculation.error is not None:
            raise RuntimeError("a drafter did not run as asked") from (out.error or stats.speculation.error)
        return cls(
            out.tokens,
            stats.total_seconds,
            stats.seconds.draft,
            stats.target_forwards,
            stats.drafted,
            stats.drafted_per_position,
            stats.accepted_per_position,
        )


def speeds(rows: Rows) -> list[float]:
    """Tokens per second of each round."""
    return [sum(len(s.text) for s in row) / sum(s.seconds for s in row) for row in rows]


def over(rows: Rows, plain: Rows) -> list[float]:
    """Speed over plain decoding's, round by round."""
    return [x / y for x, y in zip(speeds(rows), speeds(plain), strict=True)]


def per_forward(samples: Sequence[Sample]) -> float:
    """Tokens emitted per target forward."""
    return sum(len(s.text) for s in samples) / sum(s.forwards for s in samples)


def by_depth(samples: Sequence[Sample]) -> list[float]:
    """Conditional acceptance: of the guesses whose forerunners were right."""
    deepest = max((len(s.tested) for s in samples), default=0)
    tested = [sum(s.tested[d] for s in samples if d < len(s.tested)) for d in range(deepest)]
    held = [sum(s.held[d] for s in samples if d < len(s.held)) for d in range(deepest)]
    return [h / t if t else 0.0 for h, t in zip(held, tested, strict=True)]


def counts(samples: Sequence[Sample], texts: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """What completions show beside their speed. texts: plain decoding's, one for each."""
    return {
        "tokens_per_forward": per_forward(samples),
        "acceptance_by_depth": by_depth(samples),
        "drafted_per_forward": sum(s.drafted for s in samples) / sum(s.forwards for s in samples),
        "drafting_share": sum(s.drafting for s in samples) / sum(s.seconds for s in samples),
        "same_texts": sum(s.text == text for s, text in zip(samples, texts, strict=True)),
        "texts": len(samples),
    }


def facts(rows: Rows, plain: Rows, categories: Sequence[str]) -> dict[str, Any]:
    """All figures of one drafter; categories: of each prompt."""
    flat = [sample for row in rows for sample in row]
    texts = [sample.text for row in plain for sample in row]
    found: dict[str, Any] = {
        "tokens_per_second": speeds(rows),
        "over_plain": over(rows, plain),
        **counts(flat, texts),
        "categories": {},
    }
    for category in dict.fromkeys(categories):
        chosen = [place for place, each in enumerate(categories) if each == category]
        mine, theirs = ([[row[place] for place in chosen] for row in all_] for all_ in (rows, plain))
        found["categories"][category] = {
            "over_plain": over(mine, theirs),
            "tokens_per_forward": per_forward([sample for row in mine for sample in row]),
        }
    return found


def table(title: str, found: Mapping[str, Mapping[str, Any]], bytes_: Mapping[str, int]) -> Table:
    """One row for each drafter."""
    made = Table(title=title)
    categories = list(next(iter(found.values()))["categories"])
    made.add_column("")
    headings = ["tokens/s", "/ plain: median (range)", *categories, "tokens/forward", "nodes/forward"]
    for heading in (*headings, "acceptance by depth", "drafting", "MB", "same"):
        made.add_column(heading, justify="right")
    for name, of in found.items():
        ratios = of["over_plain"]
        made.add_row(
            name,
            f"{median(of['tokens_per_second']):.1f}",
            f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            *(f"{median(of['categories'][category]['over_plain']):.2f}" for category in categories),
            f"{of['tokens_per_forward']:.2f}",
            f"{of['drafted_per_forward']:.1f}",
            " ".join(f"{a:.2f}" for a in of["acceptance_by_depth"][:SHOWN]),
            f"{of['drafting_share']:.0%}",
            f"{bytes_[name] / 1e6:.1f}" if name in bytes_ else "",
            f"{of['same_texts']} of {of['texts']}",
        )
    return made
