"""The doctor's answer as a page: verdict, candidates, speedup by K, acceptance by position, batches, the machine."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.base.web.report import charts
from headstart.base.web.report.page import Page
from headstart.measure.doctor.examination import Examination
from headstart.measure.doctor.facts import figures, flags, load_line, not_measured, target_facts, warning
from headstart.measure.doctor.prediction import BATCHES
from headstart.measure.doctor.verdict import Ranked

_SOME = 6
"""The most candidates that a line chart shows, the best first, so that a reader can tell the lines apart."""


_PREDICTED = {
    "drafter": "", "drafts of": "", "drafts in": ".0%", "alpha": ".2f", "c": ".3f", "tokens/forward": ".2f",
    "predicted": ".2f",
}  # fmt: skip
_FORMATS = _PREDICTED | {"measured": ".2f", "error": "+.0%", "first token, ms": ".0f", "without drafter": ".0f"}
"""The columns of the table of candidates and how their numbers are written; fewer where nothing was measured."""


def doctor_page(examination: Examination) -> Page:
    """The page, still to be written."""
    page = Page(f"Will speculation help? ({examination.described['target']})", "headstart doctor")
    verdict = examination.verdict
    page.verdict(verdict.kind, verdict.headline, verdict.batch)
    setup = examination.question.setup
    page.code(f"{load_line(setup, verdict.best)}\nheadstart generate {flags(setup, verdict.best)}")
    if doubts := warning(examination):
        page.verdict("info", "The machine was busy", doubts)
    page.heading("Why")
    page.items(verdict.reasons)
    ranked = sorted(examination.ranked, key=lambda one: -one.gain)
    if ranked:
        _candidates(page, ranked)
        _by_k(page, ranked)
        _by_position(page, ranked)
        _by_batch(page, ranked)
    if rows := not_measured(examination):
        page.heading("Not measured")
        page.table(["candidate", "why"], rows)
    _target(page, examination)
    return page


def _candidates(page: Page, ranked: Sequence[Ranked]) -> None:
    page.heading("Candidates")
    columns = list(_FORMATS if any(one.measured is not None for one in ranked) else _PREDICTED)
    rows = [[found[name] for name in columns] for found in map(figures, ranked)]
    formats = {name: _FORMATS[name] for name in columns}
    caption = "Speedups of whole answers over decoding without a drafter, one request at a time, default pacing."
    page.table(columns, rows, caption=caption, formats=formats)
    page.figure(
        charts.bars(
            [one.candidate.name for one in ranked],
            {"predicted speedup": [one.expected.speedup.value for one in ranked]},
            y="speedup over decoding without a drafter",
            low_high={"predicted speedup": charts.ends(one.expected.speedup for one in ranked)},
            reference=1.0,
        ),
        caption=f"Predicted with the default pacing: {ranked[0].candidate.name} gains "
        f"{ranked[0].expected.speedup.value:.2f}. Whiskers are intervals over prompts.",
        alt="A bar per candidate; the dashed line is decoding without a drafter.",
    )


def _by_k(page: Page, ranked: Sequence[Ranked]) -> None:
    series = {
        one.candidate.name: ([p.k for p in one.predictions], [p.speedup.value for p in one.predictions])
        for one in ranked[:_SOME]
        if one.predictions
    }
    if not series:
        return
    name, (ks, gains) = next(iter(series.items()))
    best = max(range(len(ks)), key=gains.__getitem__)
    page.figure(
        charts.lines(series, x="tokens drafted (nodes of a tree)", y="speedup", reference=1.0),
        caption=f"Predicted speedup by the length of drafts. {name} is best at {ks[best]}, with {gains[best]:.2f}.",
        alt="A line per candidate; above 1 speculation is faster than plain decoding.",
    )


def _by_position(page: Page, ranked: Sequence[Ranked]) -> None:
    series = {}
    for one in ranked[:_SOME]:
        for name, member in one.best.members.items():
            if len(one.candidate.drafters) == 1 and member.acceptance:
                series[name] = (list(range(1, len(member.acceptance) + 1)), list(member.acceptance))
    if series:
        name, (places, shares) = next(iter(series.items()))
        page.figure(
            charts.lines(series, x="position in the draft", y="accepted, once all before it were", shares=True),
            caption=f"Conditional acceptance by position, on the prompts. {name}: {shares[0]:.0%} at position 1, "
            f"{shares[-1]:.0%} at position {places[-1]}.",
            alt="A line per drafter: how often the first, second, ... guess was right.",
        )


def _by_batch(page: Page, ranked: Sequence[Ranked]) -> None:
    series = {
        one.candidate.name: (
            BATCHES, [max(p.batches[batch] for p in (one.expected, *one.predictions)) for batch in BATCHES]
        )
        for one in ranked[:_SOME]
    }  # fmt: skip
    name, (_, gains) = next(iter(series.items()))
    page.figure(
        charts.lines(series, x="requests at once", y="speedup", reference=1.0, log_x=True),
        caption=f"Predicted speedup by batch size, each time with the best length. {name}: {gains[0]:.2f} for one "
        f"request, {gains[-1]:.2f} for {BATCHES[-1]} at once.",
        alt="A line per candidate; where it falls below 1, speculation stops paying.",
    )


def _target(page: Page, examination: Examination) -> None:
    costs = examination.costs
    page.heading("The target on this machine")
    page.facts(target_facts(examination))
    v = {n: costs.v(n) for n in costs.forwards}
    series = {"measured": (list(v), list(v.values()))}
    caption = (
        f"What a step of n rows takes without drafts, over a plain step: {max(v)} rows take {v[max(v)]:.2f}. The "
        "flatter, the cheaper guesses are."
    )
    if examination.mixture is not None:
        rho = examination.mixture.routing.rho
        series = {f"measured, read for a text whose neighbours choose alike (rho = {rho:g})": series["measured"]}
        series["by the experts that such rows meet, if reading were all"] = (
            list(v), [examination.mixture.v(n) for n in v],
        )  # fmt: skip
        caption += " Measured were rows that have nothing in common; a row of a text is taken to cost as many of them."
    page.figure(
        charts.lines(series, x="rows of a forward (n)", y="v(n)", log_x=True),
        caption=caption,
        alt="v(n) by number of rows.",
    )
    page.heading("How this was made")
    page.facts(examination.provenance.rows())
