"""SQLite files: written at once or not at all, refused where they are not ours, and readable while they are written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headstart.base.errors import InvalidFile
from headstart.base.store import Database, Schema, read_rows

TABLES = "CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;"
OURS = Schema(what="notebook", version=2, tables=TABLES, hint="name another notebook", application=0x6E6F7465)


def test_a_file_is_read_while_another_process_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kept"
    with Database(path, OURS, private=True) as database:
        for row in (("a", 1), ("b", 2)):
            database.execute("INSERT INTO kept VALUES (?, ?)", row)
        assert read_rows(path, OURS, "SELECT value FROM kept WHERE name = ?", ("b",)) == [(2,)]
        with database.writing():
            database.execute("INSERT INTO kept VALUES ('c', 3)")
            assert len(read_rows(path, OURS, "SELECT * FROM kept")) == 2, "what is not done is not seen"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(read_rows(path, OURS, "SELECT * FROM kept")) == 3


def test_what_fails_midway_is_taken_back_and_the_file_goes_on(tmp_path: Path) -> None:
    with Database(tmp_path / "kept", OURS) as database:
        with pytest.raises(InvalidFile, match="UNIQUE"), database.writing():  # noqa: PT012
            database.execute("INSERT INTO kept VALUES ('a', 1)")
            database.execute("INSERT INTO kept VALUES ('a', 2)")
        with pytest.raises(InvalidFile, match="no such table"), database.writing():
            database.execute("INSERT INTO kept SELECT 'b', value FROM theirs")
        assert database.execute("SELECT * FROM kept") == []


def test_one_that_is_alone_keeps_others_out(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    with Database(path, OURS, alone=True), pytest.raises(InvalidFile, match="another process uses"):
        Database(path, OURS, alone=True, patience=0.05)
    Database(path, OURS, alone=True).close()


@pytest.mark.parametrize("alone", [False, True])
def test_a_later_version_and_other_tables_are_refused_and_left_as_they_are(alone: bool, tmp_path: Path) -> None:
    later, other = tmp_path / "later", tmp_path / "other"
    Database(later, OURS).close()
    for path, statement in ((later, "PRAGMA user_version = 3"), (other, "CREATE TABLE theirs (x)")):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
            connection.commit()
        before = path.read_bytes()
        with pytest.raises(InvalidFile, match=f"{path.name} is no notebook") as caught:
            Database(path, OURS, alone=alone)
        assert caught.value.hint == OURS.hint
        assert path.read_bytes() == before
    with pytest.raises(InvalidFile, match="no notebook of version 2: it says 3"):
        read_rows(later, OURS, "SELECT 1")
