"""Reading a trace: what is whole, what was cut off, what is no trace; and what a summary makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headstart as hs
from headstart.base.errors import InvalidFile, InvalidOption
from headstart.drafters import Drafter, Row
from headstart.engine.trace import read_trace, schema
from headstart.engine.trace.format import VERSION
from headstart.engine.trace.reader import parse_trace
from headstart.engine.trace.summary import summarise
from headstart.pacing import FixedPacing
from headstart.types import Draft, Sampling

Load = Callable[..., hs.Engine]
PROMPT = [5, 9, 5, 9, 5]


@pytest.fixture
def trace_file(load: Load, tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "run.jsonl"
    engine = load("llama", "ngram")
    with engine.trace(path, command="headstart generate --trace run.jsonl", note="a test"):
        engine.generate([PROMPT, PROMPT[1:]], Sampling(max_tokens=12))
    return path


def test_a_trace_of_version_1_is_read_with_the_parts_that_it_measured(trace_file: Path) -> None:
    """It called planning "commit" and sampling "law", and did not measure the commit."""
    header, *lines = [json.loads(line) for line in trace_file.read_text().splitlines()]
    header["headstart_trace"] = 1
    for line in lines:
        if line["type"] == "step":
            line["seconds"] = {"draft": 1.0, "verify": 2.0, "law": 3.0, "commit": 4.0}
    read = parse_trace([json.dumps(line) + "\n" for line in (header, *lines)])
    assert dict(read.requests[0].steps[0].seconds) == {
        "plan": 4.0, "draft": 1.0, "verify": 2.0, "sample": 3.0, "commit": 0.0,
    }  # fmt: skip


def test_a_trace_of_version_2_is_read_in_the_words_of_today(trace_file: Path) -> None:
    text = trace_file.read_text()
    old = text.replace('"headstart_trace":3', '"headstart_trace":2').replace('"distributions":', '"laws":')
    old = old.replace('"distribution":', '"law":').replace('"uniform":', '"coin":')
    assert old.count('"laws":') > 5
    assert old.count('"law":') > 5

    def read(text: str) -> Any:
        return [request.steps for request in parse_trace(text.splitlines(keepends=True)).requests]

    assert read(old) == read(text)


def test_a_file_is_read_back(trace_file: Path) -> None:
    trace = read_trace(str(trace_file))
    assert trace.warnings == ()
    assert trace.header.headstart_trace == VERSION
    assert trace.header.command == "headstart generate --trace run.jsonl"
    assert trace.header.note == "a test"
    assert trace.header.engine["drafter"] == "ngram"
    assert set(trace.header.versions) == {"headstart", "torch", "transformers", "numpy"}
    assert [len(request.emitted) for request in trace.requests] == [12, 12]
    assert trace.request(trace.requests[1].number) is trace.requests[1]
    with pytest.raises(InvalidFile, match="has no request 99"):
        trace.request(99)


def test_a_cut_off_last_line_is_left_out_and_said(trace_file: Path) -> None:
    whole = trace_file.read_text()
    lines = whole.splitlines(keepends=True)
    for cut in (lines[-1][:20], lines[-1][:-2]):
        trace_file.write_text("".join(lines[:-1]) + cut)
        trace = read_trace(trace_file)
        assert "cut off" in trace.warnings[0]
        assert "ended before the request did" in trace.warnings[1]
        assert trace.requests[-1].end is None
    trace_file.write_text(whole.rstrip("\n"))
    assert read_trace(trace_file).warnings == (), "only the line's end is missing"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: ["hello\n"], "is not a trace: its first line is not JSON"),
        (lambda lines: ['{"a": 1}\n'], "has no headstart_trace"),
        (lambda lines: ["[]\n"], "has no headstart_trace"),
        (lambda lines: [lines[0].replace('"headstart_trace":3', '"headstart_trace":4')], "has version 4"),
        (lambda lines: [lines[0].replace('"headstart_trace":3', '"headstart_trace":"x"')], "has version 'x'"),
        (lambda lines: [lines[0].replace('"command"', '"commando"')], "line 1 of .* is damaged: command"),
        (lambda lines: [*lines[:2], "{oops\n", *lines[2:]], "line 3 of .* is not JSON"),
        (lambda lines: [*lines, lines[0]], "is a second header"),
        (lambda lines: [lines[0], *lines[2:]], "which never began"),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], "begins request 0 again"),
        (lambda lines: [*lines[:2], lines[2].replace('"position"', '"positions"')], "position: Field required"),
        (lambda lines: [*lines[:2], lines[2].replace('"step"', '"stop"')], "line 3 of .* is damaged"),
    ],
)
def test_what_is_no_trace_is_an_error_with_a_hint(
    trace_file: Path, change: Callable[[list[str]], list[str]], words: str
) -> None:
    trace_file.write_text("".join(change(trace_file.read_text().splitlines(keepends=True))))
    with pytest.raises(InvalidFile, match=words) as caught:
        read_trace(trace_file)
    assert caught.value.hint


def test_what_cannot_be_read_at_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot read"):
        read_trace(tmp_path / "nowhere.jsonl")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidFile, match="not text in UTF-8"):
        read_trace(tmp_path / "bytes")


def test_the_schema_describes_every_field() -> None:
    """A field without a sentence is a riddle for those who read the format elsewhere."""
    found = schema()
    assert found["$schema"].endswith("2020-12/schema")
    for name, part in found["$defs"].items():
        assert part["description"], f"{name} has no description"
        assert not part["additionalProperties"]
        for field, described in part["properties"].items():
            assert field == "type" or "description" in described, f"{name}.{field} has no description"


# -- memory, many requests, requests that end otherwise ---------------------------------------------------------------


def test_without_a_path_it_is_kept_in_memory(load: Load) -> None:
    engine = load("llama", "ngram")
    with engine.trace() as recording:
        engine.generate(PROMPT, Sampling(max_tokens=3))
        assert len(recording.requests) == 1, "it can be read while it goes on"
        engine.generate(PROMPT, Sampling(max_tokens=3))
    engine.generate(PROMPT, Sampling(max_tokens=3))
    assert len(recording.requests) == 2, "what comes after the block is not recorded"
    assert recording.path is None
    assert recording.lines[0]["type"] == "trace"


def test_a_request_that_runs_already_is_recorded_from_there(load: Load) -> None:
    engine = load("llama", "ngram", max_batch_size=2)
    request = engine.submit(PROMPT, Sampling(max_tokens=9))
    other = engine.submit(PROMPT, Sampling(max_tokens=40))
    engine.step()
    emitted = request.output
    with engine.trace() as recording:
        while request.finish_reason is None:
            engine.step()
    running, first = recording.requests[1], recording.requests[0]
    assert tuple(first.line.before) == emitted
    assert first.emitted == request.output
    assert running.end is None
    assert any("ended before the request did" in words for words in recording.read().warnings)
    engine.cancel(other)


def test_cancelled_requests_end_too(load: Load) -> None:
    """One that ran, and one that never had a slot."""
    engine = load("llama", "ngram", max_batch_size=1)
    ran, waited = (engine.submit(PROMPT, Sampling(max_tokens=40, seed=4)) for _ in range(2))
    with engine.trace() as recording:
        engine.step()
        engine.cancel(waited)
        engine.cancel(ran)
    late, early = sorted(recording.requests, key=lambda request: len(request.steps))
    for request in (late, early):
        assert request.end is not None
        assert request.end.finish_reason == "cancelled"
        assert request.line.seed == "4"
    assert (len(late.steps), len(early.steps)) == (0, 1)


def test_a_long_prompt_is_read_in_steps_of_their_own(load: Load) -> None:
    engine = load("llama", "ngram", prefill_chunk=4)
    with engine.trace() as recording:
        out = engine.generate(list(range(3, 17)), Sampling(max_tokens=4))
    (request,) = recording.requests
    reading = [step for step in request.steps if step.procedure == "read"]
    assert len(reading) == out.stats.prefill_forwards > 1
    for step in reading:
        assert (step.distributions, step.nodes, step.end, step.emitted) == ([], [], None, [])
    assert summarise(request).prefills == len(reading)


class Broken(Drafter):
    """Guesses, so that a step whose logits are broken has a draft."""

    name = "broken"
    default_budget = 2

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [Draft.chain((1, 2)[: row.budget.nodes]) for row in rows]


def test_a_request_whose_logits_are_broken(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load("llama", Broken())
    forward = engine.target.forward

    def spoiled(*args: Any, **options: Any) -> Any:
        found = forward(*args, **options)
        return replace(found, logits=found.logits * float("nan"))

    with engine.trace() as recording:
        monkeypatch.setattr(engine.target, "forward", spoiled)
        out = engine.generate(PROMPT, Sampling(max_tokens=4))
    (request,) = recording.requests
    assert request.end is not None
    assert request.end.finish_reason == "error"
    assert out.error is not None
    assert request.end.error == out.error.message
    (step,) = request.steps
    assert (step.procedure, step.distributions, step.end) == ("read", [], None)
    assert {node.state for node in step.nodes} <= {"beyond"}
    summary = summarise(request)
    assert (summary.tokens, summary.forwards, summary.tokens_per_forward) == (0, 0, 0)


def test_a_recording_that_fails_hurts_nobody(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = load("llama", "ngram")
    plain = engine.generate(PROMPT, Sampling(max_tokens=9))
    with engine.trace(tmp_path / "full.jsonl") as recording, engine.trace() as other:
        file = recording._file
        assert file is not None
        write = file.write
        monkeypatch.setattr(file, "write", lambda line: _full() if '"i":1' in line else write(line))
        out = engine.generate(PROMPT, Sampling(max_tokens=9))
    assert out.tokens == plain.tokens
    assert isinstance(recording.failure, OSError)
    assert other.failure is None
    assert other.requests[0].emitted == out.tokens
    assert caplog.text.count("a recorder raised") == 1, "it is called no more"
    assert len(recording.requests[0].steps) == 1


def _full() -> int:
    raise OSError(28, "No space left on device")


def test_what_cannot_be_recorded_is_refused(load: Load, tmp_path: Path) -> None:
    engine = load("llama", "ngram")
    (tmp_path / "file").write_text("")
    for options in ({"path": tmp_path / "file" / "below.jsonl"}, {"path": tmp_path}, {"top": 0}, {"top": 1.5}):
        with pytest.raises(InvalidOption), engine.trace(**options):
            pytest.fail("nothing is recorded")


# -- summaries --------------------------------------------------------------------------------------------------------


class Script(Drafter):
    """Drafts what it is told to, step by step."""

    name = "script"
    draws = False
    default_budget = 4

    def __init__(self, truth: Sequence[int], right: Sequence[int | None]) -> None:
        self._truth, self._right = truth, list(right)

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        (row,) = rows
        begin = len(row.tokens) - row.prompt_tokens
        right = self._right.pop(0) if self._right else None
        if right is None:
            return [Draft()]
        good = list(self._truth[begin : begin + right])
        wrong = [(token + 1) % 90 for token in self._truth[begin + right : begin + 4]]
        return [Draft.chain((good + wrong)[: row.budget.nodes])]


def test_a_summary_adds_up(load: Load) -> None:
    truth = load("llama", "none").generate(PROMPT, Sampling(max_tokens=17)).tokens
    engine = load("llama", Script(truth, [2, None, 0, 4, 1]), pacing=FixedPacing(4))
    with engine.trace() as recording:
        out = engine.generate(PROMPT, Sampling(max_tokens=17))
    assert out.tokens == truth
    found = summarise(recording.requests[0])
    assert (found.tokens, found.forwards, found.drafted, found.accepted) == (17, out.stats.target_forwards, 16, 7)
    assert found.tokens_per_forward == out.stats.tokens_per_forward
    assert found.tested_by_depth == out.stats.drafted_per_position == (4, 3, 2, 1)
    assert found.accepted_by_depth == out.stats.accepted_per_position == (3, 2, 1, 1)
    assert found.conditional == (3 / 4, 2 / 3, 1 / 2, 1)
    assert found.judged == 10, "behind a refusal nothing is judged"
    assert found.refused_at == {0: 1, 1: 1, 2: 1, 3: 1}
    assert found.plain == out.stats.target_forwards - 4
    assert sum(found.reasons.values()) == found.forwards
    assert found.by_source["script"].accepted == 7
    first = found.worst[0]
    assert (first.depth, first.lost, first.p, first.q) == (1, 4, 0.0, None)
    assert [loss.lost for loss in found.worst] == [4, 3, 2]
    assert sum(found.seconds.values()) == pytest.approx(out.stats.seconds.total, rel=1e-3)
