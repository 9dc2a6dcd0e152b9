"""How often guesses were right, hour by hour, in an SQLite file: what a watch over a drafter's drift reads.

Rows hold counts, never text. A file that cannot be written ends the recording, never a request.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from headstart.base.errors import InvalidFile
from headstart.base.store import LEDGER, Database
from headstart.serve.events import FIRST_TOKEN_SECONDS, TOKEN_SECONDS, Ended, Event, Recorder, Stepped, Write
from headstart.serve.names import Names, public_name
from headstart.serve.options import Recording
from headstart.theory.rounds import PositionCounts
from headstart.types import Stats

_COLUMNS = {
    "acceptance": (("hour", "model", "tag", "source", "position"), ("tested", "accepted")),
    "requests": (
        ("hour", "model", "tag"), ("requests", "tokens", "forwards", "shares", "share_sum", "share_squares"),
    ),
    "latency": (("hour", "model", "tag", "kind", "up_to"), ("requests",)),
}  # fmt: skip
"""By table, the columns that tell its rows apart, and those that are counts."""


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
    FAILURES = (InvalidFile,)

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
        self._drafts: defaultdict[int, dict[str, PositionCounts]] = defaultdict(dict)  # by running request and source
        self._cleaned = 0
        self._start()

    @classmethod
    def of(cls, options: Recording, model: str) -> Ledger | None:
        """The ledger that a server is to keep, or None."""
        return None if options.ledger is None else cls(options.ledger, model, days=options.ledger_days)

    def __call__(self, event: Event) -> None:
        if self.stopped is not None:
            return
        if isinstance(event, Stepped):
            for step in event.steps:
                if step.draft.guesses:
                    counts = self._drafts[step.request].setdefault(step.draft.source, PositionCounts())
                    counts.add(step.draft.guessed_levels, step.draft.guesses_in(step.path))
        elif isinstance(event, Ended):
            drafts = self._drafts.pop(event.request, {})
            if event.output is not None:
                self._record(self._entry(event, event.output.stats, drafts))

    def _entry(self, event: Ended, stats: Stats, drafts: Mapping[str, PositionCounts]) -> Entry:
        tested = tuple(
            (self._sources.of(public_name(source)), position, tested, counts.accepted[position])
            for source, counts in drafts.items()
            for position, tested in enumerate(counts.tested)
        )
        hour, tag = int(self._clock() // 3600), self._tags.of(event.job.tag)
        times = event.first_token_seconds, event.seconds_per_token
        return Entry(hour, tag, stats.tokens, stats.target_forwards, tested, *times)

    @contextmanager
    def _open(self) -> Iterator[Write[Entry]]:
        with Database(self._path, LEDGER, private=True) as database:  # tags are clients' words
            yield partial(self._write, database)

    def _write(self, database: Database, entries: Sequence[Entry]) -> None:
        with database.writing():
            for table, row in _rows(self._model, entries):
                database.execute(_upsert(table), row)
            oldest = entries[-1].hour - 24 * self._days
            if oldest > self._cleaned:
                for table in _COLUMNS:
                    database.execute(f"DELETE FROM {table} WHERE hour < ?", (oldest,))
                self._cleaned = oldest


def _rows(model: str, entries: Iterable[Entry]) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The rows of these entries, each with its table; what a table holds already they are added to."""
    for entry in entries:
        key = (entry.hour, model, entry.tag)
        for row in entry.tested:
            yield "acceptance", (*key, *row)
        share = entry.share
        shares = (0, 0.0, 0.0) if share is None else (1, share, share * share)
        yield "requests", (*key, 1, entry.tokens, entry.forwards, *shares)
        for kind, bounds, seconds in (
            ("first token", FIRST_TOKEN_SECONDS, entry.first_token_seconds),
            ("per token", TOKEN_SECONDS, entry.seconds_per_token),
        ):
            if seconds is not None:
                yield "latency", (*key, kind, (*bounds, math.inf)[bisect_left(bounds, seconds)], 1)


@cache
def _upsert(table: str) -> str:
    """The statement that adds one row to what is there."""
    keys, counts = _COLUMNS[table]
    names, places = ", ".join((*keys, *counts)), ", ".join("?" * len((*keys, *counts)))
    sums = ", ".join(f"{count} = {count} + excluded.{count}" for count in counts)
    return f"INSERT INTO {table} ({names}) VALUES ({places}) ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {sums}"
