"""Figures of finished requests, added up and put into words; shared by `generate --stats` and `demo`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from rich.table import Table

from headstart.base.as_json import as_json
from headstart.commands.terminal import facts_table
from headstart.types import AheadStats, Output, Seconds, Stats


@dataclass(frozen=True)
class Total:
    """The stats of several requests as one. `wall`: seconds from the first submission to the last token."""

    stats: tuple[Stats, ...]
    wall: float

    @property
    def tokens(self) -> int:
        return sum(s.tokens for s in self.stats)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.wall if self.wall else 0.0

    @property
    def tokens_per_forward(self) -> float:
        forwards = sum(s.target_forwards for s in self.stats)
        return self.tokens / forwards if forwards else 0.0

    @property
    def drafted(self) -> int:
        return sum(s.drafted for s in self.stats)

    @property
    def accepted(self) -> int:
        return sum(s.accepted for s in self.stats)

    @property
    def acceptance(self) -> list[float]:
        """Conditional acceptance by draft position: how often, once everything before it was accepted."""
        judged = _columns(s.drafted_per_position for s in self.stats)
        kept = _columns(s.accepted_per_position for s in self.stats)
        return [k / j if j else 0.0 for j, k in zip_longest(judged, kept, fillvalue=0)]

    @property
    def ahead(self) -> AheadStats | None:
        """What drafting ahead gave; None where nothing was drafted ahead."""
        found = [s.ahead for s in self.stats if s.ahead is not None]
        return sum(found, AheadStats()) if found else None

    @property
    def shares(self) -> dict[str, float]:
        """Parts of the time, adding up to 1; "other" is the text, the events and the caller.

        Requests of one batch share their steps, so their seconds add up to more than the wall clock: then there
        is no "other", only the proportion of the parts.
        """
        seconds = sum((s.seconds for s in self.stats), Seconds())
        whole = max(self.wall, seconds.total) or 1.0
        parts = {name: value / whole for name, value in asdict(seconds).items()}
        return parts | {"other": 1 - sum(parts.values())}


def _columns(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def percentages(shares: Sequence[float]) -> str:
    """One sign for all of them: "81 74 70%"."""
    return " ".join(f"{100 * share:.0f}" for share in shares) + "%" if shares else "-"


def stats_table(total: Total, *, chosen: str) -> Table:
    """A small table of two columns for `--stats`; chosen: why this drafter."""
    waits = sorted(s.seconds_to_first_token for s in total.stats)
    first = f"{waits[0]:.3f} s" if len(waits) == 1 else f"{waits[0]:.3f} to {waits[-1]:.3f} s"
    states = dict.fromkeys(speculation_in_words(s) for s in total.stats)
    return facts_table(
        [
            ("tokens", f"{total.tokens} in {total.wall:.2f} s"),
            ("first token after", first),
            ("tokens/s", f"{total.tokens_per_second:.1f}"),
            ("tokens per target forward", f"{total.tokens_per_forward:.2f}"),
            ("draft tokens accepted", f"{total.accepted} of {total.drafted}" if total.drafted else "-"),
            ("acceptance by position", percentages(total.acceptance)),
            *([] if total.ahead is None else ahead_facts(total.ahead)),
            ("time", " · ".join(f"{name} {percent(share)}" for name, share in total.shares.items())),
            *(("speculation", state) for state in states),
            ("drafter chosen", chosen),
        ]
    )


def ahead_facts(ahead: AheadStats) -> list[tuple[str, str]]:
    """Two lines of a table: how many drafts were ready, and after how many accepted tokens."""
    if not ahead.rounds:
        return [("drafted ahead", f"nothing could be foreseen before the drafts, {ahead.drafts} in all")]
    ready = f"{ahead.hits} of {ahead.rounds} drafts ready: {percent(ahead.hit_rate)}"
    waited = [
        f"{1000 * seconds / count:.1f} ms {words}"
        for count, seconds, words in (
            (ahead.hits, ahead.seconds_on_hits, "for one that was"),
            (ahead.misses, ahead.seconds_on_misses, "for one that was not"),
        )
        if count
    ]
    pairs = zip(ahead.rounds_per_depth, ahead.hits_per_depth, strict=True)
    by_depth = [f"{depth}: {percent(hits / of)}" for depth, (of, hits) in enumerate(pairs) if of]
    return [
        ("drafted ahead", f"{ready}; waited {', '.join(waited)}"),
        ("ready after accepting", " · ".join(by_depth) or "-"),
    ]


def speculation_in_words(stats: Stats) -> str:
    """Whether it ran, with which drafter, and if not, why: a request never loses its drafter in silence."""
    state = stats.speculation
    why = state.not_guessing or state.reason
    reason = f": {why}" if why else ""
    return f"{'on' if state.on else 'off'}, drafter {state.drafter}{reason}"


_DERIVED = ("tokens_per_second", "tokens_per_forward")


def output_as_json(out: Output) -> dict[str, Any]:
    """One line of `--json`. Derived figures come with the raw counts they are made of; not what a server measures."""
    found: dict[str, Any] = as_json(out)
    del found["saved"]
    found["stats"] |= {name: getattr(out.stats, name) for name in _DERIVED}
    return found
