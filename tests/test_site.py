"""The documentation site that `make docs` has built: nothing comes from elsewhere, and its search finds things."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.browser import opened

SITE = Path(__file__).parents[1] / "site"
PAGES = ("index.html", "concepts/rule.html", "reference/python.html", "reference/command-line.html", "see/index.html")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="make docs has not been run"),
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_its_pages_ask_for_nothing_elsewhere_fit_a_phone_and_the_search_finds_a_word(address: str) -> None:
    wrong: list[str] = []
    with opened() as browser:
        tab = browser.new_page(viewport={"width": 360, "height": 800})
        tab.on(
            "request", lambda asked: wrong.append(asked.url) if not asked.url.startswith((address, "data:")) else None
        )
        tab.on("response", lambda got: wrong.append(f"{got.status} {got.url}") if got.status >= 400 else None)
        tab.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        for page in PAGES:
            tab.goto(address + page)
            width = tab.evaluate("document.documentElement.scrollWidth")
            assert width <= 360, f"{page} is {width} px wide"
        tab.set_viewport_size({"width": 1280, "height": 900})
        tab.get_by_role("textbox", name="Search").fill("residual")
        tab.locator(".md-search-result__link").first.wait_for()
        tab.goto(f"{address}see/index.html")
        tab.get_by_role("link", name="Speculative decoding, taken apart").click()
        tab.get_by_role("heading", level=1, name="Speculative decoding, taken apart").wait_for()
    assert not wrong
