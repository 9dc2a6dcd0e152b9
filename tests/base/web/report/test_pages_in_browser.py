"""A page with every kind of block, looked at in a browser: desktop and phone, light and dark, on paper, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import until
from support.charts import EVIL, drawn, every_chart
from support.pages import EITHER, VIEWS, checked

from headstart.base.web.report import charts
from headstart.base.web.report.charts import Mark
from headstart.base.web.report.page import Page
from headstart.base.web.report.tables import Table

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
    minutes = np.arange(300) / 20
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
        charts.colour_map(
            list(range(13)),
            alphas.tolist(),
            table,
            x="K",
            y="alpha",
            z="speedup",
            middle=1.0,
            marks=[Mark(5, 0.74, "you are here: 1.62"), Mark(12, 0.02, "a corner"), Mark(0, 0.98, "the other corner")],
        ),
        charts.colour_map([1, 2, 3], [1, 2], [[1, 2, 3], [2, 3, 4]], x="a", y="b", z="c"),
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
        charts.lanes(
            {"target": [(0, 4, "verify", "round 1"), (9, 13, "verify", "round 2")], "drafter": [(4, 9, "levels", "5")]},
            unit="ms",
            kinds={"verify": "verify", "levels": "draft"},
            table=Table.of(["from", "to"], [[0, 4], [9, 13], [4, 9]]),
        ),
        charts.lines({"a": (minutes, np.sin(minutes)), "b": (minutes, np.cos(minutes))}, x="minutes", y="tokens/s"),
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything().write(tmp_path_factory.mktemp("pages") / "everything.html")


COUNT = 14


@pytest.mark.parametrize(
    "views", [pytest.param(EITHER, id="either"), pytest.param(VIEWS, id="all", marks=pytest.mark.slow)]
)
def test_a_page_with_every_kind_of_block_is_sound_in_every_view(browser: Any, page: Path, views: Any) -> None:
    advice = {line for seen in checked(browser, page, prepare=drawn(COUNT), views=views) for line in seen.advice}
    assert not advice


def test_a_page_without_charts_is_sound(browser: Any, tmp_path: Path) -> None:
    page = Page("Words alone")
    page.verdict("info", "nothing was measured")
    page.table(["a" * 60, "b" * 60, "c" * 60], [["x" * 200, 1, 2]])
    checked(browser, page.write(tmp_path / "words.html"), prepare=drawn(0), views=EITHER)


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
    drawn(len(charted))(tab)
    assert alarms == []
    assert tab.title() == EVIL.strip()
    assert tab.locator("main img, .plot b script").count() == 0
    assert EVIL.replace("\u2028", " ")[:40] in tab.locator("h1").inner_text()
    assert tab.locator(".plot-label").first.text_content() == EVIL


def opened_page(browser: Any, page: Path, count: int = COUNT, **options: Any) -> Any:
    tab = browser.new_page(viewport={"width": 1400, "height": 900}, **options)
    tab.goto(page.as_uri())
    drawn(count)(tab)
    return tab


def test_charts_follow_the_theme_and_the_width(browser: Any, page: Path) -> None:
    ink = "() => getComputedStyle(document.querySelector('.plot svg text')).fill"
    tab = opened_page(browser, page, color_scheme="dark")
    assert tab.evaluate(ink) == "rgb(168, 176, 187)"
    tab.get_by_label("Colours").select_option("Light")
    assert tab.evaluate(ink) == "rgb(86, 93, 104)"
    tab.set_viewport_size({"width": 500, "height": 900})
    until(
        tab, "[...document.querySelectorAll('.sized svg')].every((each) => each.getBoundingClientRect().width <= 470)"
    )


def test_pointing_shows_the_words_as_they_were_written_and_the_arrow_keys_do_too(browser: Any, tmp_path: Path) -> None:
    page = Page("hover")
    series = ["<b>100%{x}</b> & more", "other"]
    prompt = "<img src=x onerror=alert(1)> %{y}"
    chart = charts.scatter({series[0]: ([1], [2], [prompt]), series[1]: ([3], [4], ["last"])}, x="a", y="b")
    page.figure(chart, caption="points", alt="points")
    tab = opened_page(browser, page.write(tmp_path / "hover.html"), 1)
    tip = tab.locator(".hover-tip")
    assert not tip.is_visible()
    box = tab.locator(".sized svg .dot").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert tip.locator("b, div").all_text_contents() == [prompt, series[0], "a 1", "b 2"]
    assert tab.locator("main img").count() == 0
    tab.mouse.move(2, 2)
    assert not tip.is_visible()
    tab.locator(".plot").focus()
    tab.keyboard.press("End")
    assert tip.locator("b, div").all_text_contents() == ["last", series[1], "a 3", "b 4"]
    until(tab, "document.querySelector('[aria-live]').textContent === 'last, other, a 3, b 4'")
    tab.keyboard.press("ArrowLeft")
    assert tip.locator("b").text_content() == prompt
    tab.keyboard.press("Escape")
    assert not tip.is_visible()


def test_a_long_chart_can_be_looked_at_in_parts(browser: Any, page: Path) -> None:
    tab = opened_page(browser, page)
    chart = tab.locator("figure").last
    ticks = "each => [...each.querySelectorAll('.sized text[text-anchor=middle]')].map((tick) => tick.textContent)"
    assert chart.evaluate(ticks) == ["0", "5", "10", "15"]
    chart.get_by_label("Closer", exact=True).click()
    closer = chart.evaluate(ticks)
    assert [closer[0], closer[-1]] == ["4", "10"]
    chart.get_by_label("Later part").click()
    assert chart.evaluate(ticks)[-1] == "14"
    assert chart.get_by_label("Later part").is_disabled()
    chart.get_by_label("The whole chart").click()
    assert chart.evaluate(ticks) == ["0", "5", "10", "15"]
    box = chart.locator(".sized").bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 100)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 100)
    tab.mouse.up()
    seen = [float(tick) for tick in chart.evaluate(ticks)]
    assert 6 <= min(seen) <= 8
    assert 10 <= max(seen) <= 12


@pytest.mark.parametrize(("least", "most"), [(0.8, 30), (1e-6, 1e8), (1.2, 1.3), (3, 8), (10, 10.4), (1, 1000)])
def test_a_logarithmic_axis_has_a_few_round_ticks(browser: Any, tmp_path: Path, least: float, most: float) -> None:
    page = Page("ticks")
    page.figure(charts.distributions({"a": [least, most]}, x="ms", log=True), caption="", alt="a")
    tab = opened_page(browser, page.write(tmp_path / "ticks.html"), 1)
    ticks = tab.locator(".sized text[text-anchor=middle]").all_text_contents()
    numbers = [float(tick.replace(",", "")) for tick in ticks]
    assert 3 <= len(numbers) <= 11
    assert numbers == sorted(numbers)
    assert numbers[0] >= least * 0.9
    assert numbers[-1] <= most * 1.1


def test_an_interval_that_would_dwarf_the_bars_is_cut_and_its_end_is_said(browser: Any, tmp_path: Path) -> None:
    page = Page("bars")
    long = charts.bars(["a", "b"], {"x": [2.0, 1.0]}, y="y", low_high={"x": ([1, 0.5], [121.4, 1.8])}, reference=1.0)
    page.figure(long, caption="", alt="long")
    tab = opened_page(browser, page.write(tmp_path / "bars.html"), 1)
    first, second = (each.bounding_box()["width"] for each in tab.locator(".bar-fill").all())
    track = tab.locator(".bar-track").first.bounding_box()["width"]
    assert first / second == pytest.approx(2, rel=0.05)
    assert first / track == pytest.approx(1 / 2.5, rel=0.05)
    assert tab.locator(".bar-whisker.cut").count() == 1
    assert "1 to 121" in tab.locator(".bar-value").first.inner_text()
    assert tab.locator(".bar-rule").count() == 2


def test_a_map_has_its_border_where_the_values_turn(browser: Any, tmp_path: Path) -> None:
    page = Page("map")
    # a column that is 1 everywhere is no place where anything turns
    values = [[1.0, 0.5, 0.5], [1.0, 0.9, 0.7], [1.0, 1.5, 1.1]]
    page.figure(charts.colour_map([0, 1, 2], [1, 2, 3], values, x="x", y="y", z="z", middle=1.0), caption="", alt="map")
    tab = opened_page(browser, page.write(tmp_path / "map.html"), 1)
    (border,) = tab.locator(".map-border").all()
    assert len(border.get_attribute("points").split()) == 2
    assert tab.locator(".map-cell.faster").count() == 2
    assert tab.locator(".map-cell.slower[fill-opacity='0.000']").count() == 3
    assert tab.locator(".map-cell.slower").count() == 7


def test_without_scripts_the_numbers_are_still_there(browser: Any, page: Path) -> None:
    tab = browser.new_context(java_script_enabled=False).new_page()
    tab.goto(page.as_uri())
    assert tab.locator(".plot:visible").count() == 0
    assert tab.locator("figcaption:visible").count() == COUNT
    tab.locator("summary").nth(1).click()
    assert tab.locator("figure").nth(1).locator("td:visible").first.inner_text() == "measured"


def test_the_look_at_charts_notices_what_is_wrong(browser: Any, page: Path) -> None:
    tab = opened_page(browser, page)
    with pytest.raises(AssertionError, match="14 charts, not 13"):
        drawn(13)(tab)
    tab.evaluate("document.querySelector('.plot .bars').remove()")
    with pytest.raises(AssertionError, match="was not drawn; shows nothing"):
        drawn(COUNT)(tab)
    tab.evaluate("document.querySelectorAll('.plot svg text')[3].setAttribute('x', -500)")
    with pytest.raises(AssertionError, match="is cut"):
        drawn(COUNT)(tab)
