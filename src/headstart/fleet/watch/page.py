"""A watch as a page: what was found, the servers, and their history as charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from headstart.base.web.report import charts
from headstart.base.web.report.page import Page, VerdictKind
from headstart.base.web.report.tables import Cell
from headstart.fleet.watch.counts import Histogram
from headstart.fleet.watch.look import Look, Row
from headstart.fleet.watch.store import Window

_JUDGED = 20
"""Positions with fewer guesses judged are left out: a share of three says nothing, and draws the eye."""
_SOME = 8
"""The most servers that a line chart shows, so that a reader can tell them apart."""
_VERDICTS: Mapping[str, VerdictKind] = {"fine": "good", "suspected": "unsure", "unlike": "unsure"}
_HEADLINES = {
    "fine": "Nothing was found",
    "suspected": "Acceptance may have fallen",
    "unlike": "A replica is unlike the others",
    "proved": "Acceptance has fallen",
    "broken": "Counters contradict each other",
    "unreachable": "A server does not answer",
}


def watch_page(look: Look, history: Mapping[str, Sequence[Window]]) -> Page:
    """The page, still to be written.

    Args:
        look: the last one.
        history: by server its windows, the oldest first.
    """
    when = datetime.fromtimestamp(look.time).astimezone()
    page = Page("Servers under watch", f"headstart watch, {when.day} {when:%B %Y, %H:%M:%S %Z}")
    bad = [row for row in look.rows if row.level != "fine"]
    detail = f"{len(look.rows)} server{'s' * (len(look.rows) != 1)} watched, {len(bad) or 'none'} with findings"
    page.verdict(_VERDICTS.get(look.level, "bad"), _HEADLINES[look.level], detail)
    _findings(page, look)
    _servers(page, look.rows)
    _acceptance(page, look.rows)
    _history(page, {name: windows for name, windows in history.items() if len(windows) > 1})
    _drift(page, look.rows)
    page.heading("How to read this")
    page.items(
        [
            "Tokens per forward counts every forward of a request once, also those without a draft. vLLM's counters "
            "hold accepted tokens that are in no text, so that it may be too high there; the least it can be stands "
            "beside it.",
            "Acceptance at a position is given acceptance before it. Where drafts differ in length it is not known, "
            "and nothing stands there.",
            "P50 and P99 come from a histogram: the truth lies anywhere in the bucket that is named.",
        ]
    )
    return page


def _name(server: str) -> str:
    """A server as the page calls it."""
    return server.removeprefix("http://").rstrip("/")


def _findings(page: Page, look: Look) -> None:
    rows = [
        (_name(row.server), each.level, each.words, each.advice or None) for row in look.rows for each in row.findings
    ]
    if rows:
        page.heading("What was found")
        page.table(["server", "level", "what", "what to do"], rows)


def _servers(page: Page, rows: Sequence[Row]) -> None:
    page.heading("Servers")
    columns = ["server", "kind", "tokens/forward", "at least", "steps drafted", "tokens/s", "preempted", "restarts"]
    times = ["server", "P50 per token", "P99", "P50 first token", "P99 ", "running", "waiting", "KV cache"]
    figures: list[list[Cell]] = []
    latencies: list[list[Cell]] = []
    for row in rows:
        window, name = row.window, _name(row.server)
        if window is None:
            figures.append([name, "no counters", *[None] * (len(columns) - 3), row.restarts])
            continue
        forwards = [window.tokens_per_forward, window.tokens_per_forward_low, window.drafted_share]
        figures.append([name, window.kind, *forwards, row.tokens_per_second, window.preemptions, row.restarts])
        moment = [window.running, window.waiting, window.kv_usage]
        latencies.append([name, *_quantiles(window.per_token), *_quantiles(window.first_token), *moment])
    formats = {"tokens/forward": ".2f", "at least": ".2f", "steps drafted": ".0%", "tokens/s": ".1f"}
    page.table(columns, figures, formats=formats)
    if latencies:
        page.table(times, latencies, formats={"running": ".0f", "waiting": ".0f", "KV cache": ".0%"})


def _quantiles(histogram: Histogram | None) -> list[str | None]:
    """P50 and P99 with the bounds of their buckets."""
    found: list[str | None] = []
    for share in (0.5, 0.99):
        quantile = None if histogram is None else histogram.quantile(share)
        found.append(None if quantile is None else _unbroken(quantile.seconds_in_words(bounds=True)))
    return found


def _unbroken(words: str) -> str:
    """The same words; a line ends between a time and its bounds only."""
    time, *bounds = words.split(" (")
    joined = [each.replace("-", "\N{WORD JOINER}-\N{WORD JOINER}") for each in bounds]
    return " (".join([time.replace(" ", "\N{NO-BREAK SPACE}"), *joined])


def _acceptance(page: Page, rows: Sequence[Row]) -> None:
    series: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows[:_SOME]:
        if (window := row.window) is None:
            continue
        depth = range(len(window.accepted_per_position))
        given = [window.acceptance_at(place) if (window.tested(place) or 0) >= _JUDGED else None for place in depth]
        known = [(place, value) for place, value in enumerate(given, start=1) if value is not None]
        if known:
            series[_name(row.server)] = ([float(place) for place, _ in known], [value for _, value in known])
    if series:
        name, (places, shares) = next(iter(series.items()))
        page.figure(
            charts.lines(series, x="position in the draft", y="accepted, once all before it were", shares=True),
            caption=f"Conditional acceptance by position, where at least {_JUDGED} guesses were judged. {name}: "
            f"{shares[0]:.0%} at position {places[0]:g}, {shares[-1]:.0%} at position {places[-1]:g}.",
            alt="A line per server: how often the first, second, ... guess was right.",
        )


def _history(page: Page, history: Mapping[str, Sequence[Window]]) -> None:
    """Charts over time, in minutes before the last window."""
    if not history:
        return
    page.heading("Over time")
    end = max(windows[-1].ended for windows in history.values())
    figures: tuple[tuple[str, str, Callable[[Window], float | None]], ...] = (
        (
            "tokens per forward",
            "Tokens per forward, every forward of a request counted once.",
            lambda window: window.counters.tokens_per_forward,
        ),
        (
            "accepted at position 1",
            "Acceptance of the first guess: it moves with drafter and text only, not with load or draft lengths.",
            lambda window: window.counters.acceptance_at(0) if window.counters.accepted_per_position else None,
        ),
        ("tokens/s", "Generated tokens per second.", lambda window: window.counters.generated / window.seconds),
    )
    for y, caption, value in figures:
        series = {}
        for name, windows in list(history.items())[:_SOME]:
            points = [((window.ended - end) / 60, value(window)) for window in windows if window.seconds > 0]
            if any(each is not None for _, each in points):
                series[_name(name)] = (
                    [x for x, _ in points],
                    [math.nan if each is None else each for _, each in points],
                )
        if series:
            figure = charts.lines(series, x="minutes before the last look", y=y)
            last = ", ".join(
                f"{name} {values[-1]:.3g}" for name, (_, values) in series.items() if values[-1] == values[-1]
            )
            page.figure(
                figure, caption=f"{caption} At the last look: {last or 'nothing known'}.", alt=f"{y}, a line per server"
            )


def _drift(page: Page, rows: Sequence[Row]) -> None:
    columns = [
        "stream", "level", "windows", "fall", "at least", "at most", "evidence of a fall", "that it is relevant",
        "alarm at",
    ]  # fmt: skip
    table: list[list[Cell]] = []
    for row in rows:
        drift = row.drift
        if drift is None or not drift["windows"]:
            continue
        level = "learning" if drift["learning"] else drift["level"]
        fall = [None] * 3 if drift["drop"] is None else [drift["drop"][name] for name in ("value", "low", "high")]
        evidence = [drift["evidence"]["suspected"], drift["evidence"]["proved"], drift["alarm_at"]]
        table.append([_name(row.server), level, drift["windows"], *fall, *evidence])
    if table:
        page.heading("Drift")
        formats = dict.fromkeys(("fall", "at least", "at most"), ".1%")
        formats |= {"evidence of a fall": ".3g", "that it is relevant": ".3g", "alarm at": ".0f"}
        caption = "Evidence is the mean number of windows until there would be as much of it without a fall."
        page.table(columns, table, caption=caption, formats=formats)
