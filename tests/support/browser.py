"""A real browser for tests. The fixture `browser`, which a module's tests share, needs playwright and
/usr/bin/chromium; without them a test that asks for it is skipped, and the reason is said.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")


@contextmanager
def opened() -> Iterator[Any]:
    """A browser without a network; the test is skipped where there is none.

    A process has only one, which is kept for the next who asks: to start it takes longer than most tests. What was
    opened in it is closed.
    """
    reason = why_no_browser()
    if reason:
        pytest.skip(reason)
    browser = _launched()
    try:
        yield browser
    finally:
        for context in browser.contexts:
            context.close()


_LAUNCHED = ExitStack()


@functools.cache
def _launched() -> Any:
    from playwright.sync_api import sync_playwright

    playwright = _LAUNCHED.enter_context(sync_playwright())
    browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
    _LAUNCHED.callback(browser.close)
    for method in ("new_context", "new_page"):
        setattr(browser, method, _patient(getattr(browser, method)))
    return browser


def _patient(make: Callable[..., Any]) -> Callable[..., Any]:
    """What is made waits three minutes for a page: playwright's 30 seconds pass on a machine that is busy."""

    def made(**options: Any) -> Any:
        found = make(**options)
        found.set_default_timeout(180_000)
        return found

    return made


def close_browser() -> None:
    """End the one that was kept, if there is one. Its thread has an event loop, and can run no other beside it."""
    _LAUNCHED.close()
    _launched.cache_clear()


@functools.cache
def looks_at_pages(test_file: Path) -> bool:
    """Whether the tests of a file may want a browser."""
    text = test_file.read_text(encoding="utf-8")
    return "browser" in text or any(f"support.{name}" in text for name in ("chapters", "pages", "playground", "twins"))


def until(page: Any, expression: str, argument: Any = None, *, seconds: float = 60.0) -> None:
    """Wait until a page's expression is true. Playwright's own way to wait would run a string as a script in the page,
    which the pages' content policy forbids."""
    late = time.monotonic() + seconds
    while not page.evaluate(expression, argument):
        assert time.monotonic() < late, f"{expression} did not become true within {seconds:g} s"
        page.wait_for_timeout(20)


@functools.cache
def why_no_browser() -> str:
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "needs playwright, which is not installed"
    return "" if CHROMIUM.exists() else f"needs a browser at {CHROMIUM}"
