"""The file of a watch: what is kept comes back, other files are refused, and one watch has it at a time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from headstart.base.errors import InvalidFile
from headstart.fleet.watch.counters import Counters
from headstart.fleet.watch.store import MERGED_SECONDS, Store, Window

ONE = Counters(kind="vllm", generated=10)


def test_marks_and_windows_come_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "watch.sqlite"
    with Store(path) as store, store.writing():
        store.keep("a", {"b": [1, 2]})
        store.add("one", Window(0.0, 100.0, ONE))
        store.add("one", Window(100.0, 200.0, ONE))
    with Store(path) as store:
        assert store.mark("a") == {"b": [1, 2]}
        assert store.mark("c") is None
        assert store.windows("one") == [Window(0.0, 100.0, ONE), Window(100.0, 200.0, ONE)]


def test_short_windows_are_added_up_and_old_ones_forgotten() -> None:
    with Store(days=1) as store:
        for began in range(0, 120, 5):
            store.add("one", Window(float(began), began + 5.0, ONE))
        kept = store.windows("one")
        assert [window.seconds for window in kept] == [MERGED_SECONDS, MERGED_SECONDS]
        assert sum(window.counters.generated for window in kept) == 240
        store.add("one", Window(90_000.0, 90_005.0, ONE))
        assert len(store.windows("one")) == 1


def test_what_fails_midway_is_not_kept() -> None:
    with Store() as store:
        with pytest.raises(InvalidFile, match="not JSON compliant"):
            _two_marks(store)
        assert store.mark("a") is None


def _two_marks(store: Store) -> None:
    with store.writing():
        store.keep("a", 1)
        store.keep("b", float("nan"))


def test_two_watches_do_not_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.fleet.watch.store.PATIENCE", 0.05)
    path = tmp_path / "watch.sqlite"
    with Store(path), pytest.raises(InvalidFile, match="another watch uses"):
        Store(path)
    Store(path).close()


def test_other_files_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    text, tables = tmp_path / "notes.txt", tmp_path / "ledger.sqlite"
    text.write_text("no database" * 100)
    connection = sqlite3.connect(tables)
    connection.execute("CREATE TABLE acceptance (hour)")
    connection.commit()
    connection.close()
    for path in (text, tables, tmp_path):
        with pytest.raises(InvalidFile) as caught:
            Store(path)
        assert "name another file" in caught.value.hint
    assert text.read_text().startswith("no database")
