"""One self-contained page: verdicts, text, facts, tables, code and figures in order; it opens offline, on a phone too.

All text is plain text: whatever a prompt or a model's name holds is shown, never run. The page loads nothing from
a network; a content policy in its head forbids that. Words and tables stand in it as they are; the charts, which are
those of the lessons, are drawn by its script. Under each chart is the table of its numbers, so that a page says the
same without scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args

from headstart.base.files import write_text
from headstart.base.web import build
from headstart.base.web.report.charts import Chart
from headstart.base.web.report.tables import Cell, Table

VerdictKind = Literal["good", "bad", "unsure", "info"]


class Page:
    """A page built block by block, in the order of the calls, then written."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self.subtitle = subtitle
        self._blocks: list[SimpleNamespace] = []

    def verdict(self, kind: VerdictKind, headline: str, detail: str = "") -> None:
        """A coloured box with an icon: what the page comes to."""
        if kind not in get_args(VerdictKind):
            raise ValueError(f"a verdict is one of {', '.join(get_args(VerdictKind))}, not {kind!r}")
        self._add("verdict", kind=kind, headline=headline, detail=detail)

    def heading(self, text: str) -> None:
        self._add("heading", text=text)

    def text(self, paragraph: str) -> None:
        self._add("text", text=paragraph)

    def code(self, text: str) -> None:
        """A command line, or JSON; its lines stay as they are."""
        self._add("code", text=text)

    def items(self, items: Sequence[str]) -> None:
        """A list with bullets: the reasons of a verdict."""
        self._add("items", items=tuple(items))

    def facts(self, mapping: Mapping[str, object]) -> None:
        """Names and values, one below the other."""
        texts = {name: str(value) or "\N{EN DASH}" for name, value in mapping.items()}
        self._add("facts", facts=list(texts.items()))

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *,
        caption: str = "",
        formats: Mapping[str, str] | None = None,
    ) -> None:
        """A table; formats: per column how its numbers are written, as in format(): ".2f", "+.1%", ",d".

        Raises:
            ValueError: a row has not one cell per column, or a format is for no column.
        """
        self._add("table", table=Table.of(columns, rows, caption=caption, formats=formats))

    def figure(self, chart: Chart, *, caption: str, alt: str) -> None:
        """A chart. caption: shown under it. alt: what it shows, in words, for those who cannot see it."""
        self._add("plot", chart=chart, caption=caption, alt=alt, table=chart.table)

    def _add(self, name: str, **content: Any) -> None:
        """Append a block; `content` is what templates/blocks/<name>.html shows."""
        self._blocks.append(SimpleNamespace(name=name, **content))

    def html(self) -> str:
        """The whole page as text."""
        import jinja2  # takes longer to import than most commands run

        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(_template),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        body = environment.get_template("page.html").render(
            title=self.title, subtitle=self.subtitle, blocks=self._blocks
        )
        charts = {
            f"plot-{number}": {"kind": block.chart.kind, "content": block.chart.content}
            for number, block in enumerate(self._blocks, start=1)
            if block.name == "plot"
        }
        return build.page("report/main", self.title, data=charts, styles=["charts", "report"], body=body)

    def write(self, path: Path) -> Path:
        """Write the page to one file, its folder too if that is missing.

        Raises:
            InvalidOption: the file cannot be written there.
        """
        return write_text(path, self.html(), hint="name another file for the page")


def _template(name: str) -> str:
    return files("headstart.base.web.report").joinpath("templates", name).read_text(encoding="utf-8")
