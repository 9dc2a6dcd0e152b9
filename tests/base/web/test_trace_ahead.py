"""Drafting ahead as the pages count and draw it: the counts of Python, and two lanes of time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from support import traces
from support.twins import Twin, twin

from headstart.engine.trace.reader import parse_trace
from headstart.engine.trace.summary import summarise


@pytest.fixture(scope="module")
def js() -> Iterator[Twin]:
    with twin("trace") as found:
        yield found


def first(js: Twin, lines: list[traces.Line], expression: str) -> Any:
    """An expression of the first request `r` of a trace."""
    return js(f"(lines) => {{ const r = hs.read.parse(lines).requests[0]; return {expression}; }}", lines)


def test_the_counts_are_those_of_python(js: Twin) -> None:
    lines = traces.ahead()
    ours = first(js, lines, "hs.rounds.summary(r).ahead")
    python = summarise(parse_trace([json.dumps(line) + "\n" for line in lines]).requests[0]).ahead
    assert python is not None
    assert (python.drafts, python.hits, python.misses, python.waits) == (3, 1, 1, 1)
    for name in ("drafts", "hits", "misses", "waits"):
        assert ours[name] == getattr(python, name), name
    assert ours["secondsOnHits"] == pytest.approx(python.seconds_on_hits)
    assert ours["secondsOnMisses"] == pytest.approx(python.seconds_on_misses)
    assert ours["hitRate"] == python.hit_rate
    assert [each["rounds"] for each in ours["byDepth"]] == list(python.rounds_per_depth)
    assert [each["hits"] for each in ours["byDepth"]] == list(python.hits_per_depth)


def test_traces_of_before_have_none(js: Twin) -> None:
    assert first(js, traces.greedy(), "[hs.rounds.summary(r).ahead, hs.ahead.draftsAhead(r)]") == [None, False]
    assert first(js, traces.ahead(), "hs.ahead.draftsAhead(r)") is True


def test_the_lanes_lie_in_time(js: Twin) -> None:
    rounds = first(js, traces.ahead(), "hs.ahead.lanesOf(r)")
    assert [each["ready"] for each in rounds] == [None, True, False, None]
    for place, each in enumerate(rounds):
        assert each["from"] == pytest.approx(0.01 * place)
        parts = each["target"]
        assert [part["kind"] for part in parts] == ["plan", "wait", "verify", "sample", "commit"]
        assert parts[0]["from"] == pytest.approx(each["from"])
        assert parts[-1]["to"] == pytest.approx(each["to"])
        for one, other in pairwise(parts):
            assert one["to"] == other["from"]
    made = [[(part["kind"], round(part["from"], 6), round(part["to"], 6)) for part in r["drafter"]] for r in rounds]
    assert made == [
        [("now", 0.0001, 0.0031)],
        [("ahead", 0.0045, 0.0085), ("now", 0.0101, 0.0104)],
        [("ahead", 0.0115, 0.0202), ("now", 0.0201, 0.0234)],
        [],
    ]


def test_a_drafter_that_goes_on_before_the_engine_notices_is_not_drawn_twice(js: Twin) -> None:
    lines = traces.ahead()
    steps = [line for line in lines if line["type"] == "step"]
    steps[1]["ahead"] = {**steps[1]["ahead"], "begin": -0.009, "end": -0.002}
    before, after = first(js, lines, "hs.ahead.lanesOf(r).slice(0, 2).map((each) => each.drafter)")
    assert before[0]["to"] == after[0]["from"] == pytest.approx(0.001)


def test_each_draft_is_told_in_words(js: Twin) -> None:
    words = first(js, traces.ahead(), "r.steps.map(hs.ahead.preparedInWords)")
    assert words[0] == "No round was foreseen before this draft; the engine waited 3.0 ms for it."
    assert words[1] == (
        "Its draft was ready: the round before ended after 2 accepted guesses with the drafter\u2019s likeliest token, "
        "which was one of 8 outcomes foreseen in 3 forwards. The engine waited 300 µs."
    )
    assert "was not ready" in words[2]
    assert "place 5 of the drafter\u2019s likeliest tokens, which was none of 8 outcomes" in words[2]
    assert words[3] == ""
