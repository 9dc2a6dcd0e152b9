"""The pages of `headstart simulate --html`: answers to a question, or simulated scenarios beside the formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart import theory
from headstart.base.as_json import as_json
from headstart.base.web.report import charts
from headstart.base.web.report.page import Page, VerdictKind
from headstart.learn.simulate import ScenarioResult
from headstart.learn.what_if.answers import Temperatures
from headstart.learn.what_if.question import Batches, WhatIf

_TWO = ".2f"


def simulate_page(found: WhatIf) -> Page:
    """The page, not yet written."""
    page = Page("What would speculation gain?", "By formula; no model was run. Measure before you rely on it.")
    for answer in found.answers:
        page.verdict(answer.kind, f"{answer.name}: {answer.verdict}", f"{answer.reason}.")
    _assumptions(page, found)
    _by_length(page, found)
    for compared in found.batches:
        _batches(page, compared)
    for heat in found.temperatures:
        _temperatures(page, heat)
    _maps(page, found)
    return page


def _assumptions(page: Page, found: WhatIf) -> None:
    page.heading("What was asked")
    widths = [n for n in (2, 4, 8, 16) if n <= found.most + 1]
    facts = {
        "acceptance": ", ".join(answer.name for answer in found.answers),
        "c, a draft step over a plain step": f"{found.costs.c():.3g}",
        "v(n), n rows over one": ", ".join(f"v({n}) {found.costs.v(n):.2f}" for n in widths),
    }
    if found.batch is not None:
        facts["batch"] = str(found.batch)
    page.facts(facts)
    columns = ["acceptance", "K", "tokens per forward", "speedup", "best K", "at best K", "break-even alpha", "ceiling"]
    rows = [[a.name, a.k, a.tokens, a.speedup, *a.best, a.break_even, a.ceiling] for a in found.answers]
    decimals = ("tokens per forward", "speedup", "at best K", "break-even alpha", "ceiling")
    caption = "Break-even: the alpha above which this K pays, if any. Ceiling: what no K and no c exceed."
    page.table(columns, as_json(rows), caption=caption, formats=dict.fromkeys(decimals, _TWO))


def _by_length(page: Page, found: WhatIf) -> None:
    page.heading("How long a draft?")
    series: dict[str, Any] = {a.name: (list(range(len(a.speedup_by_k))), list(a.speedup_by_k)) for a in found.answers}
    peaks = "; ".join(f"{a.name} is best at K = {a.best.k} with {a.best.speedup:.2f}" for a in found.answers)
    marks = [charts.Mark(a.k, a.speedup, f"K = {a.k}") for a in found.answers]
    page.figure(
        charts.lines(series, x="K, draft tokens per round", y="speedup over the baseline", marks=marks, reference=1.0),
        caption=f"{peaks}. K = 0 is plain decoding; the last tokens of a long draft are seldom reached.",
        alt=f"Speedup by draft length: {peaks}",
    )


def _batches(page: Page, compared: Batches) -> None:
    page.heading(f"Batch size, at alpha {compared.alpha:g} and K = {compared.k}")
    page.text(
        "A small batch waits for memory, so that more rows cost nothing. In a large one the processor is busy, and "
        "every rejected token is work that another request could have had."
    )
    columns = ["batch", "plain tokens/s", f"v({compared.k + 1})", "c", "speedup", "tokens/s", "best K", "at best K"]
    rows = [[r.batch, r.plain, r.verify, r.c, r.speedup, r.speculative, *r.best] for r in compared.rows]
    formats = dict.fromkeys(["speedup", "at best K", f"v({compared.k + 1})"], _TWO)
    page.table(
        columns, rows, formats=formats | {"c": ".3f", "plain tokens/s": ",.0f", "tokens/s": ",.0f"},
        caption=f"By memory bandwidth and arithmetic alone. K = {compared.k} pays up to batch {compared.pays_up_to}.",
    )  # fmt: skip
    sizes = [row.batch for row in compared.curve]
    series: dict[str, Any] = {
        f"K = {compared.k}": (sizes, [row.speedup for row in compared.curve]),
        "best K": (sizes, [row.best.speedup for row in compared.curve]),
    }
    page.figure(
        charts.lines(series, x="requests in a batch", y="speedup over the baseline", reference=1.0),
        caption=f"K = {compared.k} pays up to batch {compared.pays_up_to}. Below 1 plain decoding is faster; the best "
        "K may be 0.",
        alt="; ".join(f"batch {row.batch}: {row.speedup:.2f}" for row in compared.rows),
    )


def _temperatures(page: Page, heat: Temperatures) -> None:
    page.heading(f"Temperature: a toy pair with alpha {heat.at_one:.2f} at 1")
    page.text(
        "Drawn: the draft is sampled at the same temperature. Likeliest: it always proposes its likeliest token, as "
        "greedy drafts and n-gram matches do. A toy shows the direction of the effect, not its size for your pair."
    )
    rows = [[r.temperature, r.alpha, *r.best, r.point, *r.point_best] for r in heat.rows]
    of_each = ("alpha, drawn", "best K", "speedup", "alpha, likeliest", "best K, likeliest", "speedup, likeliest")
    names = ["temperature", *of_each]
    page.table(names, rows, formats=dict.fromkeys([names[1], names[3], names[4], names[6]], _TWO))
    hottest = heat.rows[-1]
    xs = [row.temperature for row in heat.curve]
    series: dict[str, Any] = {
        "drawn": (xs, [row.alpha for row in heat.curve]),
        "likeliest": (xs, [row.point for row in heat.curve]),
    }
    page.figure(
        charts.lines(series, x="temperature", y="alpha"),
        caption=f"Acceptance of the toy at temperature {hottest.temperature:g}: {hottest.alpha:.2f} where the draft is "
        f"drawn, {hottest.point:.2f} where it is the likeliest token.",
        alt="; ".join(f"at {r.temperature:g}: drawn {r.alpha:.2f}, likeliest {r.point:.2f}" for r in heat.rows),
    )


def _maps(page: Page, found: WhatIf) -> None:
    """The same maps as on a terminal, with finer steps."""
    page.heading("Where you are, and where it would pay")
    here, costs, k = found.maps.here, found.costs, found.maps.k
    alphas = np.linspace(0.2, 0.95, 16).round(2)
    lengths = np.arange(1, max(found.most, k) + 1)
    drafts = np.linspace(0, max(0.5, 1.2 * costs.c()), 21).round(4)
    by_length = theory.alpha_k_table(alphas, lengths, costs.c(), costs.v)
    by_cost = theory.alpha_c_table(alphas, drafts, k, costs.v)
    by_length_caption = f"by alpha and K, at c = {costs.c():.3g}. A line, where there is one, is where it breaks even."
    for place, x, across, speedups, caption, change in (
        (1, "K", lengths, by_length, by_length_caption, "rising with alpha; so does the best K"),
        (2, "c", drafts, by_cost, f"by alpha and draft cost, at K = {k}.", "rising with alpha and falling with c"),
    ):
        marks = [charts.Mark(here[place], here[0], "you are here")] if here else []
        page.figure(
            charts.colour_map(
                across.tolist(), alphas.tolist(), speedups, x=x, y="alpha", z="speedup", middle=1.0, marks=marks
            ),
            caption=f"Speedup from {speedups.min():.2f} to {speedups.max():.2f} {caption}",
            alt=f"Speedups from {speedups.min():.2f} to {speedups.max():.2f}, {change}",
        )


def scenarios_page(results: Sequence[ScenarioResult]) -> Page:
    """The page, not yet written."""
    page = Page("Would it help?", "Situations that people meet, simulated round by round. Speedup over the baseline.")
    names = [result.scenario.name for result in results]
    gains = [result.speedup for result in results]
    lows, highs = ([gain.value + sign * 2 * gain.standard_error for gain in gains] for sign in (-1, 1))
    page.figure(
        charts.bars(
            names,
            {"simulated": [gain.value for gain in gains]},
            y="speedup over the baseline",
            low_high={"simulated": (lows, highs)},
            reference=1.0,
        ),
        caption=f"From {min(gain.value for gain in gains):.2f} to {max(gain.value for gain in gains):.2f}; below 1 "
        "plain decoding is faster. Whiskers: two standard errors.",
        alt="; ".join(f"{name}: {gain.value:.2f}" for name, gain in zip(names, gains, strict=True)),
    )
    columns = ["scenario", "acceptance", "K", "c", "simulated", "standard error", "by formula", "best K", "at best K"]
    rows = []
    for one in results:
        alpha, k = one.scenario.alpha, one.scenario.k
        accepted = " and ".join(map(str, alpha)) if isinstance(alpha, tuple) else str(alpha)
        asked = (one.scenario.name, accepted, str(k) if isinstance(k, int) else "follows the text", one.scenario.c)
        rows.append((*asked, *one.speedup, one.predicted, one.best_k, one.best_speedup))
    decimals = dict.fromkeys(["simulated", "by formula", "at best K"], ".2f")
    page.table(columns, rows, formats=decimals | {"standard error": ".3f"})
    kinds: dict[bool | None, VerdictKind] = {True: "good", False: "bad", None: "unsure"}
    for result in results:
        words = {"oracle": "a K that knows what will pass"}
        others = "; ".join(f"{words.get(name, name)}: {one.value:.2f}" for name, one in result.alternatives.items())
        headline = f"{result.scenario.name}: {result.verdict}"
        story = result.scenario.story + (f" Other rules: {others}." if others else "")
        page.verdict(kinds[result.pays], headline[0].upper() + headline[1:], story)
    return page
