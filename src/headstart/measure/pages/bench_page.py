"""A bench as one page: what it comes to, then by category, by position, by K, by request, and where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headstart import theory
from headstart.base.as_json import as_json
from headstart.base.web.report import charts
from headstart.base.web.report.page import Page
from headstart.engine.in_turn import PARTS_IN_WORDS
from headstart.measure.bench.result import FAST, PLAIN, BenchResult
from headstart.measure.bench.summary import SHARES, ArmFigures, Figures, paired
from headstart.measure.bench.sweep import Here, c_of, here, step_costs, sweep_points, why_not_predicted
from headstart.measure.bench.verdict import conclude
from headstart.measure.provenance import Provenance

_MIB = 2**20
_LEAST_JUDGED = 5  # guesses: acceptance of positions reached less often is left out of the plot
_MAP_K = 12
_COLOURS = {"plan": "strong-line", "draft": "q", "verify": "p", "sample": "r", "commit": "soft", "other": "line"}
"""Of the parts of a step, as in the ribbon of rounds of a trace."""


def bench_page(result: BenchResult, figures: Sequence[Figures]) -> Page:
    """figures: of `summarise`, not empty."""
    overall = figures[0]
    facts = result.engine
    page = Page("How fast is it here?", f"{facts['target']} with drafter {facts['drafter']}, {facts['dtype']}")
    found = conclude(result, list(figures))
    page.verdict(found.kind, found.headline, " ".join(found.reasons))
    _add_categories(page, result, figures)
    _add_acceptance(page, overall)
    _add_lengths(page, result)
    _add_map(page, here(result, overall))
    _add_latency(page, result, overall)
    _add_prompts(page, result)
    _add_split(page, overall)
    _add_costs(page, result, overall)
    _add_origin(page, result)
    return page


def _add_categories(page: Page, result: BenchResult, figures: Sequence[Figures]) -> None:
    page.heading("Speedup")
    page.text(
        "Seconds per token of plain decoding over those of speculation, on the same prompts, run right after each "
        "other. The interval holds 95 times in 100 for other prompts of the same kind."
        + (f" Prompts as they were sent: {result.forms}." if result.forms else "")
    )
    columns = ["", "prompts", "tokens per forward", "speedup", "from", "to", "plain tokens/s", "tokens/s", "same text"]
    page.table(
        columns,
        [
            [
                each.category,
                each.prompts,
                each.tokens_per_forward.value,
                each.speedup.value,
                *as_json([each.speedup.low, each.speedup.high]),
                each.plain.tokens_per_second,
                each.fast.tokens_per_second,
                None if each.differing is None else f"{each.runs - each.differing} of {each.runs}",
            ]
            for each in figures
        ],
        formats=dict.fromkeys(columns[2:6], ".2f") | dict.fromkeys(columns[6:8], ".1f"),
    )
    page.figure(
        charts.bars(
            [each.category for each in figures],
            {"speedup": [each.speedup.value for each in figures]},
            y="speedup",
            low_high={"speedup": charts.ends(each.speedup for each in figures)},
            reference=1.0,
        ),
        caption=f"Speedup from {min(each.speedup.value for each in figures):.2f} to "
        f"{max(each.speedup.value for each in figures):.2f}, with 95% intervals. Below 1, speculation is slower than "
        "plain decoding.",
        alt="; ".join(f"{each.category}: {each.speedup.times}" for each in figures),
    )


def _add_acceptance(page: Page, overall: Figures) -> None:
    shown = [each for each in overall.positions if each.judged >= _LEAST_JUDGED]
    if not shown:
        return
    page.heading("Acceptance by position")
    page.figure(
        charts.lines(
            {"accepted": ([p.position for p in shown], [p.share.value for p in shown])},
            x="position in the draft",
            y="accepted, if reached",
            bands={"accepted": charts.ends(p.share for p in shown)},
            shares=True,
        ),
        caption=f"{shown[0].share.value:.0%} at position {shown[0].position}, {shown[-1].share.value:.0%} at position "
        f"{shown[-1].position}. Of the guesses at each position whose predecessors were all accepted, the share that "
        f"was accepted too, with 95% intervals. Positions reached fewer than {_LEAST_JUDGED} times are left out.",
        alt=", ".join(f"position {p.position}: {p.share.value:.0%}" for p in shown),
    )


def _add_lengths(page: Page, result: BenchResult) -> None:
    points = sweep_points(result)
    if not points:
        return
    page.heading("Speedup by draft length")
    ks = [point.k for point in points]
    best = max(points, key=lambda point: point.speedup.value)
    series = {"measured": (ks, [point.speedup.value for point in points])}
    why = why_not_predicted(result)
    if not why:
        series["predicted"] = (ks, [point.predicted for point in points])
    page.figure(
        charts.lines(
            series,
            x="K, tokens drafted per step",
            y="speedup",
            bands={"measured": charts.ends(point.speedup for point in points)},
            dashed=["predicted"],
            reference=1.0,
        ),
        caption=f"K = {best.k} was best, with {best.speedup.value:.2f}. Fixed draft lengths on some of the prompts, "
        "with 95% intervals. "
        + (f"No prediction: {why}." if why else "Predicted from measured costs and acceptance by position."),
        alt="; ".join(f"K={point.k}: {point.speedup.times}" for point in points),
    )


def _add_map(page: Page, place: Here | None) -> None:
    if place is None:
        return
    page.heading("Where this stands")
    k = max(1, round(place.k))
    ks = list(range(1, max(_MAP_K, k + 3) + 1))
    alphas = [round(float(alpha), 2) for alpha in np.linspace(0.3, 1.0, 29)]
    table = theory.alpha_k_table(alphas, ks, place.c, place.v)
    best = place.best_k
    page.figure(
        charts.colour_map(
            ks,
            alphas,
            table,
            x="K, levels drafted per step",
            y="alpha, acceptance",
            z="speedup",
            marks=[charts.Mark(k, max(place.alpha, alphas[0]), "you are here")],
            middle=1.0,
        ),
        caption=f"Speedup by acceptance and draft length at the measured costs (c = {place.c:.3f}, and v(n) as below), "
        f"if every guess had the same chance. The line is break-even. Best K at alpha {place.alpha:.2f}: {best.k}.",
        alt=f"you are at alpha {place.alpha:.2f} and K {place.k:.1f}; break-even there is at alpha "
        f"{place.break_even:.2f}",
    )


def _add_latency(page: Page, result: BenchResult, overall: Figures) -> None:
    page.heading("Waiting")
    arms = {PLAIN: overall.plain, FAST: overall.fast}
    names = {"first_token": "first token", "per_output_token": "per output token", "gap": "gap between chunks"}
    rows = [
        as_json([f"{what}, {arm}", *(1000 * seconds for seconds in getattr(found, name).values())])
        for name, what in names.items()
        for arm, found in arms.items()
    ]
    columns = ["milliseconds", *SHARES]
    page.table(columns, rows, formats=dict.fromkeys(columns[1:], ".2f"))
    runs = {
        arm: [run for each in paired(result.trials) if each.arm == arm for run in each.runs] for arm in (PLAIN, FAST)
    }
    for title, samples in {
        "gap between two chunks, ms": {arm: [1000 * g for run in of for g in run.gaps] for arm, of in runs.items()},
        "time to the first token, ms": {arm: [1000 * run.first for run in of] for arm, of in runs.items()},
    }.items():
        page.figure(
            charts.distributions(samples, x=title, log=True),
            caption=f"The {title.removesuffix(', ms')}: "
            + ", ".join(f"{arm} {np.median(found):.2f} ms" for arm, found in samples.items() if found)
            + " in the median."
            + (" A chunk of speculation holds several tokens." if "chunks" in title else ""),
            alt=f"{title}: see the table above",
        )


def _add_prompts(page: Page, result: BenchResult) -> None:
    page.heading("Prompt by prompt")
    trials = paired(result.trials)
    rates: dict[int, dict[str, list[float]]] = {}
    for each in trials:
        rates.setdefault(each.unit, {}).setdefault(each.arm, []).append(each.tokens / each.seconds)
    above = 0
    series: dict[str, tuple[list[float], list[float], list[str]]] = {}
    for unit, arms in sorted(rates.items()):
        xs, ys, names = series.setdefault(result.category(unit), ([], [], []))
        xs.append(float(np.median(arms[PLAIN])))
        ys.append(float(np.median(arms[FAST])))
        above += ys[-1] > xs[-1]
        names.append(", ".join(result.prompts[index].name or f"prompt {index + 1}" for index in result.units[unit]))
    page.figure(
        charts.scatter(series, x="plain, tokens/s", y="speculative, tokens/s", diagonal=True),
        caption=f"{above} of {len(rates)} points lie above the line, where speculation is faster. A point is a prompt "
        "(or a batch), the median of its repetitions.",
        alt=f"{len(rates)} points; those above the diagonal are faster with speculation",
    )


def _add_split(page: Page, overall: Figures) -> None:
    page.heading("Where the time goes")

    def milliseconds(arm: ArmFigures, part: str) -> float:
        return 1000 * arm.time_split.get(part, 0.0) * arm.seconds / arm.tokens

    arms = {PLAIN: overall.plain, FAST: overall.fast}
    times = "; ".join(f"{name}: {1000 * arm.seconds / arm.tokens:.2f} ms per token" for name, arm in arms.items())
    page.figure(
        charts.stacked(
            list(arms),
            {words: [milliseconds(arm, part) for arm in arms.values()] for part, words in PARTS_IN_WORDS.items()},
            y="milliseconds per token",
            colours={PARTS_IN_WORDS[part]: colour for part, colour in _COLOURS.items()},
        ),
        caption=f"Time per token by part. {times}.",
        alt=times,
    )


def _add_costs(page: Page, result: BenchResult, overall: Figures) -> None:
    page.heading("Costs")
    costs = step_costs(result)
    if costs is not None:
        page.table(
            ["rows of a forward", "milliseconds", "v(n)"],
            [[n, 1000 * costs.forward(n), costs.v(n)] for n in costs.forwards],
            formats={"milliseconds": ".3f", "v(n)": ".2f"},
        )
        sources = [(name, each) for name, each in overall.sources.items() if name in costs.drafts]
        page.table(
            ["drafter", "drafts", "tokens drafted", "accepted", "levels per draft", "c, per level"],
            [
                [name, each.drafts, each.nodes, each.accepted, each.depth / each.drafts,
                 c_of(costs, name, each)]
                for name, each in sources
            ],
            formats={"levels per draft": ".1f", "c, per level": ".3f"},
        )  # fmt: skip
    facts = {f"{name.replace('_', ' ')}, MiB": f"{v / _MIB:.0f}" for name, v in result.memory.items() if v is not None}
    for name, arm in ((PLAIN, overall.plain), (FAST, overall.fast)):
        if arm.joules_per_token is not None:
            facts[f"energy, {name}"] = f"{arm.joules_per_token:.3g} J per token"
    if result.no_energy:
        facts["energy"] = f"not known: {result.no_energy}"
    page.facts(facts)


def _add_origin(page: Page, result: BenchResult) -> None:
    page.heading("Where this comes from")
    page.facts(Provenance(**result.provenance).rows())
    page.code("\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in _flat(result.settings)))


def _flat(values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Sampling's options stand among the settings: no name is in both."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value and name == "sampling":
            yield from value.items()
        else:
            yield name, value
