"""The answers and scenarios of `headstart simulate` on a terminal: words, tables, bars, maps of coloured cells.

Nothing depends on colour alone: cells hold their numbers, and what was asked about bears an asterisk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from rich.console import Console, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from headstart.learn.simulate import ScenarioResult
from headstart.learn.what_if.answers import Answer, Temperatures
from headstart.learn.what_if.question import Batches, WhatIf
from headstart.theory.machine import MOST_BATCH

KINDS = {"good": "bold green", "bad": "bold red", "unsure": "bold yellow"}
_LOSS, _EVEN, _GAIN = (201, 106, 30), (235, 235, 235), (20, 92, 158)  # orange to blue, for colour-blind readers too
_FULL = 1.5  # log2 of the speedup at which a cell has its full colour
_BAR = 24


def view(console: Console, found: WhatIf) -> None:
    """Print everything that was asked for."""
    for answer in found.answers:
        _answer(console, answer, found)
    if len(found.answers) == 1:
        section(console, "By K", _bars(found.answers[0], ascii_only=console.options.ascii_only))
    else:
        section(console, "Speedup by K", _by_length(found.answers))
    for compared in found.batches:
        section(console, f"Batch size, at alpha {compared.alpha:g} and K = {compared.k}", _batches(compared))
        console.print(_limits(compared))
    for heat in found.temperatures:
        section(console, f"Temperature: a toy pair with alpha {heat.at_one:.2f} at 1", _temperatures(heat))
        console.print(_toy_note(heat), style="dim")
    maps = found.maps
    alpha, k, c = maps.here or (None, None, None)
    by_k = _map("K", maps.lengths, maps.by_length, maps.alphas, (alpha, k))
    section(console, f"Speedup by alpha and K, at c = {found.costs.c():.3g}", by_k)
    by_c = _map("c", maps.draft_costs, maps.by_cost, maps.alphas, (alpha, c))
    section(console, f"Speedup by alpha and c, at K = {maps.k}", by_c)
    if maps.here is not None:
        console.print("* what was asked about", style="dim")


def section(console: Console, title: str, what: RenderableType) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    console.print(what)


def _answer(console: Console, answer: Answer, found: WhatIf) -> None:
    console.print(
        Text.assemble((answer.verdict, KINDS[answer.kind]), f" {answer.reason[:1].upper()}{answer.reason[1:]}.")
    )
    batch = "" if found.batch is None else f", batch {found.batch}"
    words = (
        f"{answer.name}, c {found.costs.c():.3g}{batch}, K = {answer.k}: "
        f"{answer.tokens:.2f} tokens per target forward, {answer.speedup:.2f}x plain decoding."
    )
    if math.isnan(answer.break_even):
        words += " Even a perfect draft would not pay at this K."
    elif answer.alpha is not None:
        words += f" Pays above alpha {answer.break_even:.2f}."
    if math.isfinite(answer.ceiling):
        words += f" No K and no c give more than {answer.ceiling:.2f}x."
    console.print(words)


def _bars(answer: Answer, *, ascii_only: bool) -> Table:
    """Tokens and speedup of each K; the bar up to 1 is plain decoding's part."""
    table = tight_table("K", "tokens", "speedup")
    table.add_column("")
    longest = max(answer.speedup_by_k)
    before, beyond = ("-", "#") if ascii_only else ("─", "█")
    for k, (tokens, gained) in enumerate(zip(answer.tokens_by_k, answer.speedup_by_k, strict=True)):
        length = round(_BAR * gained / longest)
        even = min(length, round(_BAR / longest))
        bar = Text.assemble((before * even, "dim"), (beyond * (length - even), Style(color=_hex(_GAIN))))
        note = "  best" if k == answer.best.k else ""
        if k == answer.k:
            note += "  *"
        table.add_row(str(k), f"{tokens:.2f}", cell(gained), bar + Text(note))
    return table


def _by_length(answers: Sequence[Answer]) -> Table:
    table = tight_table("K", *(answer.name for answer in answers))
    columns = [[cell(gain, here=k == each.k) for k, gain in enumerate(each.speedup_by_k)] for each in answers]
    for k, cells in enumerate(zip_longest(*columns, fillvalue=Text(""))):
        table.add_row(str(k), *cells)
    return table


def _batches(compared: Batches) -> Table:
    table = tight_table("batch", "plain tok/s", f"v({compared.k + 1})", "c", "speedup", "tok/s", "best K", "at best K")
    for row in compared.rows:
        table.add_row(
            str(row.batch), f"{row.plain:,.0f}", f"{row.verify:.2f}", f"{row.c:.3f}", cell(row.speedup),
            f"{row.speculative:,.0f}", str(row.best.k), cell(row.best.speedup),
        )  # fmt: skip
    return table


def _limits(compared: Batches) -> str:
    rows = compared.k + 1
    if math.isinf(compared.free_up_to):
        free = f"{rows} rows cost no more than one at any batch size (reading the caches takes longer)"
    elif compared.free_up_to < 1:
        free = f"{rows} rows cost more than one at any batch size"
    else:
        free = f"{rows} rows cost no more than one up to batch {math.floor(compared.free_up_to)}"
    if compared.pays_up_to >= MOST_BATCH:
        return f"{free}; drafting pays at every batch size up to {MOST_BATCH}."
    if compared.pays_up_to == 0:
        return f"{free}; drafting {compared.k} does not pay even alone."
    return f"{free}; drafting {compared.k} pays up to batch {compared.pays_up_to}."


def _temperatures(heat: Temperatures) -> Table:
    table = tight_table("T", "alpha, drawn", "best K", "speedup", "alpha, likeliest", "best K", "speedup")
    for row in heat.rows:
        table.add_row(
            f"{row.temperature:g}", f"{row.alpha:.2f}", str(row.best.k), cell(row.best.speedup),
            f"{row.point:.2f}", str(row.point_best.k), cell(row.point_best.speedup),
        )  # fmt: skip
    return table


def _toy_note(heat: Temperatures) -> str:
    words = (
        "drawn: a draft sampled at the same temperature; likeliest: one that always proposes its likeliest token. "
        "A toy shows the direction of the effect; measure your own pair with headstart doctor."
    )
    if abs(heat.at_one - heat.asked) > 0.005:
        words += f" The toy cannot have alpha {heat.asked:g}; {heat.at_one:.2f} is as near as it gets."
    return words


def _map(across: str, columns: Sequence[float], speedups: Any, alphas: Sequence[float], here: object) -> Table:
    """Speedups [alphas, columns] as coloured cells; here: the (alpha, column) that was asked about."""
    table = tight_table(f"alpha \\ {across}", *(f"{each:.3g}" for each in columns))
    for alpha, row in zip(alphas, speedups, strict=True):
        cells = [cell(value, here=(alpha, each) == here) for each, value in zip(columns, row, strict=True)]
        table.add_row(f"{alpha:g}", *cells)
    return table


def tight_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def cell(speedup: float, *, here: bool = False) -> Text:
    """The number on its colour: orange below 1, blue above, pale near it."""
    share = max(-1.0, min(1.0, math.log2(speedup) / _FULL))
    end = _GAIN if share > 0 else _LOSS
    mixed = tuple(round(a + (b - a) * abs(share)) for a, b in zip(_EVEN, end, strict=True))
    dark = 0.299 * mixed[0] + 0.587 * mixed[1] + 0.114 * mixed[2] < 140
    style = Style(color="white" if dark else "black", bgcolor=_hex(mixed), bold=here)
    return Text(f"{speedup:.2f}{'*' if here else ' '}", style=style)


def _hex(rgb: Sequence[int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in rgb)


def view_scenarios(console: Console, results: Sequence[ScenarioResult]) -> None:
    """One scenario in detail, several as a table and a line each."""
    section(console, "Simulated, and by formula", _scenarios(results))
    for result in results:
        console.print()
        console.print(Text(result.scenario.name, style="bold"))
        console.print(result.scenario.story)
        console.print(f"{result.verdict[:1].upper()}{result.verdict[1:]}.")
        if result.alternatives:
            others = ", ".join(f"{name} {one.value:.2f}" for name, one in result.alternatives.items())
            console.print(f"With other rules for K: {others}.")
        if len(results) == 1:
            shares = " ".join(f"{one.value:.2f}" for one in result.acceptance)
            error = result.speedup.standard_error
            console.print(f"{result.rounds:,} rounds, standard error {error:.3f}; acceptance by position {shares}.")


def _scenarios(results: Sequence[ScenarioResult]) -> Table:
    table = tight_table("scenario", "alpha", "K", "c", "simulated", "formula", "best K")
    table.columns[0].justify = "left"
    for result in results:
        facts = result.scenario.parameters()
        alpha = facts["alpha"]
        table.add_row(
            result.scenario.name,
            "/".join(f"{a:g}" for a in alpha) if isinstance(alpha, tuple) else f"{alpha:g}",
            str(facts["k"]),
            f"{facts['c']:g}",
            cell(result.speedup.value),
            "" if result.predicted is None else f"{result.predicted:.2f}",
            "" if result.best_k is None else str(result.best_k),
        )
    return table
