"""Where findings go: a webhook, Prometheus, and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.charts import drawn
from support.fake_engines import Engine, fake_server
from support.pages import EITHER, VIEWS, checked

from headstart.base.errors import InvalidOption
from headstart.fleet.watch.counters import Counters
from headstart.fleet.watch.look import Finding, Look, Row
from headstart.fleet.watch.outlets import PREFIX, Exporter, Webhook
from headstart.fleet.watch.page import watch_page
from headstart.fleet.watch.scrape import read
from headstart.fleet.watch.store import Window

DRIFT = {
    "level": "suspected", "learning": False, "windows": 99, "window_seconds": 300.0,
    "evidence": {"suspected": 20_000.0, "proved": 3.0}, "alarm_at": 10_000.0,
    "drop": {"value": 0.04, "low": 0.02, "high": 0.06},
}  # fmt: skip


def look() -> Look:
    rows = []
    for number, name in enumerate(("http://one:8000", "http://two:8000")):
        engine = Engine([0.9, 0.8, 0.7], seed=number)
        engine.run(1000)
        (counters,) = read(engine.page())
        findings = (Finding("suspected", "acceptance has fallen <b>&", "retrain"),) if number else ()
        rows.append(Row(name, {"0": counters}, 60.0, number, findings, DRIFT))
    rows.append(Row("http://gone:8000", {}, findings=(Finding("unreachable", "no connection"),)))
    return Look(1.8e9, tuple(rows))


CHANGES = {"http://two:8000": ("fine", "suspected")}


# -- webhook -----------------------------------------------------------------------------------------------------------


def test_a_change_is_posted_with_words_that_a_chat_shows() -> None:
    with fake_server() as server:
        hook = Webhook(server.url + "/hook/secret")
        hook.send(look(), {})
        hook.send(look(), CHANGES)
        hook.close()
    (body,) = server.posts
    assert body["changes"][0]["findings"][0]["advice"] == "retrain"
    assert body["text"].startswith("http://two:8000: fine -> suspected\n  acceptance has fallen")
    assert hook.failures() == ()


def test_a_webhook_that_fails_at_first_is_tried_again() -> None:
    with fake_server() as server:
        server.failing = 2
        hook = Webhook(server.url, pause=0.0)
        hook.send(look(), CHANGES)
        hook.close()
    assert len(server.posts) == 1
    assert hook.failures() == ()


@pytest.mark.parametrize("status", [403, 500, None])
def test_a_webhook_that_cannot_be_told_is_a_message_without_its_secret(status: int | None) -> None:
    with fake_server() as server:
        server.status = status or 200
        hook = Webhook((server.url if status else "http://127.0.0.1:1") + "/hook/secret", pause=0.0)
        hook.send(look(), CHANGES)
        hook.close()
    (words,) = hook.failures()
    assert "got nothing" in words
    assert "secret" not in words
    assert hook.failures() == (), "each is said once"


@pytest.mark.parametrize("url", ["nowhere", "ftp://x/y", "http://"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidOption):
        Webhook(url)


# -- Prometheus --------------------------------------------------------------------------------------------------------


def values(text: str) -> dict[tuple[str, frozenset[str]], float]:
    return {
        (sample.name.removeprefix(PREFIX), frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_its_own_figures_are_on_a_port_and_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "watch.prom"
    port, file = Exporter("0"), Exporter(str(path))
    try:
        for exporter in (port, file):
            exporter.show(look())
        found = values(httpx2.get(f"http://127.0.0.1:{port.port}/metrics").text)
        window = look().rows[0].window
        assert window is not None
        name = "http://one:8000"
        assert found["tokens_per_forward", frozenset({name, "vllm", "m"})] == window.tokens_per_forward
        assert found["acceptance", frozenset({name, "2"})] == window.acceptance_at(1)
        assert found["level", frozenset({"http://two:8000"})] == 1
        assert found["level", frozenset({"http://gone:8000"})] == 5
        assert found["drift_evidence", frozenset({name, "proved"})] == 3.0
        assert values(path.read_text()) == found
    finally:
        port.close()
        file.close()


def test_a_port_that_is_taken_and_a_file_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with fake_server() as server, pytest.raises(InvalidOption, match="--prometheus"):
        Exporter(server.url.rpartition(":")[2])
    with pytest.raises(InvalidOption):
        Exporter("99999")
    with pytest.raises(InvalidOption, match="cannot write"):
        Exporter(str(tmp_path))


# -- the page ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "views", [pytest.param(EITHER, id="either"), pytest.param(VIEWS, id="all", marks=pytest.mark.slow)]
)
def test_the_page_in_a_browser(browser: Any, tmp_path: Path, views: Any) -> None:
    history = {}
    for number, row in enumerate(look().rows[:2]):
        engine, windows = Engine([0.9, 0.8, 0.7], seed=number), []
        (before,) = read(engine.page())
        for minute in range(20):
            if minute % 7:  # and idle now and then
                engine.run(200)
            (after,) = read(engine.page())
            windows.append(Window(1.8e9 + 60 * minute, 1.8e9 + 60 * minute + 60, after - before))
            before = after
        history[row.server] = windows
    path = watch_page(look(), history).write(tmp_path / "watch.html")
    text = path.read_text()
    assert "A server does not answer" in text
    assert "acceptance has fallen &lt;b&gt;&amp;" in text
    checked(browser, path, prepare=drawn(4), views=views)


def test_a_page_of_one_look_has_no_history(tmp_path: Path) -> None:
    text = watch_page(look(), {name: [] for name in ("a", "b")}).html()
    assert "Over time" not in text
    assert "two:8000" in text
    assert "http://two" not in text


def test_a_position_with_few_guesses_judged_is_left_out() -> None:
    counts = Counters(
        "headstart",
        counts_drafts=True,
        drafts=100,
        drafted=200,
        accepted_per_position=(3, 2),
        tested_per_position=(100, 3),
    )
    text = watch_page(Look(1.8e9, (Row("http://one:8000/", {"0": counts}, 60.0),)), {}).html()
    assert "one:8000: 3% at position 1, 3% at position 1." in text
