"""The pages and Python give the same numbers for the same trace: summaries, "what if K were", and the uniform draws."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support import traces
from support.twins import Twin, twin

import headstart as hs
from headstart.engine.trace.reader import Trace, parse_trace
from headstart.engine.trace.summary import summarise
from headstart.learn.what_if.recorded import what_if

PROMPTS = ("def add(a, b):", "class Point:\n    def __init__(self")
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "greedy chains": ({"drafter": "bundled"}, {}),
    "sampled chains": ({"drafter": "bundled", "rule": "exact"}, {"temperature": 0.8, "seed": 7}),
    "point masses": ({"drafter": "ngram"}, {"temperature": 0.5, "seed": 2**53 + 1}),
    "coupled": ({"drafter": "bundled", "rule": "coupled"}, {"temperature": 0.8, "seed": 5}),
    "two sources": ({"drafter": ["ngram", "bundled"]}, {}),
}


@pytest.fixture(scope="module")
def js() -> Iterator[Twin]:
    with twin("trace") as found:
        yield found


@pytest.fixture(scope="module")
def target() -> hs.Target:
    return hs.Target("bundled", dtype="float32")


@pytest.fixture(scope="module", params=[*RUNS, "by hand", "a tree by hand"])
def lines(request: pytest.FixtureRequest, target: hs.Target) -> list[traces.Line]:
    """Recorded by the engine from the bundled pair; and two that were made by hand."""
    if request.param == "by hand":
        return traces.greedy()
    if request.param == "a tree by hand":
        return traces.tree()
    options, sampling = RUNS[request.param]
    engine = target.engine(num_speculative_tokens=5, pacing="fixed", **options)
    with engine.trace() as recording:
        for prompt in PROMPTS:
            engine.generate(prompt, hs.Sampling(max_tokens=24, **sampling))
    return json.loads(json.dumps(recording.lines))


@pytest.fixture(scope="module")
def trace(lines: list[traces.Line]) -> Trace:
    return parse_trace([json.dumps(line) + "\n" for line in lines])


def test_summaries_are_those_of_python(js: Twin, lines: list[traces.Line], trace: Trace) -> None:
    found = js("(lines) => hs.read.parse(lines).requests.map(hs.rounds.summary)", lines)
    for ours, request in zip(found, trace.requests, strict=True):
        python = summarise(request)
        for name in ("tokens", "forwards", "drafted", "accepted"):
            assert ours[name] == getattr(python, name), name
        assert [each["tested"] for each in ours["conditional"]] == list(python.tested_by_depth)
        assert [each["accepted"] for each in ours["conditional"]] == list(python.accepted_by_depth)
        assert ours["plainRounds"] == python.plain
        assert ours["tokensPerForward"] == pytest.approx(python.tokens_per_forward)
        assert {part: ours["seconds"][part] for part in python.seconds} == pytest.approx(python.seconds)
        by_source = {each["source"]: (each["rounds"], each["drafted"], each["accepted"]) for each in ours["sources"]}
        by_source.pop("", None)
        assert by_source == {name: (s.drafts, s.drafted, s.accepted) for name, s in python.by_source.items()}
        worst = [(each["i"], each["depth"], each["lost"]) for each in ours["lost"]][: len(python.worst)]
        assert worst == [(each.i, each.depth, each.lost) for each in python.worst]


def test_stats_are_those_of_the_engine(js: Twin, lines: list[traces.Line]) -> None:
    found = js("(lines) => hs.read.parse(lines).requests.map((r) => [hs.rounds.summary(r), r.end.stats])", lines)
    for ours, stats in found:
        if "target_forwards" not in stats:
            continue  # made by hand
        assert ours["forwards"] == stats["target_forwards"]
        assert (ours["drafted"], ours["accepted"]) == (stats["drafted"], stats["accepted"])
        assert [each["tested"] for each in ours["conditional"]] == stats["drafted_per_position"]
        assert [each["accepted"] for each in ours["conditional"]] == stats["accepted_per_position"]


def test_what_if_is_that_of_python(js: Twin, lines: list[traces.Line], trace: Trace) -> None:
    ask = "(lines) => { const t = hs.read.parse(lines); return t.requests.map((r) => [0, 1, 2, 3, 4, 5, 6, 9].map("
    found = js(ask + "(k) => hs['what-if'].whatIf(t, r, k))); }", lines)
    for answers, request in zip(found, trace.requests, strict=True):
        for ours in answers:
            python = what_if(trace, request, ours["k"])
            assert (ours["label"], ours["why"], ours["tokens"]) == (python.label, python.why, python.tokens), ours["k"]
            for bound in ("fewest", "most"):
                counts = getattr(python, bound)
                expected = {name: getattr(counts, name) for name in ("forwards", "drafted", "accepted")}
                assert ours[bound] == pytest.approx(expected), ours["k"]
            assert ours["seconds"] == (None if python.seconds is None else pytest.approx(python.seconds))
            assert ours["tokensPerForward"] == pytest.approx(python.tokens_per_forward)


def test_every_uniform_follows_from_the_seed_and_every_decision_from_its_uniform(
    js: Twin, lines: list[traces.Line]
) -> None:
    for found in js("(lines) => hs.read.parse(lines).requests.map(hs.check.checkOf)", lines):
        assert [found[name]["wrong"] for name in ("uniforms", "decisions", "weights")] == [0, 0, 0]
    drawn = sum(node.get("uniform") is not None for line in lines for node in line.get("nodes", ()))
    counted = js("(lines) => hs.read.parse(lines).requests.map((r) => hs.check.checkOf(r).uniforms.count)", lines)
    assert sum(counted) == drawn


def test_a_forged_uniform_and_a_forged_weight_are_noticed(js: Twin, target: hs.Target) -> None:
    engine = target.engine(num_speculative_tokens=4, pacing="fixed", drafter="bundled", rule="exact")
    with engine.trace() as recording:
        engine.generate(PROMPTS[0], hs.Sampling(max_tokens=24, temperature=0.8, seed=7))
    forged = json.loads(json.dumps(recording.lines))
    node = next(n for line in forged if line["type"] == "step" for n in line["nodes"] if n.get("weight"))
    node["uniform"], node["weight"] = 1 - node["uniform"], node["weight"] / 2
    found = js("(lines) => hs.read.parse(lines).requests.map(hs.check.checkOf)", forged)
    assert found[0]["uniforms"]["wrong"] == 1
    assert found[0]["decisions"]["wrong"] + found[0]["weights"]["wrong"] > 0
