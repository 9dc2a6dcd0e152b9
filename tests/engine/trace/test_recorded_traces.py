"""The traces and the race that come with the lessons are real runs of the bundled models, and can be run again."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import pytest
from support.processor import INT8, needs_int8

import headstart as hs
from headstart.engine.trace.format import schema
from headstart.engine.trace.reader import parse_trace, read_trace
from headstart.engine.trace.recording import as_line
from headstart.engine.trace.summary import summarise

TOOL = Path(__file__).parents[3] / "tools" / "record_traces.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = spec_from_file_location("record_traces", TOOL)
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    sys.modules["record_traces"] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def target() -> hs.Target:
    return hs.Target("bundled", dtype="float32")


def shipped(tool: ModuleType, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tool.FOLDER / f"{name}.jsonl").read_text().splitlines()]


def test_all_are_there_and_small(tool: ModuleType) -> None:
    index = json.loads((tool.FOLDER / "index.json").read_text())
    assert [each["name"] for each in index] == [each.name for each in tool.RECORDINGS]
    validator = jsonschema_rs.validator_for(schema())
    kinds = set()
    for each in index:
        path = tool.FOLDER / f"{each['name']}.jsonl"
        assert each["title"]
        assert path.stat().st_size <= tool.MOST
        for line in shipped(tool, each["name"]):
            validator.validate(line)
        trace = read_trace(path)
        assert trace.warnings == ()
        assert "commit" in trace.header.note
        assert trace.header.command == tool.COMMAND
        steps = trace.requests[0].steps
        kinds |= {step.procedure for step in steps} | {"tree" for step in steps if not step.is_chain}
        found = summarise(trace.requests[0])
        assert found.tokens_per_forward > 2
        assert 0 in found.refused_at, "some draft is accepted whole"
        assert len(found.refused_at) > 2, "and some are refused, at several depths"
    assert kinds >= {"traverse", "walk", "tree"}
    sources = {step.source for step in read_trace(tool.FOLDER / "list.jsonl").requests[0].steps}
    assert len(sources - {""}) == 2, "both members of the list draft"


@needs_int8
def test_they_are_what_the_models_do(tool: ModuleType, target: hs.Target) -> None:
    """Run again, every line is the same but for times, versions and the last digits of probabilities."""
    for recording in tool.RECORDINGS:
        before, now = (
            parse_trace(map(as_line, lines)).requests[0]
            for lines in (shipped(tool, recording.name), tool.recorded(target, recording))
        )
        assert before.line == now.line
        for old, new in zip(before.steps, now.steps, strict=True):
            for name in ("i", "position", "source", "tokens", "parents", "path", "emitted", "procedure", "budget"):
                assert getattr(old, name) == getattr(new, name), f"{name} of step {old.i} of {recording.name}"
            for one, other in zip(old.nodes, new.nodes, strict=True):
                assert (one.state, one.uniform, one.drawn) == (other.state, other.uniform, other.drawn)
                assert one.p == pytest.approx(other.p, rel=1e-3, abs=1e-6)
                assert (one.q is None) == (other.q is None)
                assert one.q is None or one.q == pytest.approx(other.q, rel=1e-3, abs=1e-6)
        assert before.emitted == now.emitted
        assert before.end is not None
        assert now.end is not None
        assert before.end.text == now.end.text


def test_the_race_is_between_equal_texts(tool: ModuleType, target: hs.Target) -> None:
    race = json.loads((tool.FOLDER / "race.json").read_text())
    output = tool.engine_of(target, tool.RACE).generate(tool.RACE.prompt, tool.RACE.sampling)
    assert race["same_text"] is True
    assert race["text"] == output.text
    for side in ("plain", "headstart"):
        lane = race[side]
        assert "".join(token["text"] for token in lane["tokens"]) == output.text
        times = [token["at"] for token in lane["tokens"]]
        assert times == sorted(times)
        assert lane["seconds"] == times[-1]
        assert len({token["step"] for token in lane["tokens"]}) == lane["forwards"]
    assert race["plain"]["forwards"] == len(output.tokens)
    assert {token["origin"] for token in race["plain"]["tokens"]} == {"plain"}
    accepted = [token for token in race["headstart"]["tokens"] if token["origin"] == "accepted"]
    assert len(accepted) + race["headstart"]["forwards"] == len(output.tokens)
    if INT8:  # the draft model ran on int8, and its guesses are other ones in floats
        assert race["headstart"]["forwards"] == output.stats.target_forwards
        assert len(accepted) == output.stats.accepted
    assert race["headstart"]["seconds"] < race["plain"]["seconds"]
