"""Pages looked at in a real browser: nothing fetched, nothing reported as an error, nothing wider than the window.

`check_page(browser, path)` is for every page that the library writes. The fixture `browser`, which a module's tests
share, needs playwright and /usr/bin/chromium; without them a test that asks for it is skipped, and the reason is said.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
SIZES = {"desktop": (1400, 900), "phone": (360, 740)}
SCHEMES = ("light", "dark")
LOOKS = tuple((size, scheme) for size in SIZES for scheme in SCHEMES)
EITHER = (("desktop", "dark"), ("phone", "light"))
"""Each size and each scheme once: for the fast suite, where a slow test has all."""

MEASURE = """() => ({
  inner: window.innerWidth,
  scroll: document.documentElement.scrollWidth,
  plots: [...document.querySelectorAll('.plot')].map(plot => {
    const svg = plot.querySelector('svg.main-svg');
    const box = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll('svg text')]
      .filter(text => text.textContent.trim() && text.checkVisibility())
      .map(text => ({text: text.textContent, size: parseFloat(getComputedStyle(text).fontSize),
                     box: text.getBoundingClientRect()}))
      .filter(text => text.box.width > 0);
    return {
      name: plot.getAttribute('aria-label'), role: plot.getAttribute('role'),
      left: box.left, right: box.right, top: box.top, bottom: box.bottom, drawn: plot.classList.contains('drawn'),
      svg: svg ? [svg.getBoundingClientRect().left, svg.getBoundingClientRect().right] : null,
      traces: plot.querySelectorAll('.trace, .hm, .contour, .bars .point').length,
      plotHeight: plot.querySelector('.nsewdrag')?.getBoundingClientRect().height ?? 0,
      texts: texts.map(t => [t.text, t.size, t.box.left, t.box.right, t.box.top, t.box.bottom]),
      inks: [...plot.querySelectorAll('.xtick text, .ytick text')].map(text => getComputedStyle(text).fill),
    };
  }),
})"""


@dataclass(frozen=True, slots=True)
class Seen:
    """A page as a browser shows it at one size and scheme. errors: of its console; requests: URLs it asked for."""

    size: str
    scheme: str
    errors: tuple[str, ...]
    requests: tuple[str, ...]
    measured: dict[str, Any]


def check_page(
    browser: Any,
    path: Path,
    *,
    plots: int | None = None,
    looks: Sequence[tuple[str, str]] = LOOKS,
    shots: Path | None = None,
) -> list[Seen]:
    """Assert that a page works at both sizes and in both schemes; returns what was seen.

    plots: how many it must show. looks: the pairs of size and scheme. shots: a folder for pictures of the whole page,
    one per look.
    """
    seen = []
    for size, scheme in looks:
        look = _look(browser, path, size, scheme, shots)
        _assert_sound(look, plots)
        seen.append(look)
    return seen


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
    return browser


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


def _look(browser: Any, path: Path, size: str, scheme: str, shots: Path | None) -> Seen:
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, offline=True, is_mobile=size == "phone"
    )
    errors: list[str] = []
    requests: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: (errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.resolve().as_uri())
    page.locator(".plot:not(.drawn)").first.wait_for(state="detached")
    measured = page.evaluate(MEASURE)
    if shots:
        shots.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=shots / f"{path.stem}-{size}-{scheme}.png", full_page=True)
    context.close()
    return Seen(size, scheme, tuple(errors), tuple(requests), measured)


def _assert_sound(seen: Seen, plots: int | None) -> None:
    where = f"{seen.size}, {seen.scheme}"
    assert not seen.errors, f"{where}: {seen.errors}"
    outside = [url[:80] for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert not outside, f"{where}: the page asked for {outside}"
    inner = seen.measured["inner"]
    assert inner == SIZES[seen.size][0], f"{where}: the page was laid out {inner} px wide"
    assert seen.measured["scroll"] <= inner, f"{where}: the page is {seen.measured['scroll']} px wide"
    assert plots is None or len(seen.measured["plots"]) == plots
    for plot in seen.measured["plots"]:
        _assert_drawn(plot, inner, where)


def _assert_drawn(plot: dict[str, Any], inner: float, where: str) -> None:
    about = f"{where}: {plot['name']!r}"
    assert plot["role"] == "img", about
    assert plot["name"], f"{where}: a plot without a description"
    assert plot["svg"], f"{about} was not drawn"
    assert plot["traces"] > 0, f"{about} shows nothing"
    assert plot["svg"][0] >= 0, about
    assert plot["svg"][1] <= inner + 0.5, f"{about} ends at {plot['svg'][1]}"
    assert plot["plotHeight"] >= 120, f"{about} is squeezed to {plot['plotHeight']} px"
    for text, size, left, right, top, bottom in plot["texts"]:
        assert size >= 11, f"{about}: {text!r} is {size} px high"
        inside = left >= plot["left"] - 1 and right <= plot["right"] + 1
        assert inside, f"{about}: {text!r} is cut: {left} to {right} of {plot['left']} to {plot['right']}"
        assert top >= plot["top"] - 1, f"{about}: {text!r} is cut above"
        assert bottom <= plot["bottom"] + 1, f"{about}: {text!r} is cut below"
