"""The figures of finished requests in words: what drafting ahead brought."""

from __future__ import annotations

from rich.console import Console

from headstart.commands.figures import Total, ahead_facts, stats_table
from headstart.types import AheadStats, Seconds, Speculation, Stats


def test_drafting_ahead_in_two_lines() -> None:
    found = AheadStats(10, 6, 2, 1, 0.0012, 0.0084, (4, 0, 4), (2, 0, 4))
    assert ahead_facts(found) == [
        ("drafted ahead", "6 of 8 drafts ready: 75%; waited 0.2 ms for one that was, 4.2 ms for one that was not"),
        ("ready after accepting", "0: 50% · 2: 100%"),
    ]


def test_where_nothing_was_ready_or_nothing_could_be() -> None:
    misses = AheadStats(3, 0, 2, 0, 0.0, 0.0084, (2,), (0,))
    assert ahead_facts(misses)[0][1] == "0 of 2 drafts ready: 0%; waited 4.2 ms for one that was not"
    nothing = ahead_facts(AheadStats(drafts=1))
    assert nothing == [("drafted ahead", "nothing could be foreseen before the drafts, 1 in all")]


def stats(ahead: AheadStats | None) -> Stats:
    return Stats(8, 3, 4, 0, 6, 4, (4, 2), (3, 1), Seconds(), 0.1, 0.5, Speculation(True, "a draft"), ahead=ahead)


def shown(*ahead: AheadStats | None) -> str:
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(stats_table(Total(tuple(map(stats, ahead)), 1.0), chosen="asked for"))
    return capture.get()


def test_the_table_adds_up_requests_and_has_no_such_line_where_nothing_was_drafted_ahead() -> None:
    one = AheadStats(3, 1, 1, 0, 0.001, 0.003, (2,), (1,))
    assert "2 of 4 drafts ready: 50%" in shown(one, None, one)
    assert "drafted ahead" not in shown(None, None)
