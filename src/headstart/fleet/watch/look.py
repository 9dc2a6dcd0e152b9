"""One look at a fleet, and its options: what each server counted lately, what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from headstart.base.as_json import picked
from headstart.base.options import check_fields, option, strict
from headstart.fleet.watch.counters import Counters, total
from headstart.fleet.watch.counts import Histogram

_watch, _drift = partial(option, panel="Watching"), partial(option, panel="Drift")


@strict
@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How a fleet is watched."""

    window: float = _watch(60.0, "Seconds of traffic that the table covers.", above=0)
    timeout: float = _watch(5.0, "Seconds to wait for a server.", metavar="SECONDS", above=0)
    drift_window: float = _drift(300.0, "Seconds that are one window for the detector.", above=0)
    drop: float = _drift(0.05, "Drift is proved if acceptance fell by more than this share.", low=0.0, high=0.9)
    learning: int = _drift(48, "Windows from which the baseline is learned.", low=12)
    false_alarm: float = _drift(
        10_000.0, "While nothing changes, the mean number of windows until a false alarm is at least this.", low=2
    )
    draft_cost: float | None = _drift(
        None,
        "What drafting a token costs in plain steps (doctor's c), so that an alarm names the best K. "
        "Default: as --baseline says.",
        low=0.0,
    )

    def __post_init__(self) -> None:
        check_fields(self)


LEVELS = ("fine", "suspected", "unlike", "proved", "broken", "unreachable")
"""From the least to the most urgent: drift suspected, a replica unlike the others, drift proved, counters that
contradict each other, no answer."""
QUANTILES = (0.5, 0.99)
_RATIOS = (
    "generated", "prompt_tokens", "forwards", "tokens_per_forward", "tokens_per_forward_low", "tokens_per_draft",
    "drafted_share", "drafts", "drafted", "accepted", "acceptance",
)  # fmt: skip
_STATE = ("ended", "preemptions", "running", "waiting", "kv_usage")
"""Figures of `Counters` that a record holds, before and behind the acceptance by position."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a person should know about a server."""

    level: str
    """One of `LEVELS`; "fine" for what is only worth knowing."""
    words: str
    advice: str = ""
    """What to do, one thing on each line."""

    def record(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"level": self.level, "words": self.words, "advice": self.advice or None}


@dataclass(frozen=True, slots=True)
class Row:
    """One server, or one ledger."""

    server: str
    """Its address as it was given, or the ledger's file."""
    engines: Mapping[str, Counters]
    """By engine, what it counted in the time that is shown; empty where nothing is known."""
    seconds: float | None = None
    """How long that time was; None: since the server's start."""
    restarts: int = 0
    """Since the watch began."""
    findings: tuple[Finding, ...] = ()
    drift: Mapping[str, Any] | None = None
    """The state of its detector of drift, as JSON takes it."""

    @property
    def window(self) -> Counters | None:
        """All engines together."""
        return total(self.engines.values())

    @property
    def level(self) -> str:
        """The most urgent one of its findings."""
        return worst(finding.level for finding in self.findings)

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens per second of the time that is shown."""
        window = self.window
        return window.generated / self.seconds if window is not None and self.seconds else None


@dataclass(frozen=True, slots=True)
class Look:
    """All servers at one time."""

    time: float
    """Seconds since 1970."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """What is wrong with the watch itself, such as a webhook that does not answer."""

    @property
    def level(self) -> str:
        return worst(row.level for row in self.rows)

    @property
    def iso_time(self) -> str:
        return datetime.fromtimestamp(self.time, UTC).isoformat(timespec="seconds")

    @property
    def exit_code(self) -> int:
        """0 where all is fine, 1 where something was found, 2 where nothing was but a server does not answer."""
        levels = {row.level for row in self.rows}
        if levels & set(LEVELS[1:-1]):
            return 1
        return 2 if "unreachable" in levels else 0

    def record(self) -> dict[str, Any]:
        """As one line of JSON, described in the guide "Watch a fleet"."""
        return {
            "headstart_watch": 1,
            "time": self.iso_time,
            "level": self.level,
            "servers": [_row(row) for row in self.rows],
            "notes": list(self.notes),
        }


def worst(levels: Any) -> str:
    """The most urgent of the levels; "fine" of none."""
    return max(levels, key=LEVELS.index, default="fine")


def _row(row: Row) -> dict[str, Any]:
    window = row.window
    found = {
        **picked(row, "server", "level"),
        "findings": [each.record() for each in row.findings],
        **picked(row, "restarts", "seconds", "tokens_per_second", "drift"),
    }
    if window is None:
        return found
    engines = [{"engine": each.engine, **_figures(each)} for each in row.engines.values()]
    return found | {"kind": window.kind, "model": window.model, **_figures(window), "engines": engines}


def _figures(window: Counters) -> dict[str, Any]:
    """The figures of a window, as JSON takes them; null where they are not known."""
    positions = [
        {
            "position": place + 1,
            "tested": window.tested(place),
            "accepted": accepted,
            "value": window.acceptance_at(place),
            "of_drafts": window.share_of_drafts_at(place),
        }
        for place, accepted in enumerate(window.accepted_per_position)
    ]
    return {
        **picked(window, *_RATIOS),
        "positions": positions,
        **picked(window, *_STATE),
        "first_token_seconds": _quantiles(window.first_token),
        "seconds_per_token": _quantiles(window.per_token),
    }


def _quantiles(histogram: Histogram | None) -> dict[str, Any] | None:
    """P50 and P99 with the bounds of their buckets; a bound of null is infinite."""
    if histogram is None or not histogram.total:
        return None
    found: dict[str, Any] = {"requests": histogram.total}
    for level in QUANTILES:
        quantile = histogram.quantile(level)
        if quantile is not None:
            high = None if quantile.value is None else quantile.high
            found[f"p{round(100 * level)}"] = {"value": quantile.value, "low": quantile.low, "high": high}
    return found
