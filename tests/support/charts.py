"""One chart of each kind, and a text that would break a page that does not escape it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headstart.base.web.report import charts
from headstart.base.web.report.charts import Mark
from support.browser import until

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & <b>\u2028\"'"


def every_chart(text: str) -> list[charts.Chart]:
    """One of each kind, with this text wherever a chart takes text."""
    return [
        charts.lines(
            {text: ([1, 2, 3], [1.0, 1.2, 1.1]), "predicted": ([1, 2, 3], [1.1, 1.2, 1.2])},
            x=text,
            y=text,
            bands={text: ([0.9, 1.1, 1.0], [1.1, 1.3, 1.2])},
            marks=[Mark(2, 1.2, text)],
            dashed={"predicted"},
            reference=1.0,
        ),
        charts.bars(["1", "2"], {text: [0.8, 0.7], "b": [0.5, 0.4]}, x=text, y=text, low_high={text: ([0, 0], [1, 1])}),
        charts.bars([text, text], {text: [0.8, 0.7]}, y=text, reference=0.5),
        charts.colour_map(
            [1, 2, 3], [0.2, 0.8], [[0.5, 0.6, 0.7], [1.2, 1.5, 1.9]], x=text, y=text, z=text, middle=1.0
        ),
        charts.colour_map([1, 2], [1, 2], np.eye(2), x=text, y=text, z=text, marks=[Mark(1, 1, text)]),
        charts.scatter({text: ([1, 2], [2, 3], [text, "p"]), "b": ([3], [1], [text])}, x=text, y=text, diagonal=True),
        charts.distributions({text: [1.0, 2.0, 3.0], "b": [5.0]}, x=text),
        charts.stacked(["plain", text], {text: [1, 2], "rest": [3, 4]}, y=text),
    ]


MEASURE = """() => [...document.querySelectorAll('.plot')].map((plot) => {
  const box = plot.getBoundingClientRect();
  const wrong = [];
  if (!plot.getAttribute('aria-label')) wrong.push('has no words');
  const svg = plot.querySelector('.sized svg');
  if (!svg && !plot.querySelector('.bars')) wrong.push('was not drawn');
  if (svg && svg.getBoundingClientRect().height < 90) wrong.push('is squeezed');
  if (!plot.querySelector('polyline, .dot, rect, .bar-fill')) wrong.push('shows nothing');
  for (const text of plot.querySelectorAll('svg text, .bar-name, .bar-value, .plot-label, .chart-legend li')) {
    const { left, right, top, bottom, width } = text.getBoundingClientRect();
    if (!width || !text.textContent.trim()) continue;
    if (parseFloat(getComputedStyle(text).fontSize) < 12) wrong.push(`"${text.textContent}" is too small`);
    const out = left < box.left - 1 || right > box.right + 1 || top < box.top - 1 || bottom > box.bottom + 1;
    if (out) wrong.push(`"${text.textContent}" is cut: ${left} to ${right} of ${box.left} to ${box.right}`);
  }
  return wrong.length ? `${plot.getAttribute('aria-label')}: ${wrong.join('; ')}` : '';
})"""


def drawn(count: int) -> Callable[[Any], None]:
    """For `checked(prepare=...)`: waits until the charts of a report are drawn; none may be empty or cut."""

    def look(tab: Any) -> None:
        until(tab, "document.querySelector('.theme-switch') && !document.querySelector('.plot:not(.drawn)')")
        until(tab, "[...document.querySelectorAll('.sized')].every((each) => each.querySelector('svg'))")
        found = tab.evaluate(MEASURE)
        assert len(found) == count, f"{len(found)} charts, not {count}"
        assert not any(found), "\n".join(filter(None, found))

    return look
