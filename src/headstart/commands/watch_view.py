"""The table of `headstart watch`: two lines for each server, and below what was found and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headstart.commands.terminal import harmless, table_of
from headstart.fleet.watch.counters import Counters, total
from headstart.fleet.watch.counts import Histogram
from headstart.fleet.watch.look import Finding, Look, Row

NARROW, WIDE = 105, 125
"""Below so many columns there is no table; from so many on the bounds of buckets are shown."""
OF_DRAFTS = "*"
PLACES = 6
"""So many positions of a draft are shown: n-grams draft thirty, which left no room for the names of the servers."""
_STYLES = {
    "fine": "green", "suspected": "yellow", "unlike": "yellow", "proved": "bold red", "broken": "bold red",
    "unreachable": "bold red",
}  # fmt: skip
_NONE = ""
"""What is not known, such as the speed at the first look."""


def view(look: Look, *, width: int) -> RenderableType:
    """A look, for a terminal of this width."""
    parts = _table(look, wide=width >= WIDE) if width >= NARROW else Group(*(_lines(row) for row in look.rows))
    return Group(parts, *_below(look))


def _table(look: Look, *, wide: bool) -> Table:
    table = table_of(
        "server", "tok/fwd", "accepted by position", "drafted", "tok/s", "per token", "first token", "run", "KV", "",
        left=("server", "accepted by position", ""), whole=("per token", "first token", "accepted by position"),
    )  # fmt: skip
    for row in look.rows:
        table.add_row(*_cells(row, wide=wide))
        for engine in row.engines.values() if len(row.engines) > 1 else ():
            name = Text(f"  engine {engine.engine}", style="dim")
            table.add_row(name, *_figures(engine, row.seconds), *[""] * 5)
    shown = [row for row in look.rows if row.window is not None]
    whole = total(row.window for row in shown if row.window is not None)
    if whole is not None and len(shown) > 1:
        rates = [row.tokens_per_second for row in shown]
        rate = _NONE if None in rates else f"{sum(each or 0.0 for each in rates):.1f}"
        table.add_section()
        forward, shares, drafted, _ = _figures(whole, None)
        if len({len(row.window.accepted_per_position) for row in shown if row.window is not None}) > 1:
            shares = Text(_NONE)  # drafts of different lengths have no common acceptance by position
        table.add_row(Text("all", style="bold"), forward, shares, drafted, rate, "", "", _running(whole), "", "")
    return table


def _lines(row: Row) -> Text:
    """A server in a few lines, for a terminal that is too narrow for the table."""
    window = row.window
    found = Text.assemble((_name(row), "bold"), "  ", (row.level, _STYLES[row.level]))
    if window is None:
        return found
    forward, shares, drafted, rate = _figures(window, row.seconds)
    least = forward.plain.partition("\n")[2]
    most = forward.plain.partition("\n")[0]
    parts = [
        *([f"{most} tokens/forward" + (f" ({least})" if least else "")] if most else []),
        f"accepted {shares.plain.replace(chr(10), ' ')}",
        *([f"{drafted} of steps drafted"] if drafted.plain else []),
        *([f"{rate} tokens/s"] if rate.plain else []),
    ]
    found.append(f"  {_kind(window)}\n    " + " · ".join(parts))
    times = []
    for name, histogram in (("per token", window.per_token), ("first token", window.first_token)):
        if histogram is not None and histogram.total:
            times.append(f"{name} {_times(histogram, wide=False).plain.replace(chr(10), ', P99 ')}")
    running = [] if window.running is None else [f"{_running(window)} running"]
    usage = [] if window.kv_usage is None else [f"KV {window.kv_usage:.0%}"]
    return found.append("\n    " + " · ".join([*times, *running, *usage]))


def _name(row: Row) -> str:
    return harmless(row.server.removeprefix("http://").rstrip("/"))


def _kind(window: Counters) -> str:
    return harmless(" · ".join(part for part in (window.kind, window.model) if part))


def _cells(row: Row, *, wide: bool) -> list[RenderableType]:
    window = row.window
    name = Text(_name(row))
    state = Text(row.level, style=_STYLES[row.level])
    if row.restarts:
        state.append(f"\n{row.restarts} restart{'s' if row.restarts > 1 else ''}", style="dim")
    if window is None:
        return [name, *[_NONE] * 8, state]
    name.append(f"\n{_kind(window)}", style="dim")
    usage = _NONE if window.kv_usage is None else f"{window.kv_usage:.0%}"
    if window.preemptions:
        usage += f"\n{window.preemptions} preempted"
    times = [_times(histogram, wide=wide) for histogram in (window.per_token, window.first_token)]
    return [name, *_figures(window, row.seconds), *times, _running(window), usage, state]


def _figures(window: Counters, seconds: float | None) -> list[Text]:
    """Tokens per forward with the least it can be, acceptance, share of steps drafted, tokens per second."""
    value, low = window.tokens_per_forward, window.tokens_per_forward_low
    forward = Text(_NONE if value is None else f"{value:.2f}")
    if value is not None and low is not None and f"{low:.2f}" != f"{value:.2f}":
        forward.append(f"\n≥ {low:.2f}", style="dim")
    share = window.drafted_share
    rate = _NONE if not seconds else f"{window.generated / seconds:.1f}"
    return [forward, accepted(window), Text(_NONE if share is None else f"{share:.0%}"), Text(rate)]


def accepted(window: Counters) -> Text:
    """Acceptance at the first positions, given the one before; where it is not known, of drafts, and marked."""
    if not window.counts_drafts:
        return Text("not told" if window.counted_forwards is not None else "no speculation", style="dim")
    if not window.drafts:
        return Text("no drafts", style="dim")
    given = [window.acceptance_at(place) for place in range(len(window.accepted_per_position))]
    tested = [window.tested(place) for place in range(len(given))]
    if None not in tested:
        while len(given) > 1 and given[-1] is None:  # nothing was tested so late in a draft
            del given[-1]
        return Text(_row(["?" if share is None else f"{100 * share:.0f}" for share in given]))
    shares = [window.share_of_drafts_at(place) or 0.0 for place in range(len(given))]
    first = Text(f"{100 * shares[0]:.0f}%")
    first.append(f"\n{OF_DRAFTS}" + _row([f"{100 * share:.0f}" for share in shares[1:]], PLACES - 1), style="dim")
    return first


def _row(shares: list[str], most: int = PLACES) -> str:
    return " ".join(shares[:most]) + ("% …" if len(shares) > most else "%")


def _times(histogram: Histogram | None, *, wide: bool) -> Text:
    """P50 and P99, each with the bounds of its bucket."""
    found = Text()
    for share in (0.5, 0.99):
        quantile = None if histogram is None else histogram.quantile(share)
        words = _NONE if quantile is None else quantile.seconds_in_words(bounds=wide)
        found.append(f"{words}" if share == 0.5 else f"\n{words}", style="" if share == 0.5 else "dim")
    return found


def _running(window: Counters) -> str:
    if window.running is None:
        return _NONE
    waiting = f"+{window.waiting:.0f}" if window.waiting else ""
    return f"{window.running:.0f}{waiting}"


def _below(look: Look) -> Iterator[RenderableType]:
    spans = {row.seconds for row in look.rows if row.window is not None}
    when = datetime.fromtimestamp(look.time).strftime("%H:%M:%S")
    known = [seconds for seconds in spans if seconds is not None]
    span = f"the last {max(known):.0f} s" if known else "since the servers' start"
    if None in spans and known:
        span += ", or since the start of a server that is new here"
    if spans:
        yield Text(f"{when}, {span}; per token and first token: median, then P99", style="dim")
    if any(OF_DRAFTS in accepted(row.window).plain for row in look.rows if row.window is not None):
        yield Text(
            f"{OF_DRAFTS} of all drafts, some of which were shorter: less than the chance of acceptance",
            style="dim",
        )
    for row in look.rows:
        for finding in row.findings:
            yield _finding(row, finding)
    for note in look.notes:
        yield Text(harmless(note), style="yellow")


def _finding(row: Row, finding: Finding) -> Text:
    """What was found, and each thing to do on a line of its own."""
    style = "" if finding.level == "fine" else _STYLES[finding.level]
    words = Text.assemble((_name(row), "bold"), ": ", (harmless(finding.words), style))
    for part in finding.advice.splitlines():
        words.append(f"\n    {harmless(part)}")
    return words
