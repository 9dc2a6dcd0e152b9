"""One chart of each kind, and a text that would break a page that does not escape it."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from headstart.base.web.report import charts
from headstart.base.web.report.charts import Mark

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & <b>\u2028\"'"


def every_chart(text: str) -> list[go.Figure]:
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
        charts.heatmap([1, 2, 3], [0.2, 0.8], [[0.5, 0.6, 0.7], [1.2, 1.5, 1.9]], x=text, y=text, z=text, middle=1.0),
        charts.heatmap([1, 2], [1, 2], np.eye(2), x=text, y=text, z=text, marks=[Mark(1, 1, text)]),
        charts.scatter({text: ([1, 2], [2, 3], [text, "p"]), "b": ([3], [1], [text])}, x=text, y=text, diagonal=True),
        charts.distributions({text: [1.0, 2.0, 3.0], "b": [5.0]}, x=text),
        charts.stacked(["plain", text], {text: [1, 2], "rest": [3, 4]}, y=text),
    ]
