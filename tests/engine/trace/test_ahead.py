"""A trace says how each draft came about that was made ahead; traces of before are read as they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import headstart as hs
from headstart.base.errors import InvalidFile
from headstart.engine.trace import read_trace, schema
from headstart.engine.trace.summary import summarise
from headstart.learn.what_if.recorded import what_if

Load = Callable[..., hs.Engine]
PROMPTS = [[5, 9, 12], [7, 3, 3, 8, 41]]


@pytest.fixture(scope="module")
def recorded(tiny: Callable[..., str]) -> str:
    """The trace of two requests, drafted for ahead."""
    options: dict[str, Any] = {"dtype": "float32", "max_length": 128, "pacing": "fixed", "num_speculative_tokens": 3}
    engine = hs.load(tiny("llama"), f"ahead:{tiny('llama', noise=0.02)}", **options)
    with engine.trace() as recording:
        engine.generate(PROMPTS, hs.Sampling(max_tokens=24, ignore_eos=True))
    return "".join(json.dumps(line) + "\n" for line in recording.lines)


@pytest.fixture
def path(recorded: str, tmp_path: Path) -> Path:
    (tmp_path / "run.jsonl").write_text(recorded)
    return tmp_path / "run.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_say_what_the_engine_knew(path: Path) -> None:
    validator = jsonschema_rs.validator_for(schema())
    for line in lines(path):
        validator.validate(line)
    trace = read_trace(path)
    assert [each.kind for each in trace.header.drafters] == ["draft"], "it drafts what a draft model drafts"
    for request in trace.requests:
        assert request.end is not None
        prepared = [step.ahead for step in request.steps if step.ahead is not None]
        assert len(prepared) == request.end.stats["ahead"]["drafts"]
        first, *others = prepared
        assert (first.branches, first.node, first.hit) == (0, None, False)
        assert all(each.answered >= each.asked >= 0 for each in prepared)
        for each in others:
            assert (each.begin is None) == (each.forwards == 0)
            assert each.begin is None or (each.end is not None and each.begin <= each.end)
        times = [step.at for step in request.steps]
        assert None not in times
        assert all(now is not None and now >= 0 for now in times)
        assert times == sorted(times, key=lambda at: at or 0.0)


def test_while_the_target_judges_the_drafter_drafts(path: Path) -> None:
    """It begins once the draft before was asked for, perhaps before the engine has noticed that it is there."""
    for request in read_trace(path).requests:
        for before, step in zip(request.steps, request.steps[1:], strict=False):
            if step.ahead is None or step.ahead.begin is None or before.ahead is None:
                continue
            assert step.at is not None
            assert before.at is not None
            assert step.at + step.ahead.begin >= before.at + before.ahead.asked - 1e-6
            assert step.ahead.end is not None
            assert step.ahead.end <= step.ahead.answered + 1e-6


def test_the_summary_has_the_stats_of_the_engine(path: Path) -> None:
    for request in read_trace(path).requests:
        found = summarise(request).ahead
        assert found is not None
        assert request.end is not None
        stats = request.end.stats["ahead"]
        for name in ("drafts", "hits", "misses", "waits"):
            assert getattr(found, name) == stats[name], name
        assert list(found.rounds_per_depth) == stats["rounds_per_depth"]
        assert list(found.hits_per_depth) == stats["hits_per_depth"]
        assert found.seconds_on_misses == pytest.approx(stats["seconds_on_misses"], abs=1e-5)


def test_what_if_knows_it_as_the_drafter_inside(path: Path) -> None:
    trace = read_trace(path)
    assert what_if(trace, trace.requests[0], 3).label == "exact"


def test_traces_of_before_are_read(path: Path) -> None:
    older = lines(path)
    for line in older:
        line.pop("at", None)
        line.pop("ahead", None)
    path.write_text("".join(json.dumps(line) + "\n" for line in older))
    request = read_trace(path).requests[0]
    assert {(step.at, step.ahead) for step in request.steps} == {(None, None)}
    assert summarise(request).ahead is None


def test_what_the_format_does_not_know_is_refused(path: Path) -> None:
    changed = lines(path)
    step = next(line for line in changed if line.get("ahead"))
    step["ahead"]["luck"] = 1
    path.write_text("".join(json.dumps(line) + "\n" for line in changed))
    with pytest.raises(InvalidFile, match=r"ahead.luck: Extra inputs"):
        read_trace(path)


def test_a_drafter_in_turn_has_no_such_part(load: Load) -> None:
    engine = load("llama", "ngram")
    with engine.trace() as recording:
        out = engine.generate([5, 9, 5, 9, 5], hs.Sampling(max_tokens=8))
    assert all("ahead" not in line for line in recording.lines)
    assert "ahead" not in recording.lines[-1]["stats"]
    assert out.stats.ahead is None
