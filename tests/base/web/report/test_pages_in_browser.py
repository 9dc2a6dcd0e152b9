"""A page with every kind of block, looked at in a browser: desktop and phone, light and dark, on paper, no network."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import EITHER, LOOKS, check_page
from support.charts import EVIL, every_chart

from headstart.base.web.report import charts
from headstart.base.web.report.charts import Mark
from headstart.base.web.report.page import Page

CATEGORIES = ["writing", "coding", "multi-turn conversation", "retrieval-augmented generation"]
PROMPTS = "headstart bench --target bundled --drafter auto --prompts a-file-with-a-long-name.jsonl --html page.html"


def everything() -> Page:
    rng = np.random.default_rng(0)
    page = Page("Everything that a page can hold", "with numbers made up for the look of it")
    page.verdict("good", "1.62 times as fast as plain decoding", "Interval 1.55 to 1.70, 24 prompts.")
    page.verdict("bad", "Slower than plain decoding")
    page.verdict("unsure", "Not enough samples", "Ask for more.")
    page.verdict("info", "No draft was given")
    page.heading("Words and numbers")
    page.text("Plain and speculative decoding on the same prompts, in turn. " * 5)
    page.facts({"target": "bundled", "K": "5", "c": "0.12", "path": "/models/" + "a-long-name-without-any-space/" * 4})
    columns = ["category", "speedup", "low", "high", *(f"acceptance at position {i}" for i in range(1, 13))]
    page.table(columns, [[name, 1.6, 1.5, 1.7, *rng.uniform(size=12)] for name in CATEGORIES], caption="By category")
    page.items(["one reason", "another-" * 40])
    page.code(PROMPTS)
    page.heading("Plots")
    for figure in figures(rng):
        page.figure(figure, caption="What the plot shows, in a sentence.", alt="what the plot shows")
    return page


def figures(rng: np.random.Generator) -> list[Any]:
    ks = list(range(1, 9))
    rising = [1.2, 1.4, 1.5, 1.6, 1.62, 1.55, 1.5, 1.4]
    alphas = np.linspace(0.02, 0.98, 25)
    table = (1 - alphas[:, None] ** (np.arange(13) + 1)) / (1 - alphas[:, None]) / (1 + 0.12 * np.arange(13))
    return [
        charts.bars([str(k) for k in ks], {"all": np.linspace(0.9, 0.5, 8).tolist()}, x="position", y="acceptance"),
        charts.lines(
            {"measured": (ks, rising), "predicted": (ks, np.asarray(rising) + 0.03)},
            x="K",
            y="speedup",
            bands={"measured": (np.asarray(rising) - 0.1, np.asarray(rising) + 0.1)},
            dashed={"predicted"},
            reference=1.0,
            marks=[Mark(8, 1.4, "the far end, in many words for its place"), Mark(1, 1.2, "the near end")],
        ),
        charts.lines({f"drafter number {i}": ([0, 1], [1, 1 + i]) for i in range(9)}, x="alpha", y="speedup"),
        charts.heatmap(
            list(range(13)),
            alphas.tolist(),
            table,
            x="K",
            y="alpha",
            z="speedup",
            middle=1.0,
            marks=[Mark(5, 0.74, "you are here: 1.62"), Mark(12, 0.02, "a corner"), Mark(0, 0.98, "the other corner")],
        ),
        charts.heatmap([1, 2, 3], [1, 2], [[1, 2, 3], [2, 3, 4]], x="a", y="b", z="c"),
        charts.distributions({"plain": rng.lognormal(3, 0.1, 999), "spec": rng.lognormal(2, 0.9, 999)}, x="gap (ms)"),
        charts.distributions({"plain": rng.lognormal(3, 0.1, 99)}, x="gap (ms)", log=True),
        charts.scatter(
            {c: (rng.uniform(2, 3, 9), rng.uniform(2, 6, 9), [f"{c} {i}" for i in range(9)]) for c in CATEGORIES},
            x="plain (tokens/s)",
            y="speculative (tokens/s)",
            diagonal=True,
        ),
        charts.stacked(["plain", "speculative"], {"draft": [0, 20], "verify": [90, 50], "rest": [5, 5]}, y="ms"),
        charts.bars(
            CATEGORIES,
            {"draft-model": [1.6, 1.7, 1.5, 1.3], "suffix": [1.1, 1.3, 1.2, 1.8]},
            low_high={"suffix": ([1.0, 1.2, 1.1, 1.6], [1.2, 1.4, 1.3, 2.0])},
            y="speedup",
            reference=1.0,
        ),
        charts.bars(
            ["1", "2"],
            {"a": [2.0, 1.5], "b": [1.0, 1.1]},
            y="speedup",
            low_high={"a": ([0.1, 1.0], [48.2, 1.8]), "b": ([0.5, 0.5], [9.0, 1.2])},
        ),
        charts.bars(CATEGORIES, {"a": [2.0, 1.5, 1.0, 1.1]}, y="s", low_high={"a": ([0.1] * 4, [99.0, 1.8, 9.0, 2.0])}),
        charts.stacked(["a", "b"], {"draft": [1.0, 2.0], "verify": [2.0, 1.0]}, y="seconds"),
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything().write(tmp_path_factory.mktemp("pages") / "everything.html")


@pytest.mark.parametrize(
    "looks", [pytest.param(EITHER, id="either"), pytest.param(LOOKS, id="all", marks=pytest.mark.slow)]
)
def test_a_page_with_every_kind_of_block_works_at_every_size_and_scheme(browser: Any, page: Path, looks: Any) -> None:
    seen = check_page(browser, page, plots=13, looks=looks)
    assert tuple((look.size, look.scheme) for look in seen) == looks
    inks = {look.scheme: {ink for plot in look.measured["plots"] for ink in plot["inks"]} for look in seen}
    assert inks == {"light": {"rgb(59, 64, 72)"}, "dark": {"rgb(201, 206, 214)"}}


def test_a_page_without_figures_works(browser: Any, tmp_path: Path) -> None:
    page = Page("Words alone")
    page.verdict("info", "nothing was measured")
    page.table(["a" * 60, "b" * 60, "c" * 60], [["x" * 200, 1, 2]])
    check_page(browser, page.write(tmp_path / "words.html"), plots=0, looks=EITHER)


def test_markup_in_anything_a_user_wrote_is_shown_and_never_run(browser: Any, tmp_path: Path) -> None:
    page = Page(EVIL, EVIL)
    page.verdict("bad", EVIL, EVIL)
    page.heading(EVIL)
    page.text(EVIL)
    page.facts({EVIL: EVIL})
    page.table([EVIL, "n"], [[EVIL, 1]], caption=EVIL)
    page.items([EVIL])
    page.code(EVIL)
    charted = every_chart(EVIL)
    for figure in charted:
        page.figure(figure, caption=EVIL, alt=EVIL)
    path = page.write(tmp_path / "evil.html")
    tab = browser.new_page(viewport={"width": 1400, "height": 900})
    alarms: list[str] = []
    tab.on("dialog", lambda dialog: (alarms.append(dialog.message), dialog.dismiss()))
    tab.on("pageerror", lambda error: alarms.append(str(error)))
    tab.on("request", lambda request: alarms.append(request.url) if not request.url.startswith("file:") else None)
    tab.goto(path.as_uri())
    assert tab.locator(".plot.drawn").count() == len(charted)
    assert alarms == []
    assert tab.title() == EVIL.strip()
    assert tab.locator("main img").count() == 0
    # no script element but the page's own came to be, and the words are there to be read
    own = "script:not([type]), script[type='application/json']"
    assert tab.locator("script").count() == tab.locator(own).count() == 3 + len(charted)
    assert EVIL.replace("\u2028", " ")[:40] in tab.locator("h1").inner_text()
    title = tab.locator(".plot .xtitle").first.text_content()  # in lines: the spaces between them are gone
    assert title.replace(" ", "").startswith("</script><script>alert(1)</script><imgsrc=xonerror=alert(2)>")


def wait_for(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Polled from here: the page's policy forbids a browser to evaluate a text as code later."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False


def test_a_plot_follows_the_scheme_and_the_width_and_prints_dark_on_white(browser: Any, page: Path) -> None:
    state = """() => ({
      ink: getComputedStyle(document.querySelector('.plot .xtick text')).fill,
      widths: [...document.querySelectorAll('svg.main-svg')].map(svg => svg.getBoundingClientRect().width),
    })"""
    tab = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="dark")
    tab.goto(page.as_uri())
    assert tab.locator(".plot.drawn").count() == 13
    before = tab.evaluate(state)
    assert before["ink"] == "rgb(201, 206, 214)"
    tab.evaluate(f"window.addEventListener('beforeprint', () => {{ window.printed = ({state})(); }})")
    tab.pdf(format="A4")
    printed = tab.evaluate("window.printed")
    assert printed["ink"] == "rgb(59, 64, 72)"
    assert max(printed["widths"]) <= 660
    assert tab.evaluate(state) == before
    tab.emulate_media(color_scheme="light")
    assert wait_for(lambda: tab.evaluate(state)["ink"] == "rgb(59, 64, 72)")
    tab.set_viewport_size({"width": 500, "height": 900})
    assert wait_for(lambda: max(tab.evaluate(state)["widths"]) <= 500)


def test_hovering_shows_the_words_as_they_were_written(browser: Any, tmp_path: Path) -> None:
    page = Page("hover")
    series = "<b>100%{x}</b> & more"
    prompt = "<img src=x onerror=alert(1)> %{y}"
    page.figure(charts.scatter({series: ([1], [2], [prompt])}, x="a", y="b"), caption="a point", alt="a point")
    path = page.write(tmp_path / "hover.html")
    tab = browser.new_page(viewport={"width": 1400, "height": 900})
    tab.goto(path.as_uri())
    box = tab.locator(".scatterlayer .point").bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown = tab.locator(".hoverlayer .hovertext")
    shown.wait_for()
    words = shown.text_content()
    assert prompt in words
    assert "a 1b 2" in words
    assert series in words
    assert tab.locator("main img").count() == 0


def test_without_scripts_the_numbers_are_still_there(browser: Any, page: Path) -> None:
    tab = browser.new_context(java_script_enabled=False).new_page()
    tab.goto(page.as_uri())
    assert tab.locator(".plot:visible").count() == 0
    assert tab.locator("figcaption:visible").count() == 13
    tab.locator("summary").nth(1).click()
    assert tab.locator("figure").nth(1).locator("td:visible").first.inner_text() == "measured"


def test_the_check_notices_what_is_wrong(browser: Any, tmp_path: Path) -> None:
    wrong = {
        "wide": ("<div style='width: 2000px'>x</div>", "2008 px wide"),
        "remote": ("<img src='https://example.invalid/x.png'>", "example.invalid|ERR_"),
        "error": ("<script>nothing.here()</script>", "nothing is not defined"),
        "empty": ("<div class='plot drawn' role='img' aria-label='none'></div>", "was not drawn"),
    }
    for name, (body, complaint) in wrong.items():
        path = tmp_path / f"{name}.html"
        path.write_text(f"<!doctype html><meta name=viewport content='width=device-width'><body>{body}")
        with pytest.raises(AssertionError, match=complaint):
            check_page(browser, path)
