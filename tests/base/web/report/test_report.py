"""Report pages without a browser: structure, escaping, the tables under charts, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.charts import EVIL, every_chart

from headstart.base.errors import InvalidOption
from headstart.base.web.report import charts
from headstart.base.web.report.charts import Mark
from headstart.base.web.report.page import Page
from headstart.base.web.report.tables import MOST_ROWS, Table

BUDGET = 500_000
"""Bytes of a report, and of the largest that is written here."""


class Outline(HTMLParser):
    """Elements and texts of a page, scripts and styles apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data))

    def of(self, tag: str) -> list[str]:
        return [text.strip() for where, text in self.texts if where == tag]

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def full_page() -> Page:
    page = Page("Bench", "this machine")
    page.verdict("good", "faster", "by a half")
    page.heading("What was measured")
    page.text("first paragraph")
    page.text("second paragraph")
    page.facts({"K": 4, "c": "0.1"})
    page.table(["what", "speedup"], [["code", 1.23456], ["chat", None]], formats={"speedup": ".2f"}, caption="all")
    page.items(["one reason", "another"])
    page.code("headstart bench")
    page.figure(charts.lines({"a": ([1, 2], [1.0, 1.5])}, x="K", y="speedup"), caption="by K", alt="rising line")
    return page


def drawn(page: str) -> list[dict[str, Any]]:
    """What the script of the page is given to draw."""
    found = re.findall(r'<script type="application/json" id="data-plot-\d+">(.*?)</script>', page)
    return [json.loads(text) for text in found]


def test_a_page_holds_its_blocks_in_order() -> None:
    outline = Outline(full_page().html())
    assert outline.open == []  # every element was closed, in order
    assert outline.of("h1") == ["Bench"]
    assert outline.of("title") == ["Bench"]
    assert outline.of("h2") == ["What was measured"]
    paragraphs = ["this machine", "faster", "by a half", "first paragraph", "second paragraph", "all"]
    assert [text for text in outline.of("p") if text] == paragraphs
    assert list(zip(outline.of("dt"), outline.of("dd"), strict=True)) == [("K", "4"), ("c", "0.1")]
    assert outline.of("td")[:4] == ["code", "1.23", "chat", "–"]  # noqa: RUF001
    assert outline.of("li") == ["one reason", "another"]
    assert outline.of("code") == ["headstart bench"]
    assert outline.of("figcaption") == ["by K"]
    plot = next(a for a in outline.attributes("div") if "plot" in str(a.get("class")))
    assert (plot["role"], plot["aria-label"]) == ("group", "rising line")
    body = [tag for tag, _ in outline.tags]
    assert body.index("section") < body.index("h2") < body.index("dl") < body.index("table") < body.index("figure")


def test_a_page_is_small_and_names_no_address() -> None:
    page = full_page()
    for chart in every_chart("t") * 3:
        page.figure(chart, caption="again", alt="again")
    html = page.html()
    assert len(html.encode()) < BUDGET
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    outline = Outline(html)
    assert all("src" not in attributes for attributes in outline.attributes("script"))
    assert all(str(a["href"]).startswith("data:") for a in outline.attributes("link"))
    policy = outline.attributes("meta")[1]
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert "default-src 'none'" in str(policy["content"])


def test_text_stays_text_wherever_it_stands() -> None:
    page = Page(EVIL, EVIL)
    page.verdict("bad", EVIL, EVIL)
    page.heading(EVIL)
    page.text(EVIL)
    page.facts({EVIL: EVIL})
    page.table([EVIL, "n"], [[EVIL, 1]], caption=EVIL)
    page.items([EVIL])
    page.code(EVIL)
    for figure in every_chart(EVIL):
        page.figure(figure, caption=EVIL, alt=EVIL)
    html = page.html()
    outline = Outline(html)
    assert not outline.attributes("img")
    assert not outline.attributes("b")
    count = len(every_chart("x"))
    assert len(outline.attributes("script")) == count + 2  # what is drawn; the modules, and what unpacks them
    assert "<script>alert" not in html
    assert "onerror=alert" in "".join(text for _, text in outline.texts)
    labels = [a["aria-label"] for a in outline.attributes("div") if "plot" in str(a.get("class"))]
    assert labels == [EVIL] * count
    assert len(drawn(html)) == count


def test_importing_pages_does_not_import_jinja2() -> None:
    code = (
        "import sys, headstart.base.web.report.page, headstart.base.web.report.charts\n"
        "print([name for name in ('jinja2',) if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_write_makes_the_folder_and_refuses_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    page = Page("title")
    written = page.write(tmp_path / "new" / "page.html")
    assert written.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(InvalidOption, match="cannot write"):
        page.write(written / "below-a-file.html")


def test_a_verdict_has_one_of_four_kinds() -> None:
    with pytest.raises(ValueError, match="good, bad, unsure, info"):
        Page("title").verdict("fine", "no")  # type: ignore[arg-type]


def test_tables_write_numbers_by_their_column() -> None:
    table = Table.of(
        ["name", "share", "count", "x", "sure"],
        [["a", 0.5, 1000, 1.234567, True], ["b", None, np.int64(2), float("nan"), False]],
        formats={"share": ".1%", "count": ",d"},
    )
    assert table.rows == (("a", "50.0%", "1,000", "1.235", "yes"), ("b", "–", "2", "–", "no"))  # noqa: RUF001
    assert table.kinds == ("", "number", "number", "number", "")
    assert Table.of(["a", "b"], [["word " * 20, None]]).kinds == ("long", "")


def test_tables_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="needs 2 cells"):
        Table.of(["a", "b"], [[1]])
    with pytest.raises(ValueError, match="a format for no column: c"):
        Table.of(["a", "b"], [[1, 2]], formats={"c": ".2f"})


def test_every_figure_brings_the_numbers_it_draws() -> None:
    lines, positions, named, heat, _, scatter, distributions, stacked = (chart.table for chart in every_chart("t"))
    assert lines.columns == ("series", "t", "t", "low", "high")
    assert lines.rows[0] == ("t", "1", "1", "0.9", "1.1")
    assert lines.rows[3] == ("predicted", "1", "1.1", "–", "–")  # noqa: RUF001
    assert positions.columns == ("t", "t", "t: low", "t: high", "b")
    assert positions.rows == (("1", "0.8", "0", "1", "0.5"), ("2", "0.7", "0", "1", "0.4"))
    assert named.rows == (("t", "0.8"), ("t", "0.7"))  # equal names stay two bars
    assert heat.columns == ("t \\ t", "1", "2", "3")
    assert heat.rows[1] == ("0.8", "1.2", "1.5", "1.9")
    assert scatter.rows == (("t", "t", "1", "2"), ("t", "p", "2", "3"), ("b", "t", "3", "1"))
    assert distributions.rows == (("t", "2", "2.8", "2.98", "3"), ("b", "5", "5", "5", "1"))
    assert stacked.rows == (("plain", "1", "3"), ("t", "2", "4"))


def test_a_long_table_under_a_figure_is_thinned_and_says_so() -> None:
    count = 5 * MOST_ROWS
    chart = charts.lines({"a": (np.arange(count), np.arange(count))}, x="x", y="y")
    table = chart.table
    assert len(chart.content["series"][0]["points"]) == count
    assert len(table.rows) == MOST_ROWS
    assert table.rows[0][1] == "0"
    assert table.rows[-1][1] == str(count - 1)
    assert table.caption == f"{MOST_ROWS} of {count} rows, evenly chosen"


def test_the_line_of_a_distribution_is_its_quantiles() -> None:
    sample = np.random.default_rng(0).lognormal(size=37)
    points = np.array(charts.distributions({"a": sample}, x="ms").content["series"][0]["points"])
    for share in (0.0, 0.5, 0.9, 0.99, 1.0):
        (at,) = points[points[:, 1] == share, 0]
        assert at == pytest.approx(np.quantile(sample, share), rel=1e-5)


def test_infinite_and_missing_samples_are_left_out_and_empty_charts_are_drawn_empty() -> None:
    chart = charts.distributions({"a": [1.0, float("nan"), float("inf"), 3.0], "none": []}, x="ms")
    assert chart.table.rows == (("a", "2", "2.8", "2.98", "2"),)
    assert charts.lines({}, x="x", y="y").content["series"] == []
    assert charts.scatter({"a": ([], [], [])}, x="x", y="y", diagonal=True).content["series"][0]["points"] == []
    assert charts.bars([], {"a": []}, y="y").table.rows == ()
    unknown = charts.colour_map([1, 2], [1], [[float("nan"), float("inf")]], x="x", y="y", z="z", middle=1.0)
    assert unknown.content["values"] == [[None, None]]
    assert json.loads(json.dumps(unknown.content, allow_nan=False)) == unknown.content


def test_what_is_drawn_is_what_was_given_to_six_digits() -> None:
    content = charts.lines(
        {"a": ([1, np.int64(2), 3.0], [1 / 3, float("nan"), 5])},
        x="K",
        y="gain",
        bands={"a": ([0, 1, 2], [1, 2, 3])},
        dashed=["a"],
        reference=1.0,
        marks=[Mark(1, 0.3, "here")],
    ).content
    (series,) = content["series"]
    assert series["points"] == [[1, 0.333333], [2, None], [3, 5]]
    assert series["band"] == [[1, 0, 1], [2, 1, 2], [3, 2, 3]]
    assert series["dash"] is True
    assert content["rule"] == 1
    assert content["marks"] == [{"x": 1, "y": 0.3, "text": "here"}]
    bars = charts.bars(["1"], {"a": [0.5]}, y="y", low_high={"a": ([0.4], [0.7])}).content
    assert bars["series"] == [{"name": "a", "values": [0.5], "ends": [[0.4, 0.7]]}]


def test_charts_refuse_what_does_not_fit_together() -> None:
    with pytest.raises(ValueError, match="lengths differ"):
        charts.lines({"a": ([1, 2], [1])}, x="x", y="y")
    with pytest.raises(ValueError, match="lengths differ"):
        charts.bars(["1", "2"], {"a": [1]}, y="y")
    with pytest.raises(ValueError, match="not drawn: b"):
        charts.bars(["1"], {"a": [1]}, y="y", low_high={"b": ([1], [1])})
    with pytest.raises(ValueError, match=r"\[2, 3\]"):
        charts.colour_map([1, 2, 3], [1, 2], np.zeros((3, 2)), x="x", y="y", z="z")
