"""The answer of `headstart simulate --ssd` on a terminal: verdict, where a round's time goes, the lanes as letters."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headstart.learn.simulate.ssd import LANES, Span
from headstart.learn.views.answers import KINDS, cell, section, tight_table
from headstart.learn.what_if.ssd import FanOut, Prospect, SsdAnswer

LETTERS = {"verify": "V", "glue": "g", "levels": "L", "hand over": "h", "draft now": "D"}
_STYLES = {"V": "blue", "g": "dim", "L": "green", "h": "yellow", "D": "red"}
_WIDTH, _SHOWN = 70, 3
"""Columns of the picture of the lanes, and rounds in it."""


def view_ssd(console: Console, answer: SsdAnswer) -> None:
    """Print one prospect in detail, or all placements as a table."""
    if len(answer.prospects) > 1:
        _placements(console, answer.prospects)
        return
    found = answer.prospects[0]
    _verdict(console, found)
    section(console, f"Time of a round, {found.unit}", _times(found))
    section(console, "The first rounds", _lanes(found.ahead.spans, found.unit))
    console.print("V verify, g glue, L a level of all drafts, h hand over, D draft now, . nothing", style="dim")
    if answer.fan_outs:
        section(console, "Another fan-out, after every number of accepted tokens", _fan_outs(answer.fan_outs, found))
    _sources(console, found)


def _placements(console: Console, prospects: Sequence[Prospect]) -> None:
    section(console, "Drafting ahead, simulated; a round in ms", _table(prospects))
    console.print("h hit rate, E tokens a round; x plain, x turn: over the baseline and drafting in turn", style="dim")
    for found in prospects:
        published = found.placement.published
        measured = "" if published is None else f" Measured: {published:.2f}x."
        console.print()
        console.print(Text(found.placement.name, style="bold"))
        console.print(Text.assemble((found.verdict, KINDS[found.kind]), f" {found.reason}{measured}"))
    console.print()
    console.print("--placement NAME shows one in detail: where its figures come from, and its lanes.", style="dim")


def _table(prospects: Sequence[Prospect]) -> Table:
    table = tight_table("", "K", "h", "E", "in turn", "ahead", "x plain", "x turn")
    table.columns[0].justify = "left"
    for found in prospects:
        run = found.ahead
        table.add_row(
            found.placement.name, str(found.placement.plan.k), f"{run.hit_rate:.2f}", f"{run.tokens_per_round:.2f}",
            f"{found.in_turn.round_time:.2f}", f"{run.round_time:.2f}", cell(found.over_plain),
            cell(found.over_in_turn),
        )  # fmt: skip
    return table


def _verdict(console: Console, found: Prospect) -> None:
    plan, run = found.placement.plan, found.ahead
    console.print(Text.assemble((found.verdict, KINDS[found.kind]), f" {found.reason}"))
    branches = sum(plan.outs(plan.k))
    alpha = "/".join(f"{a:.3g}" for a in plan.acceptance)
    batch = f", batch {plan.batch}" if plan.batch > 1 else ""
    console.print(
        f"{found.placement.name}: alpha {alpha}, K = {plan.k}{batch}, {branches} foreseen outcomes a request, hit rate "
        f"{run.hit_rate:.2f}. {run.tokens_per_round:.2f} tokens a round, {found.over_plain:.2f}x plain decoding; "
        f"drafting in turn is {found.in_turn_over_plain:.2f}x plain."
    )
    if found.unit == "ms":
        rate, turn = (1000 * each.rate.value / plan.batch for each in (run, found.in_turn))
        console.print(f"Tokens/s of a request: {rate:.1f} ahead, {turn:.1f} in turn.")
    if found.by_formula == found.by_formula:
        console.print(f"The formula, which knows means only, says {found.by_formula:.2f}x drafting in turn.")


def _times(found: Prospect) -> Table:
    """What the target's time and the drafter's time go into, ahead and in turn."""
    table = tight_table("lane", "", "in turn", "ahead")
    table.columns[0].justify = table.columns[1].justify = "left"
    words = {"sharing": "slowed by sharing", "wait": "waits for drafts", "draft now": "waits: drafting now",
             "hand over": "hands over"}  # fmt: skip
    for name, time in found.ahead.target.items():
        turn = found.in_turn.target[name] / found.in_turn.rounds
        _row(table, "target" if name == "verify" else "", words.get(name, name), turn, time / found.ahead.rounds)
    _row(table, "", "a round", found.in_turn.round_time, found.ahead.round_time)
    kinds = ("glue", "levels", "draft now")
    for name in kinds:
        turn, ahead = (run.draft.get(name, 0.0) / run.rounds for run in (found.in_turn, found.ahead))
        _row(table, "drafter" if name == kinds[0] else "", name, turn, ahead)
    idle = [f"{run.idle['draft']:.0%}" for run in (found.in_turn, found.ahead)]
    table.add_row("", "idle", *idle)
    return table


def _row(table: Table, lane: str, name: str, turn: float, ahead: float) -> None:
    table.add_row(lane, name, f"{turn:.2f}", f"{ahead:.2f}")


def _lanes(spans: Sequence[Span], unit: str) -> Text:
    """Both lanes over the first rounds, a letter for what each does most of the time of a column."""
    shown = [span for span in spans if span.round < _SHOWN]
    begin, end = min(span.start for span in shown), max(span.end for span in shown)
    width = (end - begin) / _WIDTH
    text = Text()
    for lane in LANES:
        text.append(f"{lane if lane == 'target' else 'drafter':<9}")
        mine = [span for span in shown if span.lane == lane]
        for column in range(_WIDTH):
            at = begin + (column + 0.5) * width
            letter = next((LETTERS[span.kind] for span in mine if span.start <= at < span.end), ".")
            text.append(letter, style=_STYLES.get(letter, "dim"))
        text.append("\n")
    text.append(f"{'':9}0{f'{end - begin:.3g} {unit}':>{_WIDTH - 1}}", style="dim")
    return text


def _fan_outs(rows: Sequence[FanOut], found: Prospect) -> Table:
    table = tight_table("F", "branches", "hit rate", f"round, {found.unit}", "x turn", "")
    best = max(row.over_in_turn for row in rows)
    for row in rows:
        gain, mark = cell(row.over_in_turn), "best" if row.over_in_turn == best else ""
        table.add_row(str(row.fan_out), str(row.branches), f"{row.hit_rate:.2f}", f"{row.round_time:.2f}", gain, mark)
    return table


def _sources(console: Console, found: Prospect) -> None:
    if found.placement.known or found.placement.assumed:
        console.print()
    if found.placement.known:
        console.print(f"Known: {found.placement.known}", soft_wrap=False)
    if found.placement.assumed:
        console.print(f"Assumed: {found.placement.assumed}")
    if found.placement.published is not None:
        console.print(f"Measured by others: {found.placement.published:.2f}x drafting in turn.")
