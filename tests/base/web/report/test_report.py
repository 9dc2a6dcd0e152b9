"""Report pages without a browser: structure, escaping, the tables under figures, and what is refused."""

from __future__ import annotations

import builtins
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
from headstart.base.extras import how_to_install
from headstart.base.web.report import charts
from headstart.base.web.report.page import Page
from headstart.base.web.report.style import BACK, DASHES, GRID, INK, PALETTE, SYMBOLS, TABLE, colour, log_ticks, symbol
from headstart.base.web.report.tables import MOST_ROWS, Table, table_of

PLOTLY = "* plotly.js v"


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


def plot_json(page: str) -> list[dict[str, Any]]:
    return [
        json.loads(text) for text in re.findall(r'<script type="application/json" id="plot-\d+">(.*?)</script>', page)
    ]


def test_a_page_holds_its_blocks_in_order() -> None:
    outline = Outline(full_page().html())
    assert outline.open == []  # every element was closed, in order
    assert outline.of("h1") == ["Bench"]
    assert outline.of("title") == ["Bench"]
    assert outline.of("h2") == ["What was measured"]
    paragraphs = ["this machine", "faster", "by a half", "first paragraph", "second paragraph", "all"]
    assert outline.of("p") == paragraphs
    assert list(zip(outline.of("dt"), outline.of("dd"), strict=True)) == [("K", "4"), ("c", "0.1")]
    assert outline.of("td")[:4] == ["code", "1.23", "chat", "–"]  # noqa: RUF001
    assert outline.of("li") == ["one reason", "another"]
    assert outline.of("code") == ["headstart bench"]
    assert outline.of("figcaption") == ["by K"]
    plot = next(a for a in outline.attributes("div") if a.get("class") == "plot")
    assert (plot["role"], plot["aria-label"]) == ("img", "rising line")
    body = [tag for tag, _ in outline.tags]
    assert body.index("section") < body.index("h2") < body.index("dl") < body.index("table") < body.index("figure")


def test_plotly_is_inlined_once_and_only_for_figures() -> None:
    page = full_page()
    page.figure(charts.lines({"a": ([1, 2], [3, 4])}, x="K", y="y"), caption="again", alt="again")
    assert page.html().count(PLOTLY) == 1
    plain = Page("no figure")
    plain.text("words")
    assert PLOTLY not in plain.html()
    assert "<script" not in plain.html()
    assert len(plain.html()) < 20_000


def test_a_page_names_no_address_of_its_own() -> None:
    page = full_page().html()
    start = page.index(PLOTLY)
    own = page[:start] + page[page.index("</script>", start) :]
    assert "http" not in own.replace("http-equiv", "")
    outline = Outline(page)
    assert all("src" not in attributes for attributes in outline.attributes("script"))
    assert [a["href"] for a in outline.attributes("link")] == ["data:,"]
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
    # the library, the style of <noscript>, the settings, the drawing: and one JSON per figure
    assert len(outline.attributes("script")) == 3 + count
    assert "<script>alert" not in html
    assert "onerror=alert" in "".join(text for _, text in outline.texts)
    labels = [a["aria-label"] for a in outline.attributes("div") if a.get("class") == "plot"]
    assert labels == [EVIL] * count
    assert len(plot_json(html)) == count


def test_labels_of_plots_are_shown_as_they_are_written() -> None:
    figure = charts.lines({"a<b>": ([1], [1]), "c&d": ([1], [2])}, x="x<sub>", y="y & z")
    assert [trace.name for trace in figure.data] == ["a&lt;b&gt;", "c&amp;d"]
    assert figure.layout.xaxis.title.text == "x&lt;sub&gt;"
    assert table_of(figure.to_plotly_json()).columns == ("series", "x<sub>", "y & z")


@pytest.mark.parametrize("missing", ["plotly", "jinja2"])
def test_without_the_extra_the_error_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def refused(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return known(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(builtins, "__import__", refused)
    with pytest.raises(InvalidOption, match="needs plotly and jinja2") as caught:
        Page("title")
    assert caught.value.hint == how_to_install("report")
    if missing == "plotly":
        with pytest.raises(InvalidOption, match="plotly"):
            charts.lines({"a": ([1], [1])}, x="x", y="y")


def test_importing_pages_imports_neither_plotly_nor_jinja2() -> None:
    code = (
        "import sys, headstart.base.web.report.page, headstart.base.web.report.charts\n"
        "print([name for name in ('plotly', 'jinja2') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "plotly" not in shown.stdout


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
    lines, positions, named, heat, _, scatter, distributions, stacked = (
        table_of(figure.to_plotly_json()) for figure in every_chart("t")
    )
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
    figure = charts.lines({"a": (np.arange(count), np.arange(count))}, x="x", y="y")
    table = table_of(figure.to_plotly_json())
    assert len(table.rows) == MOST_ROWS
    assert table.rows[0][1] == "0"
    assert table.rows[-1][1] == str(count - 1)
    assert table.caption == f"{MOST_ROWS} of {count} rows, evenly chosen"


def test_the_marks_of_a_distribution_lie_on_its_line_and_are_the_quantiles() -> None:
    sample = np.random.default_rng(0).lognormal(size=37)
    line, marks = charts.distributions({"a": sample}, x="ms").data
    assert list(marks.x) == pytest.approx(np.quantile(sample, [0.5, 0.9, 0.99]))
    assert np.interp(marks.y, line.y, line.x) == pytest.approx(list(marks.x))


def test_infinite_and_missing_samples_are_left_out_and_empty_charts_are_drawn_empty() -> None:
    figure = charts.distributions({"a": [1.0, float("nan"), float("inf"), 3.0], "none": []}, x="ms")
    assert table_of(figure.to_plotly_json()).rows == (("a", "2", "2.8", "2.98", "2"),)
    assert len(charts.lines({}, x="x", y="y").data) == 0
    assert len(charts.scatter({"a": ([], [], [])}, x="x", y="y", diagonal=True).data) == 1
    charts.bars([], {"a": []}, y="y")
    charts.heatmap([1, 2], [1], [[float("nan"), float("nan")]], x="x", y="y", z="z", middle=1.0)


def test_the_colours_of_a_map_turn_at_the_middle() -> None:
    def neutral(values: list[list[float]]) -> float:
        scale = charts.heatmap([1, 2], [1, 2], values, x="x", y="y", z="z", middle=1.0).data[0].colorscale
        return next(place for place, tone in scale if tone == "#efefef")

    assert neutral([[0.5, 0.6], [2.0, 3.0]]) == pytest.approx(0.2)
    assert neutral([[1.5, 2.0], [2.0, 3.0]]) == 0.0  # all gain: none of it in the colours of loss
    assert neutral([[0.1, 0.2], [0.3, 0.4]]) == 1.0


def test_a_column_where_nothing_turns_has_no_break_even_line() -> None:
    with_zero = charts.heatmap([0, 1], [0, 1], [[1.0, 0.5], [1.0, 1.5]], x="K", y="alpha", z="speedup", middle=1.0)
    contour = np.asarray(with_zero.data[1].z, dtype=float)
    assert np.isnan(contour[:, 0]).all()
    assert contour[:, 1].tolist() == [0.5, 1.5]


def test_error_bars_reach_the_ends_that_were_given() -> None:
    upright = charts.bars(["1"], {"a": [0.5]}, y="y", low_high={"a": ([0.4], [0.7])}).data[0]
    assert (upright.error_y.arrayminus[0], upright.error_y.array[0]) == pytest.approx((0.1, 0.2))
    lying = charts.bars(["a long category"], {"a": [0.5]}, y="y", low_high={"a": ([0.4], [0.7])}).data[0]
    assert lying.orientation == "h"
    assert (lying.error_x.arrayminus[0], lying.error_x.array[0]) == pytest.approx((0.1, 0.2))


@pytest.mark.parametrize("name", ["1", "a long category"])
def test_an_interval_that_would_dwarf_the_bars_is_cut_and_its_end_is_said(name: str) -> None:
    figure = charts.bars([name, "2"], {"a": [2.0, 1.5]}, y="y", low_high={"a": ([1, 1], [121.4, 1.8])})
    axis = figure.layout.xaxis if name != "1" else figure.layout.yaxis
    assert tuple(axis.range) == (0, 5)
    (said,) = figure.layout.annotations
    assert "121" in said.text
    assert table_of(figure.to_plotly_json()).rows[0] == (name, "2", "1", "121.4")
    whole = charts.bars([name], {"a": [2.0]}, y="y", low_high={"a": ([1], [6])})
    assert whole.layout.xaxis.range is whole.layout.yaxis.range is None
    assert not whole.layout.annotations


def test_charts_refuse_what_does_not_fit_together() -> None:
    with pytest.raises(ValueError, match="lengths differ"):
        charts.lines({"a": ([1, 2], [1])}, x="x", y="y")
    with pytest.raises(ValueError, match="lengths differ"):
        charts.bars(["1", "2"], {"a": [1]}, y="y")
    with pytest.raises(ValueError, match="not drawn: b"):
        charts.bars(["1"], {"a": [1]}, y="y", low_high={"b": ([1], [1])})
    with pytest.raises(ValueError, match=r"\[2, 3\]"):
        charts.heatmap([1, 2, 3], [1, 2], np.zeros((3, 2)), x="x", y="y", z="z")


def test_the_axis_of_a_count_has_no_halves() -> None:
    assert charts.lines({"a": ([1, 2, 3], [1, 2, 3])}, x="K", y="y").layout.xaxis.dtick == 1
    assert charts.lines({"a": ([0.5, 2, 3], [1, 2, 3])}, x="c", y="y").layout.xaxis.dtick is None
    assert charts.lines({"a": ([0, 1000], [1, 2])}, x="n", y="y").layout.xaxis.dtick is None
    assert charts.lines({"a": ([0, 16], [1, 2])}, x="n", y="y").layout.xaxis.dtick == 2


def test_a_logarithmic_axis_has_ticks_at_round_values_alone() -> None:
    page = Page("title")
    page.figure(charts.distributions({"a": [0.0, 0.8, 30.0]}, x="ms", log=True), caption="", alt="a")
    by_hand = charts.lines({"a": ([1, 2], [1e-6, 1e3])}, x="n", y="capital", reference=1e8)
    by_hand.update_yaxes(type="log")
    page.figure(by_hand, caption="", alt="b")
    page.figure(charts.distributions({"a": [0.0, -1.0]}, x="ms", log=True), caption="", alt="nothing above 0")
    first, second, _ = (figure["layout"] for figure in plot_json(page.html()))
    assert (first["xaxis"]["type"], first["xaxis"]["ticktext"]) == ("log", ["1", "2", "5", "10", "20"])
    assert second["yaxis"]["ticktext"] == ["1e-06", "0.001", "1", "1,000", "1e+06"]
    assert by_hand.layout.yaxis.tickvals is None  # the caller's own figure is left as it was


@pytest.mark.parametrize("low", [1e-9, 1e-3, 0.3, 1, 1.2, 2.4, 5.5, 6, 8.2, 9.99])
@pytest.mark.parametrize("times", [1, 1.03, 1.4, 1.6, 2, 4, 9, 30, 130, 1e3, 1e18])
def test_log_ticks_are_few_and_there(low: float, times: float) -> None:
    high = times * low
    ticks = log_ticks(low, high)
    assert 1 <= len(ticks) <= 11
    assert ticks == sorted(ticks)
    assert low / 10 < ticks[0]
    assert len(ticks) >= 3 or times < 1.4
    assert ticks[-1] < high * 10.01


def test_the_ticks_of_a_map_name_its_middle_and_do_not_crowd() -> None:
    ticks = (
        charts.heatmap([1, 2], [1, 2], [[0.9, 2], [3, 5]], x="x", y="y", z="z", middle=1.0).data[0].colorbar.tickvals
    )
    assert 1.0 in ticks
    assert 5.0 in ticks
    assert min(np.diff(ticks)) >= 0.16 * 4.1


def test_the_diagonal_does_not_stretch_the_axis_of_x() -> None:
    diagonal = charts.scatter({"a": ([1, 2], [10, 90], ["p", "q"])}, x="x", y="y", diagonal=True).data[0]
    assert list(diagonal.x) == list(diagonal.y) == [1, 2]


def luminance(red: int, green: int, blue: int) -> float:
    """Relative luminance (WCAG 2.2)."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (red / 255, green / 255, blue / 255)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("ground", [(0xFF, 0xFF, 0xFF), (0x15, 0x18, 0x1D)], ids=["light", "dark"])
@pytest.mark.parametrize("hue", [*PALETTE, INK])
def test_colours_stand_out_in_both_schemes(hue: str, ground: tuple[int, int, int]) -> None:
    shades = sorted(
        (luminance(*ground), luminance(*(int(hue[start : start + 2], 16) for start in (1, 3, 5)))), reverse=True
    )
    assert (shades[0] + 0.05) / (shades[1] + 0.05) >= 3.0


def test_series_stay_apart_beyond_the_palette() -> None:
    looks = [(colour(index), symbol(index)) for index in range(2 * len(PALETTE))]
    assert len(set(looks)) == len(looks)
    assert len(set(SYMBOLS)) == len(SYMBOLS)
    assert len(set(DASHES)) == len(DASHES)


def test_the_script_knows_the_colours_that_it_replaces() -> None:
    script = Path(charts.__file__).with_name("templates").joinpath("page.js").read_text(encoding="utf-8")
    assert all(script.count(f"'\"{tone}\"'") == 2 for tone in (INK, GRID, BACK))


def test_the_numbers_stand_in_the_page_once_not_in_the_plot_too() -> None:
    assert TABLE not in full_page().html()
