"""What a watch keeps between its looks, in an SQLite file (or in memory): marks by name, and windows of time.

A mark is whatever must be known to go on: the last counters of a server, a detector's state. Windows are what is
charted; those that are close together are added up, so that a file of a month stays small. No text is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.store import Database, Schema
from headstart.fleet.watch.counters import Counters, record_of, restored

MERGED_SECONDS = 60.0
"""Windows of the same server are added up until they span this long."""
PATIENCE = 10.0
"""Seconds to wait for another watch that uses the file."""
_SCHEMA = Schema(
    what="file of this headstart's watch",
    version=1,
    tables="""
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, record TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS windows (
    server TEXT, began REAL, ended REAL, record TEXT, PRIMARY KEY (server, began)) WITHOUT ROWID;
""",
    hint="name another file with --state",
    application=0x68737477,  # "hstw"
    user="watch",
)


@dataclass(frozen=True, slots=True)
class Window:
    """What a server counted between two times, which are seconds since 1970."""

    began: float
    ended: float
    counters: Counters

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Store(Database):
    """One file for one watch: while it is open, no other process can open it.

    Args:
        path: of the file, which is made where it is missing; None keeps everything in memory.
        days: windows that are older are forgotten.

    Raises:
        InvalidFile: it is no such file, of a later version, or in use by another watch.
    """

    def __init__(self, path: Path | None = None, *, days: float = 30.0) -> None:
        super().__init__(path, _SCHEMA, alone=True, patience=PATIENCE)
        self._days = days

    def mark(self, name: str) -> Any:
        """What was kept under this name; None if nothing was."""
        rows = self.execute("SELECT record FROM marks WHERE name = ?", (name,))
        return self._read(rows[0][0]) if rows else None

    def keep(self, name: str, record: Any) -> None:
        """Keep a value of JSON under this name."""
        self.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (name, self._text(record)))

    def add(self, server: str, window: Window) -> None:
        """Keep a window, and forget the oldest ones."""
        last = "SELECT began, record FROM windows WHERE server = ? ORDER BY began DESC LIMIT 1"
        began, counters = window.began, window.counters
        for start, record in self.execute(last, (server,)):
            if window.ended - start <= MERGED_SECONDS:
                began, counters = start, restored(Counters, self._read(record)) + counters
        row = (server, began, window.ended, self._text(record_of(counters)))
        self.execute("INSERT OR REPLACE INTO windows VALUES (?, ?, ?, ?)", row)
        self.execute("DELETE FROM windows WHERE ended < ?", (window.ended - 86400 * self._days,))

    def windows(self, server: str) -> list[Window]:
        """The windows of a server, the oldest first."""
        rows = self.execute("SELECT began, ended, record FROM windows WHERE server = ? ORDER BY began", (server,))
        return [Window(began, ended, restored(Counters, self._read(record))) for began, ended, record in rows]

    def _text(self, record: Any) -> str:
        with self.errors():
            return json.dumps(record, allow_nan=False)

    def _read(self, text: str) -> Any:
        with self.errors():
            return json.loads(text)
