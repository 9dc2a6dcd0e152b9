"""The pages read traces as Python does: the same tokens, counts and errors, and the same answer to "what if K were"."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support import traces
from support.twins import Twin, twin


@pytest.fixture(scope="module")
def js() -> Iterator[Twin]:
    with twin("trace") as found:
        yield found


def first(js: Twin, lines: list[traces.Line], expression: str) -> Any:
    """An expression of the first request `r` of a trace."""
    return js(f"(lines) => {{ const r = hs.read.parse(lines).requests[0]; return {expression}; }}", lines)


def test_a_file_and_its_lines_read_the_same(js: Twin) -> None:
    lines = traces.greedy()
    read = "(source) => { const t = hs.read.parse(source); return [t.header, t.requests, t.warnings]; }"
    assert js(read, traces.text(lines)) == js(read, lines)
    assert js("(source) => hs.read.parse(source).warnings", traces.text(lines)) == []
    assert first(js, lines, "[r.text(1), r.text(99), r.prompt, r.greedy, r.seed]") == [" cat", "<99>", "the", True, "7"]


def test_the_parts_of_a_step_in_a_trace_of_version_1(js: Twin) -> None:
    lines = traces.greedy()
    lines[0]["headstart_trace"] = 1
    for line in lines:
        if line["type"] == "step":
            line["seconds"] = {"draft": 1.0, "verify": 2.0, "law": 3.0, "commit": 4.0}
    parts = first(js, lines, "[r.steps[0].seconds, hs.rounds.totalSeconds(r.steps[0].seconds)]")
    assert parts == [{"plan": 4, "draft": 1, "verify": 2, "sample": 3, "commit": 0}, 10]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("", "empty", "nothing in this file"),
        ("<html>", "foreign", "not a trace"),
        ('{"type":"event"}\n', "foreign", "not a trace of headstart"),
        ('{"type":"trace","headstart_trace":9}\n', "version", "version 9"),
        ('{"type":"trace","headstart_trace":1}\nnonsense\n{}\n', "broken", "Line 2"),
        ('{"type":"trace","headstart_trace":1}\n{"type":"song"}\n', "broken", "Line 2 of the trace is of no kind"),
        ('{"type":"trace","headstart_trace":1}\n{"type":"end","request":4}\n', "broken", "no finish_reason"),
        ('{"type":"trace","headstart_trace":1}\n{"type":"trace","headstart_trace":1}\n', "broken", "second header"),
    ],
)
def test_what_is_no_trace_is_refused_in_words(js: Twin, text: str, kind: str, said: str) -> None:
    found = js(
        """(text) => {
          try { hs.read.parse(text); } catch (error) {
            return [error instanceof hs.read.TraceError, error.kind, error.message, error.hint];
          }
        }""",
        text,
    )
    assert found[:2] == [True, kind]
    assert said in found[2]
    assert found[3]


def test_a_step_of_a_request_that_never_began_is_refused(js: Twin) -> None:
    lines = [traces.header(), *traces.greedy()[2:]]
    said = js("(lines) => { try { hs.read.parse(lines); } catch (error) { return error.message; } }", lines)
    assert "request 0, which has not begun" in said


def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(js: Twin) -> None:
    whole = traces.text(traces.greedy())
    cut = whole[: whole.rindex('{"type": "end"') + 30]
    read = js("(text) => { const t = hs.read.parse(text); return [t.requests[0].steps.length, t.warnings]; }", cut)
    assert read[0] == 4
    assert "cut off" in " ".join(read[1])
    assert "ended before request 0 did" in " ".join(read[1])


def test_lines_may_come_one_by_one(js: Twin) -> None:
    grown = js(
        """(lines) => {
          const { trace, add } = hs.read.reader();
          for (const line of lines.slice(1)) add(line);
          return [trace.header, trace.requests[0].steps.length, trace.requests[0].end.finish_reason];
        }""",
        traces.greedy(),
    )
    assert grown == [None, 4, "length"]


def test_every_token_knows_where_it_came_from(js: Twin) -> None:
    found = first(js, traces.greedy(), "hs.rounds.tokensOf(r).map((t) => [t.text, t.origin, t.step, t.node, t.p])")
    assert found[:5] == [
        [" cat", "accepted", 0, 0, 1],
        [" sat", "accepted", 0, 1, 1],
        [" on", "correction", 0, None, 1],
        [" a", "accepted", 1, 0, 1],
        [" big", "accepted", 1, 1, 1],
    ]
    assert [each[1] for each in found[5:]] == ["accepted", "bonus", "correction", "plain"]
    branches = first(js, traces.tree(), "hs.rounds.tokensOf(r).map((t) => [t.step, t.node])")
    assert branches == [
        [0, 1],
        [0, 3],
        [0, None],
        [1, None],
    ]


def test_a_text_that_a_stop_cut_short_counts_what_it_kept(js: Twin) -> None:
    lines = traces.greedy()
    lines[3]["emitted"] = lines[3]["emitted"][:2]
    assert first(js, lines, "hs.rounds.tokensOf(r).slice(3, 5).map((t) => [t.step, t.origin])") == [
        [1, "accepted"],
        [1, "accepted"],
    ]
    assert first(js, lines, "hs.rounds.summary(r).accepted") == 4


def test_the_summary_counts_as_stats_do(js: Twin) -> None:
    found = first(js, traces.greedy(), "hs.rounds.summary(r)")
    assert (found["tokens"], found["forwards"], found["drafted"], found["accepted"]) == (9, 4, 9, 5)
    assert found["tokensPerForward"] == pytest.approx(9 / 4)
    assert [(each["tested"], each["accepted"]) for each in found["conditional"]] == [(3, 2), (2, 2), (2, 1)]
    assert [[each[name] for name in ("source", "rounds", "tokens")] for each in found["sources"]] == [
        ["draft", 3, 8],
        ["", 1, 1],
    ]
    assert [(each["i"], each["lost"], each["depth"]) for each in found["lost"]] == [(2, 3, 1), (0, 1, 3)]
    assert found["seconds"]["verify"] == pytest.approx(0.016)


def test_the_walk_is_told_node_by_node(js: Twin) -> None:
    events = first(js, traces.tree(), "hs.replay.events(r.steps[0])")
    assert [(each["kind"], each["node"]) for each in events] == [("own", -1), ("own", 1), ("own", 3), ("draw", 3)]
    assert [each["child"] for each in events[:3]] == [1, 3, None]
    words = first(js, traces.tree(), "hs.replay.events(r.steps[0]).map((e) => hs.replay.inWords(r, r.steps[0], e))")
    assert "A guess bears it" in words[0]
    assert "No guess bears it" in words[2]
    assert first(js, traces.greedy(), "hs.replay.classic(r.steps[0])")["accepted"] == 2


SAMPLED = {
    "procedure": "traverse",
    "tokens": [1, 2],
    "parents": [-1, 0],
    "path": [0],
    "emitted": [1, 3],
    "distributions": [{"p": [[1, 0.2], [2, 0.8]], "rest": 0, "entropy": 0.5}] * 3,
    "nodes": [
        {"p": 0.2, "q": 0.5, "uniform": 0.3, "weight": 0.35, "state": "accepted", "residual": [[2, 1.0]]},
        {"p": 0.8, "q": 0.4, "uniform": 0.9, "weight": 0.8, "state": "refused", "residual": [[2, 1.0]]},
    ],
    "end": {"token": 3, "kind": "correction", "distribution": [[3, 1.0]]},
}


def test_block_verification_is_told_from_the_end(js: Twin) -> None:
    events = js("(step) => hs.replay.events(step)", SAMPLED)
    assert [(each["kind"], each["node"]) for each in events] == [
        ("enter", 0),
        ("enter", 1),
        ("uniform", 1),
        ("uniform", 0),
        ("draw", 0),
    ]
    assert [each["reach"] for each in events[:2]] == pytest.approx([0.4, 0.8])
    assert [each["accepted"] for each in events[2:4]] == [False, True]


def test_the_classic_rule_is_worked_out_from_the_same_uniforms(js: Twin) -> None:
    found = js("(step) => hs.replay.classic(step)", SAMPLED)
    assert [each["accepted"] for each in found["judged"]] == [True, True]
    assert (found["accepted"], found["kind"], found["residual"]) == (2, "bonus", None)
    other = json.loads(json.dumps(SAMPLED))
    other["nodes"][0]["uniform"] = 0.45
    found = js("(step) => hs.replay.classic(step)", other)
    assert [each["chance"] for each in found["judged"]] == pytest.approx([0.4])
    assert (found["accepted"], found["kind"], found["residual"]) == (0, "correction", [[2, 1.0]])


def steps_with(*budgets: tuple[int, str, int]) -> str:
    """Steps of these nodes, reasons and drafted tokens, as an expression."""
    steps = [
        {"procedure": "walk", "tokens": [0] * drafted, "budget": {"nodes": n, "reason": why, "max_nodes": {"ngram": n}}}
        for n, why, drafted in budgets
    ]
    return json.dumps(steps)


RESTING = (0, "K=0: checking 2 rows costs 1.90 baseline steps here: a draft costs more than it gives", 0)
GUESSING = (3, "K=3: guesses are accepted at 0.60", 3)
TRIAL = (1, "K=1: probing ngram, last believed to be accepted at 0.31", 1)


@pytest.mark.parametrize(
    ("budgets", "said"),
    [
        ([GUESSING, RESTING, RESTING, RESTING], True),
        ([RESTING, RESTING, TRIAL], True),
        ([RESTING] * 9 + [GUESSING] * 5, False),
        ([GUESSING] * 4 + [(0, "K=0: measuring plain decoding", 0)], False),
        ([(0, "", 0)] * 3, False),
        ([], False),
    ],
)
def test_why_nothing_is_guessed_now(js: Twin, budgets: list[tuple[int, str, int]], said: bool) -> None:
    found = js(f"() => hs.budget.notGuessing({{ steps: {steps_with(*budgets)} }})")
    words = RESTING[1].removeprefix("K=0: ")
    assert found == (f"Not guessing now: {words}." if said else "")


def test_a_round_whose_drafter_had_no_guess_says_so(js: Twin) -> None:
    steps = steps_with((28, "K=28: guesses are accepted at 0.69", 0), GUESSING, RESTING)
    silent, guessing, resting = js(f"() => {steps}.map(hs.budget.budgetInWords)")
    assert silent == "ngram found nothing to copy (it might have guessed up to 28)"
    assert guessing == GUESSING[1]
    assert resting == RESTING[1]
