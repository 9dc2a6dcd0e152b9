"""Bars and charts do what they are asked: they show the values, follow `set`, and move by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import opened

from headstart.base.web import build

SOURCE = """
import { h } from "hs/base/dom";
import { gantt, heatGrid, histogram, lineChart } from "hs/figures/charts";
import { distributionBars } from "hs/figures/distributions";
window.heard = [];
const hear = (...what) => window.heard.push(what);
window.parts = {
  still: distributionBars({ words: ["a", "b"], p: [0.5, 0.5], q: [0.2, 0.8], height: 100 }),
  moved: distributionBars({ words: ["a", "b"], p: [0.5, 0.5], q: [0.2, 0.8], r: [1, 0], onDrag: hear }),
  grid: heatGrid({ rows: ["x", "y"], columns: [1, 2, 3], value: (r, c) => 10 * r + c, ring: [0, 0], onPick: hear,
    format: (n) => `${n}!`, sign: (r, c) => (c === 2 ? "★" : null) }),
  line: lineChart({ x: { label: "K", min: 0, max: 4 }, y: { label: "gain", min: 0, max: 2 }, series: [
    { name: "one", points: [[0, 0], [4, 2]] }, { name: "two", points: [[0, 1], [9, 1], [4, 5]] }], ring: [2, 1],
    rule: { y: 1, label: "even" } }),
  bins: histogram({ bins: [{ label: "0", value: 2, expected: 1 }, { label: "1", value: 1 }], height: 100 }),
  lanes: gantt({ lanes: [{ name: "draft", blocks: [{ from: 0, to: 4, kind: "draft", label: "hi" }] },
    { name: "target", blocks: [{ from: 4, to: 10, kind: "verify" }, { from: 10, to: 10.01, kind: "odd" }] }],
    unit: "ms" }),
};
for (const [name, part] of Object.entries(window.parts)) {
  document.body.append(h("section", { id: name, style: { width: "500px" } }, part.element));
}
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    real = build._read
    path = tmp_path_factory.mktemp("charts") / "charts.html"
    with pytest.MonkeyPatch.context() as patch, opened() as browser:
        patch.setattr(build, "_read", lambda name: SOURCE if name == "modules/trial/main.js" else real(name))
        path.write_text(build.page("trial/main", "Charts", styles=["charts"]), encoding="utf-8")
        page = browser.new_context(reduced_motion="reduce").new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(Path(path).as_uri())
        page.locator("#lanes svg").wait_for()
        yield page
        assert not errors


def heights(tab: Any, selector: str) -> list[float]:
    found = tab.locator(selector).evaluate_all("all => all.map((each) => each.getBoundingClientRect().height)")
    return [round(each) for each in found]


def test_bars_are_as_high_as_their_chances_and_follow(tab: Any) -> None:
    assert heights(tab, "#still .distribution-bar.p") == [62, 62]
    assert heights(tab, "#still .distribution-bar.q") == [25, 100]
    assert heights(tab, "#still .distribution-bar.r") == [0, 0]
    tab.evaluate("parts.still.set({ p: [1, 0], q: undefined, mark: 0 })")
    assert heights(tab, "#still .distribution-bar.p") == [100, 1]
    assert "target p of a: 1" in tab.locator("#still .distribution-legend").inner_text()
    assert "draft" not in tab.locator("#still .distribution-legend").inner_text()


def test_bars_that_can_be_dragged_are_sliders_by_keyboard_and_pointer(tab: Any) -> None:
    tab.evaluate("heard.length = 0")
    slider = tab.get_by_role("slider", name="draft q of b")
    for key in ("ArrowUp", "PageDown", "Home", "End"):
        slider.press(key)
    assert tab.evaluate("heard") == [["q", 1, 0.81], ["q", 1, 0.7], ["q", 1, 0], ["q", 1, 1]]
    assert tab.get_by_role("slider").count() == 4, "the residual follows; it cannot be moved"
    box = slider.bounding_box()
    tab.mouse.move(box["x"] + 5, box["y"] + 5)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 5, box["y"] + 5 + 16)
    tab.mouse.up()
    distribution, index, value = tab.evaluate("heard.at(-1)")
    assert (distribution, index) == ("q", 1)
    assert value == pytest.approx(0.7, abs=0.01), "16 of 160 px are a tenth"


def test_a_grid_is_walked_by_arrow_keys_and_tells_what_is_picked(tab: Any) -> None:
    tab.evaluate("heard.length = 0")
    tab.locator("#grid td").first.focus()
    for key in ("ArrowRight", "ArrowDown", "End", "ArrowDown", "ArrowUp"):
        tab.keyboard.press(key)
    assert tab.evaluate("heard") == [[0, 1], [1, 1], [1, 2], [1, 2], [0, 2]]
    picked = tab.locator("#grid td[aria-selected=true]")
    assert picked.inner_text() == "2!★"
    assert picked.evaluate("each => each === document.activeElement")
    tab.evaluate("parts.grid.set({ value: (r, c) => 7 })")
    assert tab.locator("#grid td").nth(3).inner_text() == "7!"


def test_lines_stay_within_their_axes_and_have_their_words(tab: Any) -> None:
    words = tab.locator("#line").inner_text()
    svg = tab.locator("#line svg").last
    texts = svg.locator("text").all_text_contents()
    assert "one" in words
    assert {"K", "gain", "even", "0", "4", "2"} <= set(texts)
    box, lines = svg.bounding_box(), svg.locator("polyline")
    assert lines.count() == 2
    for line in lines.all():
        inner = line.bounding_box()
        assert inner["x"] >= box["x"]
        assert inner["x"] + inner["width"] <= box["x"] + box["width"] + 1
        assert inner["y"] >= box["y"], "what is beyond the axis is drawn at its end"
    dashes = lines.evaluate_all("all => all.map((each) => each.getAttribute('stroke-dasharray'))")
    assert len(set(dashes)) == 2, "lines differ without colour"
    tab.evaluate("parts.line.set({ series: [], ring: null, rule: null })")
    assert tab.locator("#line svg polyline, #line svg .ring").count() == 0


def test_a_histogram_shows_what_was_expected(tab: Any) -> None:
    assert heights(tab, "#bins .hist-bar") == [100, 50]
    assert tab.locator("#bins .hist-expected").count() == 1
    assert "counted" in tab.locator("#bins").inner_text()


def test_lanes_keep_their_times_and_follow_their_width(tab: Any) -> None:
    blocks = tab.locator("#lanes rect.block")
    first, second, odd = (each.bounding_box() for each in blocks.all())
    assert second["width"] / first["width"] == pytest.approx(1.5, abs=0.05)
    assert odd["width"] >= 1, "a moment is still seen"
    assert "other" in blocks.nth(2).get_attribute("class")
    before = first["width"]
    tab.locator("#lanes").evaluate("each => (each.style.width = '250px')")
    tab.locator("#lanes svg[width='250']").wait_for()
    assert blocks.first.bounding_box()["width"] == pytest.approx(before / 2, abs=2)
