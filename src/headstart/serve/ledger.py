"""How often guesses were right, hour by hour, in an SQLite file: what a watch over a drafter's drift reads.

Rows hold counts, never text. A file that cannot be written ends the recording, never a request.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headstart.base.options import check_fields, option, strict
from headstart.serve.counts import FIRST_TOKEN_SECONDS, TOKEN_SECONDS
from headstart.serve.names import public_name
from headstart.serve.recorder import Recorder, Write
from headstart.serve.watching import Ended, Names

SCHEMA_VERSION = 1
"""Of the tables, as `PRAGMA user_version` says it."""
_TABLES = """
CREATE TABLE IF NOT EXISTS acceptance (
    hour INTEGER, model TEXT, tag TEXT, source TEXT, position INTEGER, tested INTEGER, accepted INTEGER,
    PRIMARY KEY (hour, model, tag, source, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS requests (
    hour INTEGER, model TEXT, tag TEXT, requests INTEGER, tokens INTEGER, forwards INTEGER,
    shares INTEGER, share_sum REAL, share_squares REAL, PRIMARY KEY (hour, model, tag)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latency (
    hour INTEGER, model TEXT, tag TEXT, kind TEXT, up_to REAL, requests INTEGER,
    PRIMARY KEY (hour, model, tag, kind, up_to)) WITHOUT ROWID;
"""
_KEYS = {
    "acceptance": ("hour", "model", "tag", "source", "position"),
    "requests": ("hour", "model", "tag"),
    "latency": ("hour", "model", "tag", "kind", "up_to"),
}
_VALUES = {
    "acceptance": ("tested", "accepted"),
    "requests": ("requests", "tokens", "forwards", "shares", "share_sum", "share_squares"),
    "latency": ("requests",),
}


@strict
@dataclass(frozen=True, slots=True)
class Recording:
    """What a server keeps of its acceptance."""

    ledger: Path | None = option(
        None, "Count in this SQLite file, hour by hour, how often guesses were right (mode 600). It holds no text.",
        panel="Recording",
    )  # fmt: skip
    ledger_days: int = option(90, "Forget hours that are older.", panel="Recording", low=1)

    def __post_init__(self) -> None:
        check_fields(self)

    def open(self, model: str) -> Ledger | None:
        """The ledger, or None if none is kept."""
        return None if self.ledger is None else Ledger(self.ledger, model, days=self.ledger_days)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of one request."""

    hour: int
    """Since 1970."""
    tag: str
    tokens: int
    forwards: int
    tested: tuple[tuple[str, int, int, int], ...]
    """(source, position from 0, tested, accepted)"""
    first_token_seconds: float | None
    seconds_per_token: float | None

    @property
    def share(self) -> float | None:
        """Of the guesses right behind the text, how many were right. It means the same at every draft length."""
        first = [(tested, accepted) for _, position, tested, accepted in self.tested if position == 0]
        total = sum(tested for tested, _ in first)
        return sum(accepted for _, accepted in first) / total if total else None


class _TooNew(Exception):
    """The file is of a later headstart."""


class Ledger(Recorder[Entry]):
    """Records the counts of ended requests, from its beginning until `close`.

    Args:
        path: of the file; it and missing folders are made.
        model: names the target and its drafter. Rows of different ones are kept apart.
        days: after so many, rows are forgotten.
        write_seconds, most_waiting: see `Recorder`.
        clock: seconds since 1970.
    """

    WHAT = "acceptance"
    FAILURES = (sqlite3.Error, OSError, _TooNew)

    def __init__(
        self,
        path: Path,
        model: str,
        *,
        days: int = 90,
        write_seconds: float = 5.0,
        most_waiting: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(path.name, write_seconds=write_seconds, most_waiting=most_waiting)
        self._path, self._model, self._days = path, model, days
        self._clock = clock
        self._tags, self._sources = Names(), Names()
        self._cleaned = 0
        self._start()

    def ended(self, ended: Ended) -> None:
        output = ended.output
        if output is None or self.stopped is not None:
            return
        stats, first = output.stats, ended.first_token_seconds
        after = None if first is None or stats.tokens < 2 else (ended.total_seconds - first) / (stats.tokens - 1)
        tested = tuple(
            (self._sources.of(public_name(source)), position, tested, counts.accepted[position])
            for source, counts in ended.by_source.items()
            for position, tested in enumerate(counts.tested)
        )
        hour = int(self._clock() // 3600)
        entry = Entry(hour, self._tags.of(ended.job.tag), stats.tokens, stats.target_forwards, tested, first, after)
        self._record(entry)

    @contextmanager
    def _open(self) -> Iterator[Write[Entry]]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))  # tags are clients' words; SQLite's own is 644
        with closing(sqlite3.connect(self._path, timeout=30.0)) as connection:
            _prepare(connection)
            yield partial(self._write, connection)

    def _write(self, connection: sqlite3.Connection, entries: Sequence[Entry]) -> None:
        with connection:  # one transaction
            for table, rows in _rows(self._model, entries).items():
                connection.executemany(_upsert(table), rows)
            oldest = entries[-1].hour - 24 * self._days
            if oldest > self._cleaned:
                for table in _KEYS:
                    connection.execute(f"DELETE FROM {table} WHERE hour < ?", (oldest,))
                self._cleaned = oldest


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables where they are not there."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise _TooNew(f"its tables are of version {version}, this headstart knows {SCHEMA_VERSION}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(_TABLES)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _rows(model: str, entries: Iterable[Entry]) -> dict[str, list[tuple[object, ...]]]:
    """By table, the rows that these entries add up to."""
    acceptance: dict[tuple[object, ...], list[float]] = {}
    requests: dict[tuple[object, ...], list[float]] = {}
    latency: Counter[tuple[object, ...]] = Counter()
    for entry in entries:
        key = (entry.hour, model, entry.tag)
        for source, position, *counts in entry.tested:
            _add(acceptance, (*key, source, position), counts)
        share = entry.share
        shares = (0, 0.0, 0.0) if share is None else (1, share, share * share)
        _add(requests, key, (1, entry.tokens, entry.forwards, *shares))
        for kind, bounds, seconds in (
            ("first token", FIRST_TOKEN_SECONDS, entry.first_token_seconds),
            ("per token", TOKEN_SECONDS, entry.seconds_per_token),
        ):
            if seconds is not None:
                latency[(*key, kind, (*bounds, math.inf)[bisect_left(bounds, seconds)])] += 1
    return {
        "acceptance": [(*key, *values) for key, values in acceptance.items()],
        "requests": [(*key, *values) for key, values in requests.items()],
        "latency": [(*key, count) for key, count in latency.items()],
    }


def _add(sums: dict[tuple[object, ...], list[float]], key: tuple[object, ...], values: Sequence[float]) -> None:
    before = sums.get(key, [0] * len(values))
    sums[key] = [one + other for one, other in zip(before, values, strict=True)]


def _upsert(table: str) -> str:
    keys, values = _KEYS[table], _VALUES[table]
    places = ", ".join("?" * (len(keys) + len(values)))
    sums = ", ".join(f"{value} = {value} + excluded.{value}" for value in values)
    names = ", ".join((*keys, *values))
    return f"INSERT INTO {table} ({names}) VALUES ({places}) ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {sums}"
