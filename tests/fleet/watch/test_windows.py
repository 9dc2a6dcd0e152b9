"""Windows over any history of looks and restarts: nothing is counted twice, what a look has seen is not lost."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_engines import Engine

from headstart.fleet.watch.counters import Counters, record_of, restored, total
from headstart.fleet.watch.scrape import read
from headstart.fleet.watch.server import Server

HISTORIES = st.lists(st.one_of(st.integers(0, 200), st.just("restart")), min_size=2, max_size=12)


def looks(engine: Engine, history: list[Any]) -> tuple[list[Counters], int, int]:
    """What each look sees; the generated tokens and the restarts of the whole history that a look can know of."""
    found, generated, restarts = [read(engine.page())[0]], 0, 0
    for event in history:
        if event == "restart":
            engine.restart()
            restarts += 1
            before = 0
        else:
            before = engine.generated
            engine.run(event)
        generated += engine.generated - before
        found.append(read(engine.page())[0])
    return found, generated, restarts


@settings(max_examples=25, deadline=None)
@given(HISTORIES, st.booleans())
def test_the_windows_add_up_to_what_was_done_over_all_restarts(history: list[Any], told: bool) -> None:
    engine = Engine([0.9, 0.7, 0.5])
    engine.run(50)
    seen, generated, restarts = looks(engine, history)
    if not told:  # a server that does not say when it began: a restart shows by counters that fell
        seen = [restored(Counters, {**record_of(each), "started": None}) for each in seen]
    windows = [later - earlier for earlier, later in pairwise(seen)]
    whole = total(windows)
    assert whole is not None
    assert whole.generated == generated
    assert sum(whole.accepted_per_position) == whole.accepted
    if told:
        assert whole.restarts == restarts


@settings(max_examples=25, deadline=None)
@given(HISTORIES)
def test_looking_less_often_loses_only_what_a_restart_has_thrown_away(history: list[Any]) -> None:
    engine = Engine([0.9, 0.7, 0.5])
    seen, generated, restarts = looks(engine, history)
    window = seen[-1] - seen[0]
    assert window.generated == generated if not restarts else window.generated <= generated
    assert window.restarts == min(restarts, 1)


@settings(max_examples=25, deadline=None)
@given(HISTORIES)
def test_a_record_is_the_same_counters_again(history: list[Any]) -> None:
    engine = Engine([0.9, 0.7])
    for counters in looks(engine, history)[0]:
        assert restored(Counters, record_of(counters)) == counters


def test_no_window_has_a_negative_count() -> None:
    engine = Engine([0.9])
    engine.run(100)
    (before,) = read(engine.page())
    engine.restart()
    engine.run(3)
    window = read(engine.page())[0] - before
    assert all(value >= 0 for each in fields(window) if isinstance(value := getattr(window, each.name), int))


def test_a_server_slides_its_window_along() -> None:
    engine, server = Engine([0.9]), Server("one")
    for now in range(10):
        engine.run(10)
        server.observe(read(engine.page()), now * 10.0, window=30.0)
    engines, seconds = server.shown()
    assert seconds == 30.0
    assert next(iter(engines.values())).drafts == 30


def test_an_address_that_leads_to_two_engines_in_turn_is_noticed() -> None:
    one, other, server = Engine([0.9]), Engine([0.9], started=1.6e9), Server("both")
    for now, engine in enumerate((one, other, one, other)):
        engine.run(10)
        piece = server.observe(read(engine.page()), float(now), window=30.0)
    assert server.several
    assert piece is None, "the difference of two engines says nothing"
