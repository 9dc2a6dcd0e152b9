"""The page of `headstart simulate --scenarios --html`: what was simulated, beside the formulas."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.insight.report import charts
from headstart.insight.report.page import Page, VerdictKind
from headstart.simulate import ScenarioResult


def scenarios_page(results: Sequence[ScenarioResult]) -> Page:
    """The page, not yet written.

    Raises:
        InvalidOption: plotly or jinja2 is missing.
    """
    page = Page("Would it help?", "Situations that people meet, simulated round by round. Speedup over plain decoding.")
    names = [result.scenario.name for result in results]
    gains = [result.speedup for result in results]
    lows, highs = ([gain.value + sign * 2 * gain.standard_error for gain in gains] for sign in (-1, 1))
    page.figure(
        charts.bars(
            names,
            {"simulated": [gain.value for gain in gains]},
            y="speedup over plain decoding",
            low_high={"simulated": (lows, highs)},
            reference=1.0,
        ),
        caption="Below 1 plain decoding is faster. Whiskers: two standard errors.",
        alt="; ".join(f"{name}: {gain.value:.2f}" for name, gain in zip(names, gains, strict=True)),
    )
    columns = ["scenario", "acceptance", "K", "c", "simulated", "standard error", "by formula", "best K", "at best K"]
    rows = [
        [
            result.scenario.name,
            str(result.scenario.alpha),
            str(result.scenario.parameters()["k"]),
            result.scenario.c,
            result.speedup.value,
            result.speedup.standard_error,
            result.predicted,
            result.best_k,
            result.best_speedup,
        ]
        for result in results
    ]
    decimals = dict.fromkeys(["simulated", "by formula", "at best K"], ".2f")
    page.table(columns, rows, formats=decimals | {"standard error": ".3f"})
    kinds: dict[bool | None, VerdictKind] = {True: "good", False: "bad", None: "unsure"}
    for result in results:
        others = "".join(f" {name}: {one.value:.2f}." for name, one in result.alternatives.items())
        page.verdict(kinds[result.pays], f"{result.scenario.name}: {result.verdict}", result.scenario.story + others)
    return page
