"""`speculation.trace`: an answer that carries its steps, in the form of a trace file."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.http_server import Running, events_of

from headstart.engine.trace.reader import Trace, parse_trace
from headstart.engine.trace.recording import as_line
from headstart.rule.noise import Noise, Purpose

TRACED = {"speculation": {"trace": True}, "return_token_ids": True}


def streamed(server: Running, **fields: Any) -> list[dict[str, Any]]:
    body = {"prompt": "ab", "stream": True, "max_tokens": 40, "ignore_eos": True, **TRACED, **fields}
    response = httpx2.post(f"{server.v1}/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return [json.loads(event) for event in events_of(response.text.splitlines())[:-1]]


def whole(server: Running, **fields: Any) -> dict[str, Any]:
    body = {"prompt": "ab", "max_tokens": 40, "ignore_eos": True, **TRACED, **fields}
    response = httpx2.post(f"{server.v1}/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def told(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["headstart"] for event in events if "steps" in event.get("headstart", {})]


def as_trace(parts: Sequence[dict[str, Any]]) -> Trace:
    """What a page would save: the parts of a stream as a file. It must be a trace that anybody can read."""
    lines = [parts[0]["trace"]]
    for part in parts:
        lines += [part["request"]] if "request" in part else []
        lines += part["steps"]
        lines += [part["end"]] if "end" in part else []
    found = parse_trace(map(as_line, lines))
    assert found.warnings == ()
    return found


FORMS = [{}, {"stream_interval": 9}, {"speculation": {"trace": True, "smooth": True}}]


def spelled(texts: Iterable[str]) -> str:
    """Texts of tokens one behind the other; bytes that stand as <0xE2> become characters again."""
    parts = re.split("<0x(..)>", "".join(texts))
    data = b"".join(bytes.fromhex(part) if at % 2 else part.encode() for at, part in enumerate(parts))
    return data.decode("utf-8", "replace")


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_stream_carries_a_whole_trace(server: Running, temperature: float, form: dict[str, Any]) -> None:
    events = streamed(server, temperature=temperature, seed=7, **form)
    trace = as_trace(told(events))
    (request,) = trace.requests
    tokens = tuple(token for event in events for choice in event["choices"] for token in choice.get("token_ids", ()))
    text = "".join(choice["text"] for event in events for choice in event["choices"])
    assert request.emitted == tokens
    assert request.end is not None
    assert request.end.text == text == spelled(map(request.text, tokens))
    assert request.line.prompt == "ab"
    assert request.line.seed == str(events[-1]["headstart"]["seeds"][0])
    assert any(step.tokens for step in request.steps)
    assert all(len(step.distributions) == len(step.tokens) + 1 for step in request.steps)
    named = {token for step in request.steps for distribution in step.distributions for token, _ in distribution.p}
    assert named <= set(request.texts)


def test_each_chunk_carries_its_own_steps(server: Running) -> None:
    for event in streamed(server, temperature=0):
        ids = [token for choice in event["choices"] for token in choice.get("token_ids", ())]
        steps = event["headstart"]["steps"] if ids else []
        assert [token for step in steps for token in step["emitted"]] == ids


def test_drawn_nodes_have_p_q_and_uniforms(pair: Running) -> None:
    """Of the bundled pair, under rule "exact"."""
    trace = as_trace(told(streamed(pair, prompt="def mean(values):\n", temperature=0.8, seed=11, max_tokens=60)))
    (request,) = trace.requests
    noise = Noise(int(request.line.seed))
    drawn = [(step, node, line) for step in request.steps for node, line in enumerate(step.nodes) if line.q is not None]
    assert {step.procedure for step, _, _ in drawn} == {"traverse"}
    assert {line.state for _, _, line in drawn} >= {"accepted", "refused"}
    for step, node, line in drawn:
        at = step.position + node
        assert line.uniform == noise.uniform(at, Purpose.ACCEPT, lane=step.position, index=node), "drafts are chains"
        assert line.p is not None
        if line.weight is not None and line.state == "refused":
            assert line.uniform >= line.weight


def test_a_whole_answer_carries_it_too(server: Running) -> None:
    found = whole(server, n=2, temperature=0.9, seed=3)
    ours = found["headstart"]
    assert [line["request"] for line in ours["requests"]] == [0, 1]
    lines = [ours["trace"], *ours["requests"], *ours["steps"], *ours["ends"]]
    trace = parse_trace(map(as_line, lines))
    for request, choice, seed in zip(trace.requests, found["choices"], ours["seeds"], strict=True):
        assert list(request.emitted) == choice["token_ids"]
        assert request.line.seed == str(seed)
        assert request.end is not None
        assert request.end.text == choice["text"]


def test_choices_of_a_stream_are_apart(server: Running) -> None:
    events = streamed(server, n=2, temperature=0.9, seed=3)
    for index in (0, 1):
        mine = [event for event in events if [choice["index"] for choice in event["choices"]] == [index]]
        trace = as_trace(told(mine))
        ids = [token for event in mine for choice in event["choices"] for token in choice.get("token_ids", ())]
        assert list(trace.request(index).emitted) == ids


def test_nobody_else_is_recorded(server: Running) -> None:
    """And what is recorded names no path of this machine."""
    assert server.engine is not None
    found = whole(server, speculation={"metrics": "summary"})
    assert "steps" not in found["headstart"]
    body = json.dumps(told(streamed(server)))
    assert "draft" in body
    for place in (tempfile.gettempdir(), str(Path.home()), str(Path.cwd()), sys.prefix):
        assert place == "/" or place not in body, "no path of this machine"
    assert server.settled()
    assert not server.engine._loop.recorders._recorders, "no recorder stays behind"
