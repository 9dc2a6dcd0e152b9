"""What `headstart bench` prints: the conclusion, a table by category, details of both arms; and of a comparison."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headstart.base.words import counted
from headstart.commands.figures import percent
from headstart.commands.terminal import harmless, table_of
from headstart.measure.bench.sweep import c_of, step_costs, sweep_points, why_not_predicted
from headstart.measure.bench.verdict import conclude

if TYPE_CHECKING:
    from headstart.measure.bench.comparison import Change, Comparison
    from headstart.measure.bench.result import BenchResult
    from headstart.measure.bench.summary import Figures

_COLOURS = {"good": "green", "bad": "red", "unsure": "yellow", "info": "cyan"}
_JUDGEMENTS = {"slower": "red", "faster": "green", "no difference": "dim"}
_SHORT = {"no difference": "-"}
_POSITIONS = 8
_MIB = 2**20


def print_result(console: Console, result: BenchResult, figures: Sequence[Figures]) -> None:
    """figures: of `summarise`, not empty."""
    found = conclude(result, list(figures))
    console.print(Text(found.headline, style=f"bold {_COLOURS[found.kind]}"))
    for reason in found.reasons:
        console.print(Text(harmless(reason)))
    facts = result.engine
    console.print(
        Text(
            harmless(
                f"target {facts['target']} · drafter {facts['drafter']} · {facts['dtype']} on {facts['device']}, "
                f"{counted(facts['threads'], 'thread')} · pacing {facts['pacing']} · {figures[0].trials} paired runs"
                + (f" · prompts: {result.forms}" if result.forms else "")
            ),
            style="dim",
        )
    )
    console.print(_by_category(figures))
    console.print(_details(result, figures[0]))
    for words in _costs(result, figures[0]):
        console.print(Text(harmless(words)))
    if result.sweep:
        console.print(_sweep(result))
    for words in _remarks(result):
        console.print(Text(words, style="dim"))


def print_comparison(console: Console, found: Comparison, fail_below: float | None) -> bool:
    """Print the comparison; return whether a speedup is below `fail_below` percent of what it was."""
    colour = "bold" if found.verdict == "no difference" else f"bold {_JUDGEMENTS[found.verdict]}"
    console.print(Text(f"The second result: {found.words}.", style=colour))
    columns = ("", "figure", "first", "second", "second/first", "beyond\nnoise")
    table = table_of(*columns, left=("", "figure"), whole=("figure", "second/first"))
    for row in found.rows:
        for title, change in (("speedup", row.speedup), ("tokens/forward", row.tokens_per_forward)):
            judged = Text(_SHORT.get(change.judgement, change.judgement), style=_JUDGEMENTS[change.judgement])
            table.add_row(harmless(row.category), title, *_values(change), judged)
        for title, change in (("tokens/s", row.fast), ("plain tokens/s", row.plain)):
            table.add_row("", title, *_values(change), "", style="dim")
    console.print(table)
    for words in _on_comparison(found):
        console.print(Text(harmless(words), style="yellow"))
    for name, (before, after) in found.settings.items():
        console.print(Text(harmless(f"changed: {name}: {_shown(before)} → {_shown(after)}")))
    below = [] if fail_below is None else found.below(fail_below)
    for row in below:
        words = f"failed: {row.category} has {row.speedup.ratio.value:.0%} of its speedup, less than {fail_below:g}%"
        console.print(Text(harmless(words), style="bold red"))
    return bool(below)


def _by_category(figures: Sequence[Figures]) -> Table:
    rows = []
    for each in figures:
        speedup = each.speedup
        colour = "green" if speedup.low > 1 else "red" if speedup.high < 1 else "yellow"
        rows.append((
            each.category, each.prompts, f"{each.tokens_per_forward.value:.2f}", Text(speedup.times, style=colour),
            f"{each.plain.tokens_per_second:.4g} → {each.fast.tokens_per_second:.4g}",
            "-" if each.differing is None else f"{each.runs - each.differing} of {each.runs}",
        ))  # fmt: skip
    columns = ("", "prompts", "tokens/\nforward", "speedup (95%)", "tokens/s", "same text")
    return table_of(*columns, whole=("speedup (95%)",), rows=rows)


def _details(result: BenchResult, overall: Figures) -> Table:
    """Of both arms, all categories together."""
    table = table_of("", "plain", "speculative")
    arms = (overall.plain, overall.fast)
    titles = {
        "first_token": "first token, ms (P50 P90 P99)",
        "per_output_token": "per output token, ms",
        "gap": "gap between chunks, ms",
    }
    for name, title in titles.items():
        table.add_row(title, *(_milliseconds(getattr(arm, name)) for arm in arms))
    for part in overall.fast.time_split:
        table.add_row(f"  time in {part}", *(percent(arm.time_split.get(part, 0.0)) for arm in arms), style="dim")
    if not result.no_energy:
        joules = ("-" if arm.joules_per_token is None else f"{arm.joules_per_token:.3g}" for arm in arms)
        table.add_row("energy, J per token", *joules)
    return table


def _costs(result: BenchResult, overall: Figures) -> list[str]:
    found = []
    if overall.positions:
        shares = [
            f"{100 * p.share.value:.0f} ({100 * p.share.low:.0f}-{100 * p.share.high:.0f})"
            for p in overall.positions[:_POSITIONS]
        ]
        more = " ..." if len(overall.positions) > _POSITIONS else ""
        found.append(f"accepted by position, if reached, %: {' '.join(shares)}{more}")
    costs = step_costs(result)
    if costs is not None:
        found.append("v(n), a step of n rows: " + " · ".join(f"{n}: {costs.v(n):.2f}" for n in costs.forwards))
        for name, source in overall.sources.items():
            if name in costs.drafts:
                c = c_of(costs, name, source)
                found.append(f"c of {name}, per drafted level: {c:.3f}")
    return found


def _sweep(result: BenchResult) -> Table:
    rows = [
        (
            point.k,
            point.speedup.times,
            f"{point.predicted:.2f}x" if math.isfinite(point.predicted) else "-",
            f"{point.tokens_per_forward:.2f}",
        )
        for point in sweep_points(result)
    ]
    return table_of("K", "speedup", "predicted", "tokens/forward", rows=rows)


def _remarks(result: BenchResult) -> list[str]:
    sizes = {name: value for name, value in result.memory.items() if value}
    found = ["memory, MiB: " + " · ".join(f"{name.replace('_', ' ')} {v / _MIB:.0f}" for name, v in sizes.items())]
    if result.no_energy:
        found.append(f"energy: not known, because {result.no_energy}")
    if result.sweep and (why := why_not_predicted(result)):
        found.append(f"speedup by K is not predicted: {why}")
    return found


def _on_comparison(found: Comparison) -> list[str]:
    remarks = [f"The {which} result was interrupted; what it finished was compared." for which in found.incomplete]
    if found.missing:
        remarks.append(f"{found.prompts} prompts were compared; {found.missing} are in one of the results only.")
    if any(not row.speedup.ratio.known for row in found.rows):
        remarks.append("Where there is one prompt (or batch) there is no interval, and nothing can be told from noise.")
    return [*remarks, *([found.machine] if found.machine else [])]


def _values(change: Change) -> tuple[str, str, str]:
    return f"{change.before:.4g}", f"{change.after:.4g}", change.ratio.times.replace("x", "")


def _milliseconds(quantiles: Mapping[str, float]) -> str:
    return " ".join(f"{1000 * value:.2f}" if math.isfinite(value) else "-" for value in quantiles.values())


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
