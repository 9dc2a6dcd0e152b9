"""Streams as they are on the wire: order, headers, usage, pings, intervals, errors in the middle."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.byte_models import save_model
from support.http_server import Running, events_of, serving

import headstart as hs

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def stream(server: Running) -> Callable[..., list[dict[str, Any]]]:
    """stream(path, **fields): the events of a stream, which must end as streams end."""

    def ask(path: str, **fields: Any) -> list[dict[str, Any]]:
        return _events(server, path, **fields)

    return ask


def _events(server: Running, path: str, **fields: Any) -> list[dict[str, Any]]:
    response = httpx2.post(f"{server.v1}/{path}", json={"stream": True, **fields}, timeout=60)
    assert response.status_code == 200, response.text
    found = events_of(response.text.splitlines())
    assert found[-1] == "[DONE]"
    return [json.loads(event) for event in found[:-1]]


def _text(events: list[dict[str, Any]], index: int = 0) -> str:
    parts = [choice for event in events for choice in event["choices"] if choice["index"] == index]
    return "".join(part["text"] if "text" in part else part["delta"].get("content", "") for part in parts)


def test_headers(server: Running) -> None:
    body = {"prompt": "ab", "stream": True, "max_tokens": 2}
    response = httpx2.post(f"{server.v1}/completions", json=body, headers={"x-request-id": "mine-1"}, timeout=60)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-request-id"] == "mine-1"
    assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("usage", [True, False])
def test_order(stream: Callable[..., Any], usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    events = stream("chat/completions", messages=HELLO, max_tokens=30, seed=1, **options)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    kinds = ["usage" if not event["choices"] else event["choices"][0]["finish_reason"] for event in events]
    ends = [kind for kind in kinds if kind is not None]
    assert kinds[-len(ends) :] == ends
    assert ends == [*({"stop", "length"} & set(ends)), *(["usage"] if usage else [])]
    for event in events[:-1]:
        assert not {"metrics", "timings"} & event.keys()
        assert event.get("usage", 0) is (None if usage else 0)
    assert {"metrics", "timings", "headstart"} <= events[-1].keys()
    assert len({event["id"] for event in events}) == 1
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert events[-2 if usage else -1]["choices"][0]["delta"] == {}


def test_usage_on_every_chunk(stream: Callable[..., Any]) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = stream("completions", prompt="ab", max_tokens=30, ignore_eos=True, stream_options=options)
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert counts[-1] == 30
    assert {event["usage"]["prompt_tokens"] for event in events} == {2}


def test_choices_of_one_stream_are_apart(stream: Callable[..., Any], server: Running) -> None:
    asked: dict[str, Any] = {"prompt": ["ab", "cd"], "n": 2, "max_tokens": 20, "seed": 8, "echo": True}
    events = stream("completions", **asked)
    whole = httpx2.post(f"{server.v1}/completions", json=asked, timeout=60).json()["choices"]
    assert [_text(events, index) for index in range(4)] == [choice["text"] for choice in whole]
    ends = [choice["index"] for event in events for choice in event["choices"] if choice["finish_reason"]]
    assert sorted(ends) == [0, 1, 2, 3]


FORMS: list[dict[str, Any]] = [
    {},
    {"stream_interval": 1},
    {"stream_interval": 7},
    {"stream_interval": 1000},
    {"speculation": {"smooth": True}},
    {"speculation": {"smooth": True, "trace": True}, "stream_interval": 3},
    {"speculation": {"enabled": False}},
    {"stop": ["never there at all"]},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_however_it_is_cut_it_is_the_same(stream: Callable[..., Any], server: Running, form: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"prompt": "ab", "max_tokens": 50, "seed": 21, "logprobs": 1, "return_token_ids": True}
    whole = httpx2.post(f"{server.v1}/completions", json=asked, timeout=60).json()["choices"][0]
    events = stream("completions", **asked, **form)
    choices = [choice for event in events for choice in event["choices"]]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert [token for choice in choices for token in choice.get("token_ids", [])] == whole["token_ids"]
    named = [name for choice in choices if choice["logprobs"] for name in choice["logprobs"]["tokens"]]
    assert named == whole["logprobs"]["tokens"]
    sizes = [len(choice["token_ids"]) for choice in choices if choice.get("token_ids")]
    interval = form.get("stream_interval", 1)
    assert all(size >= interval for size in sizes[:-1])
    if form.get("speculation", {}).get("smooth") and interval == 1:
        assert set(sizes) == {1}, "a burst is shown token by token"


def test_pings_while_silent(models: Path) -> None:
    engine = hs.load(models / "target", dtype="float32", max_length=512)
    original = engine.step

    def slow() -> Any:
        time.sleep(0.3)
        return original()

    engine.step = slow  # type: ignore[method-assign]
    with serving(engine, {"ping_seconds": 0.05}) as running:
        body = {"prompt": "ab", "stream": True, "max_tokens": 2, "ignore_eos": True}
        lines = httpx2.post(f"{running.v1}/completions", json=body, timeout=60).text.splitlines()
        assert lines.count(": ping") >= 2
        assert lines[-2] == "data: [DONE]"


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Running]:
    """A model that computes NaN behind an "N"."""
    save_model(tmp_path, nan=True)
    with serving(hs.load(tmp_path, "none", dtype="float32")) as running:
        yield running


def test_an_error_before_the_first_token_is_the_status(broken: Running) -> None:
    for streamed in (True, False):
        body = {"prompt": "N", "stream": streamed, "max_tokens": 2}
        response = httpx2.post(f"{broken.v1}/completions", json=body, timeout=60)
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "non_finite_logits"
        assert response.headers["x-should-retry"] == "false"


def test_an_error_in_the_middle_is_an_event(broken: Running) -> None:
    forced = {"logit_bias": {str(_id_of("N")): 1000.0}}
    body = {"prompt": "a", "stream": True, "max_tokens": 9, **forced}
    response = httpx2.post(f"{broken.v1}/completions", json=body, timeout=60)
    assert response.status_code == 200
    events = [json.loads(event) for event in events_of(response.text.splitlines())]
    assert events[-1]["error"]["code"] == "non_finite_logits"
    assert "[DONE]" not in response.text
    assert all("error" not in event for event in events[:-1])
    import openai

    client = openai.OpenAI(base_url=broken.v1, api_key="none", max_retries=0)
    with pytest.raises(openai.APIError, match="finite"):
        list(client.completions.create(model="tiny", prompt="a", stream=True, max_tokens=9, extra_body=forced))


def _id_of(character: str) -> int:
    from support.tiny import byte_tokenizer

    return int(byte_tokenizer().convert_tokens_to_ids(character))
