"""The page of `headstart simulate --ssd --html`: does drafting ahead pay, where the time goes, and the two lanes."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.base.web.report import charts
from headstart.base.web.report.page import Page
from headstart.base.web.report.tables import Table
from headstart.learn.simulate.ssd import LANES, Span
from headstart.learn.what_if.ssd import Prospect, SsdAnswer

KINDS = {"verify": "verify", "levels": "draft", "draft now": "prefill", "glue": "distribution", "hand over": "wait"}
"""By kind of work, its look among the lessons' lanes of time."""


def ssd_page(answer: SsdAnswer) -> Page:
    """The page, not yet written."""
    page = Page(
        "Would drafting ahead pay?",
        "Speculative speculative decoding, simulated round by round on two lanes. No model was run.",
    )
    for found in answer.prospects:
        page.verdict(found.kind, f"{found.placement.name}: {found.verdict}", found.reason)
    if len(answer.prospects) > 1:
        _compared(page, answer.prospects)
    for found in answer.prospects:
        _lanes(page, found)
    if answer.fan_outs:
        page.heading("How many outcomes to foresee?")
        rows = [[f.fan_out, f.branches, f.hit_rate, f.round_time, f.over_in_turn] for f in answer.fan_outs]
        page.table(
            ["fan-out", "branches", "hit rate", "time of a round", "over drafting in turn"], rows,
            formats={"hit rate": ".2f", "time of a round": ".2f", "over drafting in turn": ".2f"},
        )  # fmt: skip
        best = max(answer.fan_outs, key=lambda one: one.over_in_turn)
        series = {"drafting ahead": ([f.fan_out for f in answer.fan_outs], [f.over_in_turn for f in answer.fan_outs])}
        page.figure(
            charts.lines(series, x="fan-out", y="speedup over drafting in turn", reference=1.0),
            caption=f"More branches foresee more outcomes and take longer: F = {best.fan_out} is best, with "
            f"{best.over_in_turn:.2f}. Below 1 drafting in turn is faster.",
            alt="; ".join(f"F = {f.fan_out}: {f.over_in_turn:.2f}" for f in answer.fan_outs),
        )
    return page


def _compared(page: Page, prospects: Sequence[Prospect]) -> None:
    page.heading("Where it pays")
    names = [found.placement.name for found in prospects]
    gains = [found.over_in_turn for found in prospects]
    page.figure(
        charts.bars(names, {"simulated": gains}, y="speedup over drafting in turn", reference=1.0),
        caption=f"From {min(gains):.2f} to {max(gains):.2f}; below 1 drafting in turn is faster.",
        alt="; ".join(f"{name}: {gain:.2f}" for name, gain in zip(names, gains, strict=True)),
    )
    columns = ["placement", "K", "hit rate", "tokens a round", "in turn, ms", "ahead, ms", "over the baseline",
               "over drafting in turn", "measured by others"]  # fmt: skip
    rows = [
        [
            f.placement.name, f.placement.plan.k, f.ahead.hit_rate, f.ahead.tokens_per_round, f.in_turn.round_time,
            f.ahead.round_time, f.over_plain, f.over_in_turn, f.placement.published,
        ]
        for f in prospects
    ]  # fmt: skip
    page.table(columns, rows, formats=dict.fromkeys(columns[2:], ".2f"))


def _lanes(page: Page, found: Prospect) -> None:
    page.heading(found.placement.name)
    facts = {
        "alpha": "/".join(f"{a:.3g}" for a in found.placement.plan.acceptance),
        "K": str(found.placement.plan.k),
        "hit rate": f"{found.ahead.hit_rate:.2f}",
        "over the baseline": f"{found.over_plain:.2f}x",
        "known": found.placement.known,
        "assumed": found.placement.assumed,
    }
    page.facts({name: value for name, value in facts.items() if value})
    costs = ", ".join(f"{name} {found.number(time)}" for name, time in found.costs.items())
    page.figure(
        lanes(found.ahead.spans, unit=found.unit),
        caption=f"The first rounds. A round hides {found.number(found.hidden)} of drafting and costs: {costs}.",
        alt=f"Target and drafter side by side in time. A round takes {found.number(found.ahead.round_time)} ahead and "
        f"{found.number(found.in_turn.round_time)} in turn",
    )


def lanes(spans: Sequence[Span], *, unit: str, rounds: int = 4) -> charts.Chart:
    """The first rounds in time: a row for each lane, a look for each kind of work."""
    shown = [span for span in spans if span.round < rounds]
    begin = min((span.start for span in shown), default=0.0)
    rows = [[s.round + 1, s.lane, s.kind, s.start - begin, s.end - begin, s.rows] for s in shown]
    columns = ["round", "lane", "does", f"from, {unit}", f"to, {unit}", "rows"]
    names = {"target": "target", "draft": "drafter"}
    return charts.lanes(
        {
            names[lane]: [
                (span.start - begin, span.end - begin, span.kind,
                 f"round {span.round + 1}, {span.rows} rows, {span.end - span.start:.3g} {unit}")
                for span in shown
                if span.lane == lane
            ]
            for lane in LANES
        },
        unit=unit,
        kinds=KINDS,
        table=Table.of(columns, rows),
    )  # fmt: skip
