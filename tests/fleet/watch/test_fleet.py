"""Fleets of fake engines under watch: mixed, restarted, unreachable, drifting, unlike; and what is kept of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.exports import EXPECTED, manifest
from support.fake_engines import Engine, FakeServer, fake_server

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.base.store import LEDGER, Database
from headstart.fleet.export.manifest import Figure
from headstart.fleet.watch.findings import baseline_of, read_expectation
from headstart.fleet.watch.fleet import Watch
from headstart.fleet.watch.look import Look, Row, WatchOptions
from headstart.fleet.watch.replicas import BATCHES
from headstart.fleet.watch.store import Store

OPTIONS = WatchOptions(drift_window=60.0, window=60.0, learning=24)
SGLANG = 'sglang:generation_tokens_total{model_name="s"} 100\nsglang:spec_verify_calls_total{model_name="s"} 40\n'


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def served(stack: ExitStack, *engines: Engine) -> list[FakeServer]:
    servers = [stack.enter_context(fake_server()) for _ in engines]
    for server, engine in zip(servers, engines, strict=True):
        engine.run(100)
        server.text = engine.page()
    return servers


def watching(stack: ExitStack, urls: list[str], store: Store | None = None, **options: Any) -> tuple[Watch, Clock]:
    clock = options.pop("clock", Clock())
    store = stack.enter_context(Store()) if store is None else store
    return stack.enter_context(Watch(urls, store, options.pop("options", OPTIONS), clock=clock, **options)), clock


def later(
    watch: Watch, clock: Clock, pairs: list[tuple[FakeServer, Engine]], drafts: int = 400, looks: int = 1
) -> Look:
    for _ in range(looks):
        clock.now += 60.0
        for server, engine in pairs:
            engine.run(drafts)
            server.text = engine.page()
        look = watch.look()
    return look


def words(row: Row) -> str:
    return " ".join(f"{each.level}: {each.words} {each.advice}" for each in row.findings)


def test_a_mixed_fleet_is_one_look(stack: ExitStack) -> None:
    engine = Engine([0.9, 0.8])
    (vllm,) = served(stack, engine)
    (sglang,) = served(stack, Engine([0.9]))
    sglang.text = SGLANG
    gone = "http://127.0.0.1:1"
    watch, clock = watching(stack, [vllm.url, sglang.url + "/v1", gone])
    look = watch.look()
    assert [row.level for row in look.rows] == ["fine", "fine", "unreachable"]
    assert look.exit_code == 2
    assert [row.seconds for row in look.rows[:2]] == [None, None], "since the start"
    look = later(watch, clock, [(vllm, engine)])
    first, second, third = look.rows
    assert first.window is not None
    assert (first.window.drafts, first.seconds) == (400, 60.0)
    assert second.window is not None
    assert (second.window.kind, second.window.generated) == ("sglang", 0)
    assert third.window is None
    assert "no connection" in words(third)


def test_a_restart_is_survived_and_shown(stack: ExitStack) -> None:
    engine = Engine([0.9, 0.8])
    (server,) = served(stack, engine)
    watch, clock = watching(stack, [server.url])
    watch.look()
    engine.restart()
    (row,) = later(watch, clock, [(server, engine)]).rows
    assert row.window is not None
    assert (row.restarts, row.window.drafts, row.level) == (1, 400, "fine")
    server.status = 500
    assert watch.look().level == "unreachable"
    server.status = 200
    (row,) = later(watch, clock, [(server, engine)]).rows
    assert row.window is not None
    assert (row.restarts, row.window.drafts) == (1, 400)


def test_counters_that_contradict_each_other_are_a_finding(stack: ExitStack) -> None:
    engine = Engine([0.9, 0.8])
    (server,) = served(stack, engine)
    engine.positions[1] *= 3
    server.text = engine.page()
    watch, _ = watching(stack, [server.url])
    look = watch.look()
    assert (look.level, look.exit_code) == ("broken", 1)
    assert "after a rejected one are counted" in words(look.rows[0])


def test_drift_is_proved_and_the_commands_are_named(stack: ExitStack) -> None:
    engine = Engine([0.9, 0.8])
    (server,) = served(stack, engine)
    made = manifest(target="/models/t", expected=None)
    expectation = replace(made, drafter=replace(made.drafter, origin="/heads/h"))
    watch, clock = watching(stack, [server.url], expectation=expectation, options=replace(OPTIONS, draft_cost=0.5))
    watch.look()
    before = later(watch, clock, [(server, engine)], looks=30)
    assert before.level == "fine"
    engine.acceptance = [0.75, 0.65]
    after = later(watch, clock, [(server, engine)], looks=40)
    assert (after.level, after.exit_code) == ("proved", 1)
    assert watch.changes(after) == {server.url: ("fine", "proved")}
    assert watch.changes(after) == {}
    found = words(after.rows[0])
    assert "headstart adapt /models/t TRAFFIC.jsonl --drafter /heads/h -o adapted" in found
    assert "headstart doctor /models/t --drafter /heads/h" in found
    assert "lower K from 2 to 1" in found
    assert after.record()["servers"][0]["drift"]["level"] == "proved"


def test_cron_goes_on_where_the_last_run_has_ended(stack: ExitStack, tmp_path: Path) -> None:
    engine, clock, path = Engine([0.9, 0.8]), Clock(), tmp_path / "watch.sqlite"
    (server,) = served(stack, engine)
    for number in range(10):
        with Store(path) as store, ExitStack() as once:
            watch, _ = watching(once, [server.url], store, clock=clock)
            look = later(watch, clock, [(server, engine)], looks=7)
        if number == 4:
            assert look.level == "fine"
            assert look.rows[0].seconds == 60.0
            engine.acceptance = [0.7, 0.6]
            engine.restart()
    assert look.level == "proved"
    assert look.rows[0].restarts == 1


def test_after_a_new_drafter_what_is_normal_is_learnt_anew(stack: ExitStack) -> None:
    engine, clock, store = Engine([0.9, 0.8]), Clock(), stack.enter_context(Store())
    (server,) = served(stack, engine)
    for relearn, level in ((False, "proved"), (False, "proved"), (True, "fine")):
        with ExitStack() as once:
            watch, _ = watching(once, [server.url], store, clock=clock, relearn=relearn)
            watch.look()
            if level == "proved":
                later(watch, clock, [(server, engine)], looks=26)
                engine.acceptance = [0.6, 0.5]
            assert later(watch, clock, [(server, engine)], looks=26).level == level


def test_a_replica_unlike_the_others_is_named_and_not_the_others(stack: ExitStack) -> None:
    engines = [Engine([0.9, 0.8], seed=seed) for seed in range(2)] + [Engine([0.9, 0.6], seed=9)]
    servers = served(stack, *engines)
    watch, clock = watching(stack, [server.url for server in servers])
    watch.look()
    look = later(watch, clock, list(zip(servers, engines, strict=True)), looks=BATCHES)
    assert look.rows[2].level == "unlike"
    assert "at position 2" in words(look.rows[2])
    assert look.exit_code == 1
    engines[2].restart()
    look = later(watch, clock, list(zip(servers, engines, strict=True)))
    assert look.level == "fine", "what was started anew is compared anew"


def test_less_than_the_export_has_measured_is_said_and_is_no_alarm(stack: ExitStack) -> None:
    engine = Engine([0.5, 0.5])
    (server,) = served(stack, engine)
    expectation = manifest(expected=replace(EXPECTED, tokens_per_forward=Figure(3.0, 2.8, 3.2), by_position=()))
    watch, clock = watching(stack, [server.url], expectation=expectation)
    watch.look()
    look = later(watch, clock, [(server, engine)], drafts=1000)
    assert look.level == "fine"
    assert "the export measured 3.00 (2.80 to 3.20)" in words(look.rows[0])
    assert "export --verify" in words(look.rows[0])


# -- our own ledger ----------------------------------------------------------------------------------------------------


def ledger(path: Path, hours: int, *, fall: int, accepted: int = 60, now: float) -> None:
    """Hours of two tags until now; of the second one acceptance falls in the last `fall` hours."""
    with Database(path, LEDGER) as database:
        for ago in range(hours):
            for tag, share in (("a", 80), ("b", accepted if ago < fall else 80)):
                row = (int(now // 3600) - 1 - ago, "target + head", tag, "eagle3", 0, 1000, share * 10 + ago % 3)
                database.execute("INSERT INTO acceptance VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def test_the_past_of_a_ledger_is_read_hour_by_hour_by_tag(stack: ExitStack, tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "ledger.sqlite"
    clock.now += 600
    ledger(path, 80, fall=20, now=clock.now)
    watch, _ = watching(stack, [], ledgers=[path], clock=clock)
    look = watch.look()
    assert look.level == "proved"
    assert "position 1, eagle3, b" in words(look.rows[0])
    assert "--k" in words(look.rows[0])
    windows = look.rows[0].drift
    assert windows is not None
    assert windows["windows"] == 80
    again = watch.look().rows[0].drift
    assert again is not None
    assert again["windows"] == 80, "nothing is read twice"


def test_a_file_that_is_no_ledger_is_a_row_with_a_reason(stack: ExitStack, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no tables" * 100)
    sqlite3.connect(tmp_path / "empty").close()
    for name in ("missing", "text", "empty"):
        watch, _ = watching(stack, [], ledgers=[tmp_path / name])
        look = watch.look()
        assert (look.level, look.exit_code) == ("unreachable", 2)
        assert "--ledger FILE" in words(look.rows[0])


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_nothing_to_watch_and_a_server_twice_are_refused(stack: ExitStack) -> None:
    for urls in ([], ["http://a", "http://a"]):
        with pytest.raises(InvalidOption):
            watching(stack, urls)


def test_an_export_s_manifest_is_what_to_expect(tmp_path: Path) -> None:
    made = manifest()
    (tmp_path / "manifest.json").write_text(made.text())
    for path in (tmp_path, tmp_path / "manifest.json"):
        found = read_expectation(path)
        assert found == made
        assert [key.position for key in baseline_of(found).cells] == [1, 2]


@pytest.mark.parametrize("text", ["", "{}", '{"headstart_export": 2}', '{"headstart_export": 1}'])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InvalidFile, match="manifest"):
        read_expectation(tmp_path)
