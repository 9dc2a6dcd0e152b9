"""What can go wrong, as the playground draws it: each says what is the matter, and goes on by itself where it can."""

from __future__ import annotations

import threading
from typing import Any

import httpx2
import pytest
from support.browser import until
from support.http_server import listening, serving
from support.pages import View, checked
from support.playground import PATIENCE, REFUSED, WRITERS, reading

import headstart as hs
from headstart.serve.api.app import Application
from headstart.serve.api.service import Served
from headstart.serve.options import Limits, ServerOptions
from headstart.serve.worker import ThreadBridge

KEY = "a secret of ours"


@pytest.fixture(scope="module")
def engine() -> hs.Engine:
    return hs.load(max_batch_size=1, pacing="fixed", drafter="bundled")


def test_a_key_is_asked_for_and_never_stands_in_an_address(browser: Any, engine: hs.Engine) -> None:
    with (
        serving(engine, {"api_keys": (KEY,)}, pages=WRITERS) as server,
        reading(browser, server, ready=False) as reader,
    ):
        tab = reader.tab
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.locator("#key").wait_for(timeout=PATIENCE)
        assert tab.locator(".ask .run").is_disabled()
        tab.keyboard.type("wrong")
        tab.keyboard.press("Enter")
        tab.locator("p.wrong", has_text="This key is wrong.").wait_for(timeout=PATIENCE)
        tab.locator("#key").fill(KEY)
        tab.keyboard.press("Enter")
        reader.ready()
        reader.set(tokens=16)
        reader.run()
        assert reader.text()
        assert not any("secret" in url for url in [*asked, tab.url])
        stored = "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])"
        assert KEY not in tab.evaluate(stored), "it is in memory only"
        tab.reload()
        tab.locator("#key").fill(KEY)
        tab.get_by_label("Keep it until this tab is closed").check()
        tab.get_by_role("button", name="Unlock").click()
        reader.ready()
        tab.reload()
        reader.ready()
        assert KEY not in tab.evaluate("JSON.stringify([{ ...localStorage }, document.cookie, location.href])")


def test_a_busy_server_is_asked_again_when_its_countdown_ends(browser: Any, engine: hs.Engine) -> None:
    body = {"prompt": "def f(", "max_tokens": 1900, "ignore_eos": True, "speculation": {"enabled": False}}
    with (
        serving(engine, limits=Limits(max_waiting_requests=1), pages=WRITERS) as server,
        reading(browser, server) as reader,
        httpx2.stream("POST", f"{server.v1}/completions", json={**body, "stream": True}, timeout=60),
    ):
        waiting = httpx2.Client(timeout=60)
        with waiting.stream("POST", f"{server.v1}/completions", json={**body, "stream": True}):
            reader.tab.locator(".ask .run").click()
            reader.tab.locator(".countdown").wait_for(timeout=PATIENCE)
            assert "The server is busy." in reader.tab.locator(".run-trouble").inner_text()
            assert "Runs again by itself in" in reader.tab.locator(".countdown").inner_text()
            reader.tab.get_by_role("button", name="Do not run again").click()
            reader.tab.wait_for_timeout(1500)
            assert "not run again" in reader.tab.locator(".countdown").inner_text()
            reader.tab.locator(".ask .run").click()
            reader.tab.get_by_role("button", name="Do not run again").wait_for(timeout=PATIENCE)
        waiting.close()
        reader.ended("running")  # the queue has room again: it was begun by itself
        reader.tab.keyboard.press("Escape")


def test_loading_is_shown_and_the_page_goes_on_by_itself(browser: Any, engine: hs.Engine) -> None:
    there = threading.Event()

    def source() -> Served:
        there.wait(60)
        return Served(ThreadBridge(engine))

    with (
        listening(Application(source, ServerOptions(), pages=WRITERS)) as url,
        reading(browser, url, ready=False) as reader,
    ):
        reader.tab.get_by_text("The model is being loaded.").first.wait_for(timeout=PATIENCE)
        assert reader.tab.get_by_role("progressbar").is_visible()
        told = reader.tab.locator(".server-notice .soft")
        assert told.inner_text().endswith("s so far")
        before = told.inner_text()
        until(reader.tab, "before => document.querySelector('.server-notice .soft').innerText !== before", before)
        there.set()
        reader.ready()
        assert reader.tab.locator(".server-notice").inner_text() == ""
        reader.set(tokens=16)
        reader.run()


def test_a_server_that_is_gone_and_comes_back(browser: Any, engine: hs.Engine) -> None:
    with serving(engine, pages=WRITERS) as server:
        url, port = server.url, server.port
        context = reading(browser, server)
        reader = context.__enter__()
        reader.set(seed=4, tokens=24)
        reader.run()
        before = reader.tokens()
    reader.tab.get_by_text("The server does not answer.").first.wait_for(timeout=PATIENCE)
    assert reader.tokens() == before, "nothing is lost"
    with serving(engine, pages=WRITERS, port=port) as server:
        assert server.url == url
        reader.ready()
        assert reader.tab.locator(".server-notice").inner_text() == ""
        reader.run()
        assert reader.tokens() == before
        context.__exit__(None, None, None)


def test_an_answer_that_breaks_off_keeps_what_has_come(browser: Any, engine: hs.Engine) -> None:
    with serving(engine, pages=WRITERS, grace_seconds=0.0) as server:
        context = reading(browser, server)
        reader = context.__enter__()
        reader.tab.get_by_label("Guess ahead with the drafter").uncheck()
        reader.set(tokens=1000)

        def cut(route: Any) -> None:
            """Only the first events, and then nothing more."""
            body = route.fetch().body()
            route.fulfill(
                status=200,
                content_type="text/event-stream",
                body=body[: len(body) // 2].rpartition(b"\n\n")[0] + b"\n\n",
            )

        reader.set(tokens=64)
        reader.tab.route("**/v1/completions", cut)
        reader.tab.locator(".ask .run").click()
        reader.ended("failed")
        assert "in the middle of the answer" in reader.tab.locator(".run-trouble").inner_text()
        assert 0 < len(reader.tokens()) < 64
        reader.tab.unroute("**/v1/completions")
        reader.tab.get_by_role("button", name="Run again").click()
        reader.ended("done")
        assert len(reader.tokens()) == 64
        context.__exit__(None, None, None)


def test_what_cannot_be_is_told_beside_its_field(browser: Any, engine: hs.Engine) -> None:
    with serving(engine, pages=WRITERS) as server, reading(browser, server) as reader:
        tab = reader.tab
        prompt = tab.locator(".text-part textarea")
        reader.set(prompt="word " * 3000)
        tab.locator(".ask .run").click()
        tab.locator("p.wrong:visible").wait_for(timeout=PATIENCE)
        assert "the context holds 2048" in tab.locator("p.wrong:visible").inner_text()
        assert prompt.get_attribute("aria-invalid") == "true"
        assert tab.evaluate("document.activeElement.tagName") == "TEXTAREA"
        reader.set(prompt="x = 1", seed="many")
        tab.locator(".ask .run").click()
        assert "A whole number" in tab.locator("p.wrong:visible").inner_text()
        assert tab.evaluate("document.activeElement.id") == "seed"
        reader.set(seed="3", tokens=16)
        reader.run()
        assert tab.locator("p.wrong:visible").count() == 0


def test_a_dropped_drafter_is_told_with_its_reason(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = hs.load(max_batch_size=1, pacing="fixed", drafter="bundled")
    propose, calls = engine.drafter.propose, 0

    def failing(rows: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise RuntimeError("no memory left")
        return propose(rows)

    monkeypatch.setattr(engine.drafter, "propose", failing)
    with serving(engine, pages=WRITERS) as server, reading(browser, server) as reader:
        reader.set(tokens=32)
        reader.run()
        told = reader.tab.locator(".run-trouble").inner_text()
        assert "The drafter was dropped." in told
        assert "no memory left" in told
        origins = [origin for _, origin in reader.tokens()]
        assert origins[-10:] == ["plain"] * 10
        assert set(origins) - {"plain"}


def test_a_server_without_a_drafter_says_so(browser: Any) -> None:
    with serving(hs.load(drafter="none"), pages=WRITERS) as server, reading(browser, server) as reader:
        assert "started without a drafter" in reader.tab.locator(".guessing").inner_text()
        reader.set(tokens=16)
        reader.run()
        assert reader.tab.locator(".run-trouble").inner_text() == ""
        assert reader.tab.get_by_role("button", name="Against plain").count() == 0


@pytest.mark.slow
def test_failures_are_sound_to_look_at(browser: Any, engine: hs.Engine) -> None:
    """The key that is asked for, and a request that cannot be, in a theme and at a width each."""

    def locked(tab: Any) -> None:
        tab.locator("#key").wait_for(timeout=PATIENCE)

    with serving(engine, {"api_keys": (KEY,)}, pages=WRITERS) as server, pytest.raises(AssertionError) as found:
        checked(browser, f"{server.url}/", prepare=locked, allow_origin=server.url, views=[View(360, "dark")])
    wrong = str(found.value).splitlines()[1:]
    assert wrong
    assert [each for each in wrong if REFUSED not in each] == [], (
        "the browser notes the refusal, and nothing else is wrong"
    )
