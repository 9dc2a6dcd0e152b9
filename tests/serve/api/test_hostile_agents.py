"""What agents may send that is wrong, over all three interfaces: typed errors or a clean end, and nobody else waits."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2 as httpx
import pytest
from support.byte_models import save_model
from support.chat_forms import chat_tokenizer, template
from support.http_server import Running, serving
from support.scripted_bridge import scripted

import headstart as hs
from headstart.rule.compiled_grammar import Compiled
from headstart.serve.api.schemas.messages import MessagesRequest
from headstart.serve.api.schemas.responses import ResponsesRequest

USER = [{"role": "user", "content": "Go."}]
FEW = 6
PATHS = ("chat/completions", "responses", "messages")
ANY = {"type": "object"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A tiny random model whose template has tools, with drafts."""
    tokenizer = chat_tokenizer(template("hermes"), "hermes")
    path = save_model(tmp_path_factory.mktemp("tools"), tokenizer=tokenizer, context=2048)
    engine = hs.load(path, "ngram", dtype="float32", max_length=2048, pacing="fixed", max_batch_size=4)
    with serving(engine) as found:
        yield found
        assert found.settled(), "a request or a slot was left behind"


def body_of(path: str, *, schema: Any = None, tool: Any = None, most: int = FEW, **more: Any) -> dict[str, Any]:
    """A request of an interface: for JSON of a schema, or for a call of a tool with these parameters."""
    if path == "responses":
        body: dict[str, Any] = {"input": USER, "max_output_tokens": most}
        if schema is not None:
            body["text"] = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
        if tool is not None:
            body |= {"tools": [{"type": "function", "name": "f", "parameters": tool}], "tool_choice": "required"}
    elif path == "messages":
        body = {"messages": USER, "max_tokens": most}
        if schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        if tool is not None:
            body |= {"tools": [{"name": "f", "input_schema": tool}], "tool_choice": {"type": "any"}}
    else:
        body = {"messages": USER, "max_tokens": most}
        if schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        if tool is not None:
            function = {"name": "f", "parameters": tool}
            body |= {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
    return body | more


def refused(path: str, answer: httpx.Response, status: int = 400) -> str:
    """The message of an error, which must be in the form of its interface and say nothing of this machine."""
    assert answer.status_code == status, answer.text[:300]
    found = answer.json()
    if path == "messages":
        assert found["type"] == "error"
        assert set(found["error"]) == {"type", "message"}
    else:
        assert set(found["error"]) == {"message", "type", "param", "code"}
    for secret in ("Traceback", "site-packages", "pydantic", "llguidance"):
        assert secret not in answer.text
    return str(found["error"]["message"])


def post(running: Running, path: str, body: Any) -> httpx.Response:
    return httpx.post(f"{running.v1}/{path}", json=body, timeout=60)


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


BOMBS: Mapping[str, tuple[Any, str | None]] = {
    "counts": ({"type": "string", "pattern": "((x{50}){50}){50}"}, "repetitions"),
    "properties": ({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(10_000)}}, "bytes"),
    "alternatives": (
        {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(1200)}},
        "give at most",
    ),
    "levels": (_nested(50), "levels"),
    "references": ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, None),
    "outside": ({"$ref": "http://127.0.0.1:9/x.json"}, ""),
    "nothing": ({"type": "string", "enum": []}, ""),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("path", PATHS)
def test_a_schema_that_would_cost_too_much(running: Running, path: str, name: str) -> None:
    """As the form of an answer it is refused; as a tool's, where agents cannot change it, any object may do."""
    schema, words = BOMBS[name]
    answers = [post(running, path, body_of(path, **{field: schema})) for field in ("schema", "tool")]
    assert words is None or words in refused(path, answers[0])
    for answer in answers:
        if answer.status_code != 200:
            refused(path, answer)


def test_nobody_waits_while_a_grammar_is_compiled(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine goes on with other requests: a grammar takes up to seconds, and a token milliseconds."""
    compiling, go, probe = threading.Event(), threading.Event(), Compiled._probe

    def waiting(compiled: Compiled) -> None:
        compiling.set()
        assert go.wait(60), "nobody else was answered meanwhile"
        probe(compiled)

    monkeypatch.setattr(Compiled, "_probe", waiting)
    schema = {"type": "object", "properties": {"new": {"type": "string"}}}
    found: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: found.append(post(running, "responses", body_of("responses", schema=schema)))
    )
    asking.start()
    try:
        assert compiling.wait(60)
        for path in PATHS:
            assert post(running, path, body_of(path)).status_code == 200
    finally:
        go.set()
        asking.join(60)
    assert found[0].status_code == 200


CALL = {"id": "c1", "type": "function", "function": {"name": "gone", "arguments": '{"a": '}}
HISTORIES: Mapping[str, list[dict[str, Any]]] = {
    "chat/completions": [
        {"messages": [*USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
        {"messages": [*USER, {"role": "tool", "tool_call_id": "nobody", "content": "x"}]},
        {"messages": [{"role": "tool", "tool_call_id": "", "content": "half of \ufffd"}]},
    ],
    "responses": [
        {"input": [*USER, {"type": "function_call", "call_id": "c1", "name": "gone", "arguments": '{"a": '}]},
        {"input": [*USER, {"type": "function_call_output", "call_id": "nobody", "output": "x"}]},
        {"input": [{"type": "reasoning", "summary": []}, *USER, {"type": "brand_new"}]},
    ],
    "messages": [
        {"messages": [*USER, {"role": "assistant", "content": [{"type": "tool_use", "name": "gone", "input": "{"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "nobody"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image"}]}]}]},
    ],
}


@pytest.mark.parametrize("path", PATHS)
def test_a_conversation_outlives_what_is_broken_in_it(running: Running, path: str) -> None:
    """Unknown tools, broken arguments, results without calls: one refusal would end an agent's work for good."""
    for history in HISTORIES[path]:
        answer = post(running, path, body_of(path, tool=ANY) | history)
        assert answer.status_code == 200, (history, answer.text)


@pytest.mark.parametrize("path", PATHS)
def test_halves_of_characters(running: Running, path: str) -> None:
    whole = json.dumps(body_of(path))
    headers = {"content-type": "application/json"}
    for half in (b"\xf0\x9f", b"\\ud83d", b"\\udc00x"):
        body = whole.encode().replace(b"Go.", half)
        answer = httpx.post(f"{running.v1}/{path}", content=body, headers=headers, timeout=60)
        assert "JSON" in refused(path, answer)


@pytest.mark.parametrize("path", PATHS)
def test_a_client_that_goes_away_in_the_middle_of_a_call(running: Running, path: str) -> None:
    body = body_of(path, tool={"type": "object", "properties": {"a": {"type": "string"}}}, most=1500, stream=True)
    with httpx.stream("POST", f"{running.v1}/{path}", json=body, timeout=60) as answer:
        assert answer.status_code == 200
        read = ""
        for piece in answer.iter_text():
            read += piece
            if "arguments" in read or "partial_json" in read:
                break
    assert running.settled()
    assert post(running, path, body_of(path)).status_code == 200


VALUES: list[Any] = [
    None, True, -1, 0, 1, 2.5, 10**30, "", "a", "auto", [], [1], [[]], ["a"], [{}], {}, {"type": "text"},
    {"type": "function"}, {"type": "tool", "name": "f"}, [{"type": "function", "name": "f"}], [{"role": "user"}],
    [{"type": "function_call"}], [{"role": "user", "content": [{"type": "tool_result"}]}], {"format": {"type": "x"}},
]  # fmt: skip


@pytest.mark.parametrize(("path", "schema"), [("responses", ResponsesRequest), ("messages", MessagesRequest)])
def test_random_fields_are_never_a_fault_of_the_server(path: str, schema: type[Any]) -> None:
    generator = random.Random(7)
    with scripted(chat_tokenizer(template("hermes"), "hermes"), "Hi.") as (url, _), httpx.Client(timeout=60) as client:
        for _ in range(150):
            fields = {name: generator.choice(VALUES) for name in generator.sample(schema.names(), 3)}
            answer = client.post(f"{url}/{path}", json=body_of(path) | fields)
            if answer.status_code != 200:
                refused(path, answer, answer.status_code)
                assert answer.status_code in (400, 404), (fields, answer.text)
