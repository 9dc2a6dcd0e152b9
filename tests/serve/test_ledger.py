"""The ledger's rows are the sums of what requests counted, and no file can hurt a request."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.bridges import bridged, job
from support.greedy import prompts

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.base.store import LEDGER
from headstart.serve.bridge import Job
from headstart.serve.events import Ended, Stepped
from headstart.serve.ledger import Ledger
from headstart.serve.names import public_name
from headstart.serve.options import Recording
from headstart.serve.worker import ThreadBridge
from headstart.types import Draft, Output, Seconds, Speculation, Stats, Step

Load = Callable[..., hs.Engine]
LONG: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def serve(engine: hs.Engine, ledger: Ledger, jobs: Sequence[Job]) -> list[hs.Output]:
    async def scene(bridge: ThreadBridge) -> list[hs.Output]:
        return [await answer.output() for answer in bridge.submit(jobs)]

    outputs = bridged(engine, scene, subscribers=[ledger])
    ledger.close()
    return outputs


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """Tags are words that clients choose."""
    before = os.umask(0o022)
    try:
        ledger = Ledger(tmp_path / "deep" / "ledger", "model", write_seconds=0.01)
        record(ledger, (1, 1))
        until = time.monotonic() + 60
        while not (files := list((tmp_path / "deep").glob("ledger-*"))):
            assert time.monotonic() < until, "SQLite's files beside it are there while it is written"
            time.sleep(0.01)
        modes = {path.name: path.stat().st_mode & 0o777 for path in [tmp_path / "deep" / "ledger", *files]}
        ledger.close()
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}, modes


def record(ledger: Ledger, *drafts: tuple[int, int], tag: str = "", seconds: float = 1.0) -> None:
    """A request of three tokens in two forwards. drafts: of one source, how long each was and how much was accepted."""
    speculation = Speculation(True, "some")
    for length, accepted in drafts:
        draft = Draft(tuple(range(length)), tuple(range(-1, length - 1)), source="some")
        path, tokens = tuple(range(accepted)), (*range(accepted), 9)
        step = Step(0, 0, 1, draft, path, tokens, None, 1 + length, 1, Seconds(), None, speculation)
        ledger(Stepped([step], 0.0))
    stats = Stats(3, 1, 2, 0, 0, 0, (), (), Seconds(), 0.0, seconds, speculation)
    output = Output("", (5, 6, 7), "length", None, stats, (5,), 0)
    ledger(Ended(0, Job((5,), tag=tag), output, "finished", 0.0, seconds / 2, seconds))


def test_rows_are_the_sums_of_the_requests(tiny: Callable[..., str], load: Load, tmp_path: Path) -> None:
    engine = load("llama", tiny("llama", noise=0.02), max_batch_size=3)
    path = tmp_path / "new" / "ledger.db"
    ledger = Ledger(path, "target + draft", clock=lambda: 3600 * 500_000.5)
    jobs = [Job(prompt, hs.Sampling(**LONG), tag=tag) for prompt in prompts() for tag in ("code", "talk")]
    outputs = serve(engine, ledger, jobs)
    assert ledger.stopped is None
    assert not ledger._drafts, "nothing is kept of requests that have ended"
    for tag, own in (("code", outputs[::2]), ("talk", outputs[1::2])):
        where = f"WHERE hour = 500000 AND model = 'target + draft' AND tag = '{tag}'"
        found = rows(path, f"SELECT position, tested, accepted FROM acceptance {where} ORDER BY position")
        for name, at in (("drafted_per_position", 1), ("accepted_per_position", 2)):
            each = [getattr(output.stats, name) for output in own]
            total = [sum(one[i] for one in each if i < len(one)) for i in range(max(map(len, each)))]
            assert [row[at] for row in found] == total, name
        ((requests, tokens, forwards),) = rows(path, f"SELECT requests, tokens, forwards FROM requests {where}")
        assert requests == len(own)
        assert tokens == sum(output.stats.tokens for output in own)
        assert forwards == sum(output.stats.target_forwards for output in own)
        for kind in ("first token", "per token"):
            count = rows(path, f"SELECT sum(requests) FROM latency {where} AND kind = '{kind}'")
            assert count == [(len(own),)]
    assert rows(path, "SELECT DISTINCT source FROM acceptance") == [(public_name(engine.drafter_name),)]


def test_shares_are_of_the_first_guess_alone(tmp_path: Path) -> None:
    """Later ones are tested more or less often as draft lengths change, and would move a share without any drift."""
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, "m")
    for drafts in ([(3, 2), (3, 2), (3, 2), (3, 0)], [(1, 1), (1, 0), (1, 0), (1, 0)], []):
        record(ledger, *drafts)
    ledger.close()
    found = rows(path, "SELECT requests, shares, share_sum, share_squares FROM requests")
    assert found == [(3, 2, 0.75 + 0.25, 0.75**2 + 0.25**2)]


def test_an_hour_goes_on_after_a_restart_and_ends(tmp_path: Path) -> None:
    path, now = tmp_path / "ledger.db", [3600.0 * 10]
    for _ in range(2):
        ledger = Ledger(path, "m", clock=lambda: now[0])
        record(ledger, (2, 2), (2, 0))
        ledger.close()
    now[0] += 3600
    ledger = Ledger(path, "other", clock=lambda: now[0])
    record(ledger, (1, 0), (1, 0), seconds=10_000.0)
    ledger.close()
    assert rows(path, "SELECT hour, model, position, tested, accepted FROM acceptance") == [
        (10, "m", 0, 4, 2),
        (10, "m", 1, 2, 2),
        (11, "other", 0, 2, 0),
    ]
    assert rows(path, "SELECT hour, kind, up_to, requests FROM latency") == [
        (10, "first token", 0.5, 2),
        (10, "per token", 0.3, 2),
        (11, "first token", math.inf, 1),
        (11, "per token", math.inf, 1),
    ]
    assert rows(path, "PRAGMA user_version") == [(LEDGER.version,)]
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


def test_old_hours_are_forgotten(tmp_path: Path) -> None:
    path, now = tmp_path / "ledger.db", [3600.0 * 1000]
    for hours in (0, 30, 20):
        now[0] += 3600 * hours
        ledger = Ledger(path, "m", days=1, clock=lambda: now[0])
        record(ledger, (1, 1))
        ledger.close()
    for table in ("acceptance", "requests", "latency"):
        assert rows(path, f"SELECT DISTINCT hour FROM {table}") == [(1030,), (1050,)], table


def test_tags_are_kept_few(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, "m")
    for tag in range(30):
        record(ledger, tag=str(tag))
    ledger.close()
    assert rows(path, "SELECT count(*), max(requests) FROM requests") == [(21, 10)]


def nothing(path: Path, patch: pytest.MonkeyPatch) -> None:
    pass


def folder_is_a_file(path: Path, patch: pytest.MonkeyPatch) -> None:
    path.parent.rmdir()
    path.parent.write_text("in the way")


def no_database(path: Path, patch: pytest.MonkeyPatch) -> None:
    path.write_text("a shopping list, and quite a long one " * 50)


def too_new(path: Path, patch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {LEDGER.version + 1}")


def read_only(path: Path, patch: pytest.MonkeyPatch) -> None:
    """Also for root, who may write to everything."""
    Ledger(path, "m").close()
    connect = sqlite3.connect
    patch.setattr(sqlite3, "connect", lambda path, **_: connect(f"file:{path}?mode=ro", uri=True))


def full(path: Path, patch: pytest.MonkeyPatch) -> None:
    """A disk that has room for the tables, and for nothing more."""
    Ledger(path, "m").close()
    connect = sqlite3.connect

    def small(path: Path, **options: Any) -> sqlite3.Connection:
        connection = connect(path, **options)
        connection.execute("PRAGMA max_page_count = 1")  # no less than there are
        return connection

    patch.setattr(sqlite3, "connect", small)


@pytest.mark.parametrize("trouble", [nothing, folder_is_a_file, no_database, too_new, read_only, full])
def test_a_file_that_cannot_be_written_ends_the_recording_and_nothing_else(
    trouble: Callable[[Path, pytest.MonkeyPatch], None],
    load: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "folder" / "ledger.db"
    path.parent.mkdir()
    trouble(path, monkeypatch)
    fills = "x" * 60  # so that the rows of one request do not fit into the pages that are there
    with caplog.at_level(logging.WARNING):
        ledger = Ledger(path, "m" * 2000, write_seconds=0.0)
        jobs = [Job((5, 6, 5, 6), hs.Sampling(**LONG), tag=f"{n} {fills}") for n in range(12)]
        outputs = serve(load("llama", "ngram"), ledger, jobs)
    assert [len(output.tokens) for output in outputs] == [40] * 12
    assert (ledger.stopped is None) == (trouble is nothing)
    assert caplog.text.count("not recorded any more") == (trouble is not nothing)


def test_entries_that_find_no_room_are_counted_and_nobody_waits(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as blocker:  # the writer waits for this one
        blocker.execute("CREATE TABLE other (x)")
        blocker.execute("BEGIN EXCLUSIVE")
        ledger = Ledger(path, "m", most_waiting=3)
        for _ in range(10):
            record(ledger)
        assert ledger.lost == 7
        blocker.rollback()
    ledger.close()
    assert rows(path, "SELECT requests FROM requests") == [(3,)]


def test_recording_options(tmp_path: Path) -> None:
    assert Ledger.of(Recording(), "m") is None
    with pytest.raises(InvalidOption):
        Recording(ledger_days=0)
    ledger = Ledger.of(Recording(ledger=tmp_path / "ledger.db"), "m")
    assert ledger is not None
    ledger.close()
    assert (tmp_path / "ledger.db").exists()


def test_failed_requests_are_not_counted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", "m")
    ledger(Ended(0, job([5]), None, "failure", 0.0, None, 1.0))
    ledger.close()
    assert rows(tmp_path / "ledger.db", "SELECT * FROM requests") == []
