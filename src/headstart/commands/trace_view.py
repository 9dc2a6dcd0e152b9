"""A trace on the terminal: tables, and the text with the origin of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headstart.commands.figures import ahead_facts, percent, percentages
from headstart.commands.terminal import facts_table, harmless, table_of
from headstart.engine.trace.format import Header
from headstart.engine.trace.reader import Trace, TracedRequest
from headstart.engine.trace.summary import Summary, summarise
from headstart.learn.what_if.recorded import Counts, WhatIf, what_if
from headstart.types import PARTS

_STYLES = {"accepted": "underline", "bonus": "underline2", "correction": "italic", "plain": ""}
"""How a token is set, by where it comes from. Not by colour alone: terminals differ, and so do eyes."""
_LONGEST = 24
"""Characters of a guess that a table shows."""


def view(console: Console, trace: Trace, requests: Sequence[TracedRequest], k: int | None) -> None:
    """Print what there is to know. One request is shown in full, several are compared."""
    console.print(_header(trace.header))
    summaries = [summarise(each) for each in requests]
    if len(requests) == 1:
        _one(console, requests[0], summaries[0])
    elif requests:
        console.print(_table(summaries))
        console.print("--request N shows one of them in full.", style="dim")
    else:
        console.print("No request was recorded.")
    if k is not None:
        for each in requests:
            console.print(Text(_in_words(what_if(trace, each, k), several=len(requests) > 1)), soft_wrap=True)


def _header(header: Header) -> Table:
    engine = header.engine
    names = ", ".join(f"{name} {number}" for name, number in header.versions.items())
    facts = [
        ("recorded", header.created + (f"  {header.command}" if header.command else "")),
        *((name, str(engine.get(name, "?"))) for name in ("target", "drafter", "rule", "pacing")),
        ("versions", names),
    ]
    return facts_table([*facts, ("note", header.note)] if header.note else facts)


def _table(summaries: Sequence[Summary]) -> Table:
    return table_of(
        "request", "tokens", "forwards", "tokens/forward", "accepted of judged", "by position", "end",
        rows=[
            (
                each.request, each.tokens, each.forwards, f"{each.tokens_per_forward:.2f}",
                f"{each.accepted} of {each.judged}", percentages(each.conditional), each.finish_reason or "cut off",
            )
            for each in summaries
        ],
    )  # fmt: skip


# -- one request ------------------------------------------------------------------------------------------------------


def _one(console: Console, request: TracedRequest, found: Summary) -> None:
    console.print()
    console.print(_text(request))
    console.print(
        Text.assemble(
            "guessed and accepted: ", ("underlined", _STYLES["accepted"]),
            "; in place of a refused guess: ", ("italic", _STYLES["correction"]),
            "; after a draft that was accepted whole: ", ("twice underlined", _STYLES["bonus"]), style="dim",
        )
    )  # fmt: skip
    console.print()
    console.print(facts_table(_facts(request, found)))
    for name, table in (
        ("Acceptance by depth, once all guesses before were accepted", _by_depth(found)),
        ("Drafters", _by_source(found)),
        ("Rounds that lost the most", _worst(found)),
        ("Why so much was drafted", _reasons(found)),
    ):
        if table.row_count:
            console.print()
            console.print(name, style="bold")
            console.print(table)


def _text(request: TracedRequest) -> Text:
    """The output, each token set by its origin."""
    whole = Text()
    for token in request.line.before:
        whole.append(harmless(request.text(token)), style="dim")
    for text, origin in _origins(request):
        whole.append(harmless(text), style=_STYLES[origin])
    return whole


def _origins(request: TracedRequest) -> Iterator[tuple[str, str]]:
    for step in request.steps:
        for place, token in enumerate(step.emitted):
            last = "plain" if step.end is None else step.end.kind
            yield request.text(token), "accepted" if place < step.accepted else last


def _facts(request: TracedRequest, found: Summary) -> list[tuple[str, str]]:
    spent = sum(found.seconds.values())
    sampling = ", ".join(f"{name} {value}" for name, value in request.line.sampling.items())
    reading = f", and {found.prefills} to read the prompt" if found.prefills else ""
    facts = [
        ("tokens", f"{found.tokens}, {found.finish_reason or 'the recording ended first'}"),
        ("target forwards", f"{found.forwards}{reading}"),
        ("tokens per forward", f"{found.tokens_per_forward:.2f}"),
        ("guesses", f"{found.accepted} accepted of {found.judged} judged, {found.drafted} drafted"),
        ("rounds", _rounds(found)),
        *([] if found.ahead is None else ahead_facts(found.ahead)),
        *([("experts met", _experts(found))] if found.experts else []),
        ("time", " · ".join(f"{part} {percent(found.seconds[part] / spent)}" for part in PARTS) if spent else "-"),
        ("sampling", f"{sampling}, seed {request.line.seed}, rule {request.line.rule}"),
    ]
    if request.end is not None and request.end.error is not None:
        facts.append(("error", request.end.error))
    return facts


def _experts(found: Summary) -> str:
    return ", ".join(f"{n} row{'s' * (n > 1)}: {met:.0f}" for n, met in found.experts.items())


def _rounds(found: Summary) -> str:
    parts = [f"{count} refused at guess {depth}" for depth, count in found.refused_at.items() if depth]
    if found.refused_at.get(0):
        parts.insert(0, f"{found.refused_at[0]} accepted whole")
    if found.plain:
        parts.append(f"{found.plain} without a draft")
    return ", ".join(parts) or "-"


def _by_depth(found: Summary) -> Table:
    counts = enumerate(zip(found.tested_by_depth, found.accepted_by_depth, strict=True), start=1)
    rows = [(depth, tested, accepted, percent(accepted / tested)) for depth, (tested, accepted) in counts]
    return table_of("depth", "judged", "accepted", "", rows=rows)


def _by_source(found: Summary) -> Table:
    rows = [(name, each.drafts, each.drafted, each.judged, each.accepted) for name, each in found.by_source.items()]
    return table_of("drafter", "drafts", "drafted", "judged", "accepted", left=("drafter",), rows=rows)


def _worst(found: Summary) -> Table:
    columns = ("step", "guess", "lost", "guessed", "came instead", "p", "q")
    rows = [
        (
            each.i,
            each.depth,
            each.lost,
            _quoted(each.guess),
            _quoted(each.instead),
            *map(_probability, (each.p, each.q)),
        )
        for each in found.worst
    ]
    return table_of(*columns, left=("guessed", "came instead"), rows=rows)


def _reasons(found: Summary) -> Table:
    rows = [(count, reason or "no reason was given") for reason, count in found.reasons.items()]
    return table_of("rounds", "reason", left=("reason",), rows=rows)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def _probability(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


# -- what if ----------------------------------------------------------------------------------------------------------


def _in_words(answer: WhatIf, *, several: bool) -> str:
    """One sentence for the answer, one for how sure it is."""
    name = f"Request {answer.request} with" if several else "With"
    low, high = answer.tokens_per_forward
    if answer.label == "between":
        counts = f"{_range(answer.fewest, answer.most)} forwards, {low:.2f} to {high:.2f} tokens each"
    else:
        about = "" if answer.label == "exact" else "about "
        counts = f"{about}{answer.most.forwards:.0f} forwards, {low:.2f} tokens each"
    took = "" if answer.seconds is None else f", about {1000 * answer.seconds:.0f} ms of steps"
    label = {"exact": "Exact", "between": "Between these bounds", "estimate": "An estimate"}[answer.label]
    return f"{name} at most {answer.k} guesses a round: {counts}{took}. {label}: {answer.why}."


def _range(fewest: Counts, most: Counts) -> str:
    a, b = f"{fewest.forwards:.0f}", f"{most.forwards:.0f}"
    return a if a == b else f"{a} to {b}"
