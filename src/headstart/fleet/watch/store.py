"""What a watch keeps between its looks, in an SQLite file (or in memory): marks by name, and windows of time.

A mark is whatever must be known to go on: the last counters of a server, a detector's state. Windows are what is
charted; those that are close together are added up, so that a file of a month stays small. No text is kept.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.errors import InvalidFile
from headstart.fleet.watch.counters import Counters, counters_of, record_of

VERSION = 1
"""Of the tables, as `PRAGMA user_version` says it."""
MERGED_SECONDS = 60.0
"""Windows of the same server are added up until they span this long."""
PATIENCE = 10.0
"""Seconds to wait for another watch that uses the file."""
_NAMED = 0x68737477
"""`PRAGMA application_id` of such a file: "hstw"."""
_TABLES = """
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, record TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS windows (
    server TEXT, began REAL, ended REAL, record TEXT, PRIMARY KEY (server, began)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Window:
    """What a server counted between two times, which are seconds since 1970."""

    began: float
    ended: float
    counters: Counters

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Store:
    """One file for one watch: while it is open, no other process can open it.

    Args:
        path: of the file, which is made where it is missing; None keeps everything in memory.
        days: windows that are older are forgotten.

    Raises:
        InvalidFile: it is no such file, of a later version, or in use by another watch.
    """

    def __init__(self, path: Path | None = None, *, days: float = 30.0) -> None:
        self._name = ":memory:" if path is None else str(path)
        self._days = days
        with self._readable():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self._name, timeout=PATIENCE, isolation_level=None)
            self._prepare()

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (named,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (tables and named != _NAMED) or version > VERSION:
            connection.execute("ROLLBACK")
            connection.close()
            what = f"its tables are of version {version}" if named == _NAMED else "it holds other tables"
            raise InvalidFile(f"{self._name} is no file of this headstart's watch: {what}", hint="name another file")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_NAMED}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All that is written inside is written at once, or not at all."""
        with self._readable():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def mark(self, name: str) -> Any:
        """What was kept under this name; None if nothing was."""
        with self._readable():
            row = self._connection.execute("SELECT record FROM marks WHERE name = ?", (name,)).fetchone()
            return None if row is None else json.loads(row[0])

    def keep(self, name: str, record: Any) -> None:
        """Keep a value of JSON under this name."""
        with self._readable():
            text = json.dumps(record, allow_nan=False)
            self._connection.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (name, text))

    def add(self, server: str, window: Window) -> None:
        """Keep a window, and forget the oldest ones."""
        with self._readable():
            row = self._connection.execute(
                "SELECT began, record FROM windows WHERE server = ? ORDER BY began DESC LIMIT 1", (server,)
            ).fetchone()
            began, counters = window.began, window.counters
            if row is not None and window.ended - row[0] <= MERGED_SECONDS:
                began, counters = row[0], counters_of(json.loads(row[1])) + counters
            text = json.dumps(record_of(counters), allow_nan=False)
            self._connection.execute(
                "INSERT OR REPLACE INTO windows VALUES (?, ?, ?, ?)", (server, began, window.ended, text)
            )
            oldest = window.ended - 86400 * self._days
            self._connection.execute("DELETE FROM windows WHERE ended < ?", (oldest,))

    def windows(self, server: str) -> list[Window]:
        """The windows of a server, the oldest first."""
        with self._readable():
            rows = self._connection.execute(
                "SELECT began, ended, record FROM windows WHERE server = ? ORDER BY began", (server,)
            ).fetchall()
            return [Window(began, ended, counters_of(json.loads(text))) for began, ended, text in rows]

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """SQLite's own errors as ours."""
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            if isinstance(error, InvalidFile):
                raise
            hint = "name another file with --state"
            if "locked" in str(error):
                raise InvalidFile(f"another watch uses {self._name}", hint=f"wait for it, or {hint}") from error
            raise InvalidFile(f"{self._name} cannot be used: {error}", hint=hint) from error
