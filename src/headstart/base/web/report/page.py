"""One self-contained page: verdicts, text, facts, tables, code and figures in order; it opens offline, on a phone too.

All text is plain text: whatever a prompt or a model's name holds is shown, never run. The page loads nothing from
a network; a content policy in its head forbids that. Under each figure is the table of its numbers, so that a
page says the same without scripts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, get_args

from headstart.base.extras import extra, require_report
from headstart.base.files import write_text
from headstart.base.web.build import for_script
from headstart.base.web.report.style import settle_log_axes
from headstart.base.web.report.tables import Cell, Table, table_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

VerdictKind = Literal["good", "bad", "unsure", "info"]
CONFIG = {"displayModeBar": False, "scrollZoom": False}


class Page:
    """A page built block by block, in the order of the calls, then written.

    Raises:
        InvalidOption: plotly or jinja2 is missing (already here, so that nothing is measured in vain).
    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        require_report()
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
        """Names and values, side by side in a grid."""
        texts = {name: str(value) or "\N{EN DASH}" for name, value in mapping.items()}
        self._add("facts", facts=[(name, text, _width(text)) for name, text in texts.items()])

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

    def figure(self, figure: Figure, *, caption: str, alt: str) -> None:
        """A plot. caption: shown under it. alt: what it shows, in words, for those who cannot see it."""
        styled = extra("plotly.graph_objects").Figure(figure).update_layout(height=None)
        table = table_of(styled.to_plotly_json())
        styled.update_layout(meta=None)
        settle_log_axes(styled)
        script, height = for_script(styled.to_json()), figure.layout.height
        self._add("plot", figure=script, height=height, caption=caption, alt=alt, table=table)

    def _add(self, name: str, **content: Any) -> None:
        """Append a block; `content` is what templates/blocks/<name>.html shows."""
        self._blocks.append(SimpleNamespace(name=name, **content))

    def html(self) -> str:
        """The whole page as text."""
        jinja2 = extra("jinja2")
        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(_template),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        plotted = any(block.name == "plot" for block in self._blocks)
        rendered: str = environment.get_template("page.html").render(
            title=self.title,
            subtitle=self.subtitle,
            blocks=self._blocks,
            css=_template("page.css"),
            script=_template("page.js") if plotted else "",
            plotly=extra("plotly.offline").get_plotlyjs() if plotted else "",
            config=for_script(json.dumps(CONFIG)),
        )
        return rendered

    def write(self, path: Path) -> Path:
        """Write the page to one file, its folder too if that is missing.

        Raises:
            InvalidOption: the file cannot be written there.
        """
        return write_text(path, self.html(), hint="name another file for the page")


def _width(value: str) -> str:
    """How many cards of the grid a fact fills: a path is not to be read five letters a line."""
    return "" if len(value) <= 20 else "wide" if len(value) <= 48 else "whole"


def _template(name: str) -> str:
    return files("headstart.base.web.report").joinpath("templates", name).read_text(encoding="utf-8")
