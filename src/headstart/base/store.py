"""SQLite files: opened with the tables of a schema, written all at once or not at all, and errors that say what to do.

A file that is damaged, of a later version or another program's is refused and left as it is.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.errors import InvalidFile


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a kind of file."""

    what: str
    """The kind, in messages: "FILE is no ..."."""
    version: int
    """Of the tables, as `PRAGMA user_version` says it."""
    tables: str
    """Statements that make the tables where they are not there."""
    hint: str
    """What a user does about a file that cannot be used."""
    application: int = 0
    """`PRAGMA application_id`, by which other programs' tables are refused; 0 refuses none."""
    user: str = "process"
    """Who uses the file, in messages."""


LEDGER = Schema(
    what="ledger",
    version=1,
    tables="""
CREATE TABLE IF NOT EXISTS acceptance (
    hour INTEGER, model TEXT, tag TEXT, source TEXT, position INTEGER, tested INTEGER, accepted INTEGER,
    PRIMARY KEY (hour, model, tag, source, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS requests (
    hour INTEGER, model TEXT, tag TEXT, requests INTEGER, tokens INTEGER, forwards INTEGER,
    shares INTEGER, share_sum REAL, share_squares REAL, PRIMARY KEY (hour, model, tag)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latency (
    hour INTEGER, model TEXT, tag TEXT, kind TEXT, up_to REAL, requests INTEGER,
    PRIMARY KEY (hour, model, tag, kind, up_to)) WITHOUT ROWID;
""",
    hint="'headstart serve --ledger FILE' writes one; name that file",
)
"""How often guesses were right, hour by hour: a server writes it, and a watch reads it. Hours count from 1970."""


class Database:
    """An open file with the tables of a schema, or tables in memory.

    Args:
        path: it and missing folders are made; None keeps everything in memory.
        alone: no other process can open the file while this one has it. Else others read it meanwhile.
        private: only the user can read it (mode 600; SQLite's own is 644).
        patience: seconds to wait for another process.

    Raises:
        InvalidFile: it is no such file, of a later version, in use, or cannot be written.
    """

    def __init__(
        self, path: Path | None, schema: Schema, *, alone: bool = False, private: bool = False, patience: float = 30.0
    ) -> None:
        self._name = ":memory:" if path is None else str(path)
        self._schema = schema
        with self.errors():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                if private:
                    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(self._name, timeout=patience, isolation_level=None)
            try:
                self._prepare(alone)
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run one statement; its rows, if it has any."""
        with self.errors():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All that is written inside is written at once, or not at all."""
        with self.errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite itself takes some failures back
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """SQLite's own errors, and values that no file takes, as `InvalidFile`."""
        try:
            yield
        except InvalidFile:
            raise
        except (sqlite3.Error, OSError, ValueError) as error:
            user, hint = self._schema.user, self._schema.hint
            if "locked" in str(error):
                raise InvalidFile(f"another {user} uses {self._name}", hint=f"wait for it, or {hint}") from error
            raise InvalidFile(f"{self._name} cannot be used: {error}", hint=hint) from error

    def _prepare(self, alone: bool) -> None:
        """Check the file, and make the tables that are not there."""
        run = self._connection.execute
        if alone:
            run("PRAGMA locking_mode = EXCLUSIVE")
            run("BEGIN EXCLUSIVE")
        self._check()
        if not alone:
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = NORMAL")
            run("BEGIN IMMEDIATE")
        for statement in self._schema.tables.split(";"):
            run(statement)
        if self._schema.application:
            run(f"PRAGMA application_id = {self._schema.application}")
        run(f"PRAGMA user_version = {self._schema.version}")
        run("COMMIT")

    def _check(self) -> None:
        """Refuse another program's tables, and those of a later version."""
        schema, version = self._schema, _pragma(self._connection, "user_version")
        ((tables,),) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        if schema.application and tables and _pragma(self._connection, "application_id") != schema.application:
            raise InvalidFile(f"{self._name} is no {schema.what}: it holds other tables", hint=schema.hint)
        if version > schema.version:
            what = f"its tables are of version {version}, and this headstart knows {schema.version}"
            raise InvalidFile(f"{self._name} is no {schema.what}: {what}", hint=schema.hint)


def read_rows(path: Path, schema: Schema, query: str, values: Sequence[Any] = ()) -> list[Any]:
    """The rows of a file that another process may write meanwhile; nothing is made or changed.

    Raises:
        InvalidFile: there is no such file, or it is none of this schema and version.
    """
    if not path.is_file():
        raise InvalidFile(f"there is no {schema.what} {path}", hint=schema.hint)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0)) as connection:
            if (version := _pragma(connection, "user_version")) != schema.version:
                what = f"{path} is no {schema.what} of version {schema.version}: it says {version}"
                raise InvalidFile(what, hint=schema.hint)
            return connection.execute(query, values).fetchall()
    except sqlite3.Error as error:
        raise InvalidFile(f"{path} cannot be read as a {schema.what}: {error}", hint=schema.hint) from error


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    ((value,),) = connection.execute(f"PRAGMA {name}").fetchall()
    return int(value)
