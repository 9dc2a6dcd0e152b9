"""`/v1/messages` and `/v1/responses`: as official clients read them, whole and streamed, and in their own errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import openai
import pytest
from support.chat_forms import chat_tokenizer, template
from support.http_server import Running
from support.scripted_bridge import ScriptedBridge, scripted

from headstart.base.errors import InvalidFile
from headstart.serve.responses_store import ResponseStore

if TYPE_CHECKING:  # it takes seconds to import, in every process that collects tests
    import anthropic

REPLY = 'I look.</think>\n\nHere:\n<tool_call>\n{"name": "read", "arguments": {"path": "a.py", "n": 2}}\n</tool_call>'
CALL = {"path": "a.py", "n": 2}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}
MESSAGES_TOOL = {"name": "read", "description": "Read a file", "input_schema": SCHEMA}
TOOL = {"type": "function", "name": "read", "description": "Read a file", "parameters": SCHEMA}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, ScriptedBridge]]:
    tokenizer = chat_tokenizer(template("hermes", think="<think>\n"), "hermes")
    with scripted(tokenizer, REPLY, burst=7) as found:
        yield found


@pytest.fixture
def bridge(served: tuple[str, ScriptedBridge]) -> ScriptedBridge:
    served[1].jobs.clear()
    served[1].replies[:] = [REPLY]
    served[1].finish = "stop"
    return served[1]


@pytest.fixture
def claude(served: tuple[str, ScriptedBridge], bridge: ScriptedBridge) -> Iterator[anthropic.Anthropic]:
    import anthropic

    base = served[0].removesuffix("/v1")
    with anthropic.Anthropic(base_url=base, api_key="none", max_retries=0, timeout=30) as found:
        yield found


@pytest.fixture
def client(served: tuple[str, ScriptedBridge], bridge: ScriptedBridge) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served[0], api_key="none", max_retries=0, timeout=30) as found:
        yield found


def post(url: str, path: str, body: Any) -> httpx.Response:
    return httpx.post(f"{url}/{path}", json=body, timeout=30)


def events_of(url: str, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream; each says its type twice, as clients read either."""
    found = []
    for block in post(url, path, body | {"stream": True}).text.strip().split("\n\n"):
        kind, _, data = block.partition("\n")
        if block == "data: [DONE]":
            continue
        event = json.loads(data.removeprefix("data: "))
        assert kind == f"event: {event['type']}"
        found.append(event)
    return found


# -- Messages ---------------------------------------------------------------------------------------------------------


def asked(**more: Any) -> dict[str, Any]:
    return {
        "model": "claude-anything", "max_tokens": 300, "messages": [{"role": "user", "content": "Read a.py"}],
        "tools": [MESSAGES_TOOL], **more,
    }  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_as_anthropics_client_reads_it(claude: anthropic.Anthropic, stream: bool) -> None:
    if stream:
        with claude.messages.stream(**asked()) as answer:
            message = answer.get_final_message()
    else:
        message = claude.messages.create(**asked())
    thinking, text, call = message.content
    assert (thinking.type, thinking.thinking) == ("thinking", "I look.")
    assert thinking.signature
    assert (text.type, text.text.strip()) == ("text", "Here:")
    assert (call.type, call.name, call.input) == ("tool_use", "read", CALL)
    assert call.id.startswith("toolu_")
    assert message.stop_reason == "tool_use"
    usage = message.usage
    assert usage.cache_read_input_tokens == 4
    tokens = claude.messages.count_tokens(**{k: v for k, v in asked().items() if k != "max_tokens"})
    assert usage.input_tokens + 4 == tokens.input_tokens
    assert usage.output_tokens == len(REPLY.encode()) - sum(len(mark) - 1 for mark in ("</think>",)) - 21


def test_turns_that_are_sent_back(claude: anthropic.Anthropic, bridge: ScriptedBridge) -> None:
    """A second turn's prompt begins with the first one's prompt and reply, and marks for caching change nothing."""
    first = claude.messages.create(**asked())
    result = {
        "type": "tool_result",
        "tool_use_id": first.content[-1].id,
        "content": [{"type": "text", "text": "x <|im_end|>"}],
    }
    history = [
        *asked()["messages"],
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {
            "role": "user",
            "content": [result | {"cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Go on"}],
        },
    ]
    claude.messages.create(**asked(messages=history))
    prompt, ids = bridge.prompt(), bridge.jobs[-1].prompt
    assert prompt.startswith(bridge.prompt(0).removesuffix("<think>\n"))
    assert json.dumps(CALL) in prompt
    ends = ids.count(bridge.tokenizer.convert_tokens_to_ids("<|im_end|>"))
    assert ends == prompt.count("<|im_end|>") - 1, "the tool's is text"
    bare = [{**m, "content": [{k: v for k, v in b.items() if k != "cache_control"} for b in m["content"]]}
            if isinstance(m["content"], list) else m for m in history]  # fmt: skip
    claude.messages.create(**asked(messages=bare))
    assert bridge.jobs[-1].prompt == ids


def test_a_billing_line_is_not_for_the_model(claude: anthropic.Anthropic, bridge: ScriptedBridge) -> None:
    system = [{"type": "text", "text": "x-anthropic-billing-header: cch=123;"}, {"type": "text", "text": "Be brief."}]
    claude.messages.create(**asked(system=system))
    assert "Be brief." in bridge.prompt()
    assert "billing" not in bridge.prompt()


def test_why_a_message_ends(claude: anthropic.Anthropic, bridge: ScriptedBridge) -> None:
    assert claude.messages.create(**asked(stop_sequences=["Here"])).stop_sequence == "Here"
    bridge.replies[:] = ["Yes.</think>No."]
    assert claude.messages.create(**asked()).stop_reason == "end_turn"
    bridge.finish = "length"
    assert claude.messages.create(**asked(max_tokens=5)).stop_reason == "max_tokens"
    assert claude.messages.create(**asked(max_tokens=32_000)).stop_reason == "max_tokens", "more than there is room for"


def test_what_no_list_has_is_taken_and_named(served: tuple[str, ScriptedBridge], bridge: ScriptedBridge) -> None:
    body = asked(
        context_management={"edits": []}, brand_new=True, metadata={"user_id": "u"},
        tools=[MESSAGES_TOOL, {"type": "web_search_20250305", "name": "web_search"}],
    )  # fmt: skip
    answer = post(served[0], "messages", body).json()
    words = " ".join(answer["warnings"])
    assert all(name in words for name in ("context_management", "brand_new", "web_search"))
    assert "web_search" not in bridge.prompt()


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ({"max_tokens": 0}, "invalid_request_error", "max_tokens"),
        ({"messages": []}, "invalid_request_error", "messages"),
        ({"tool_choice": {"type": "tool", "name": "write"}}, "invalid_request_error", "tool_choice"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "invalid_request_error", "image"),
    ],
)  # fmt: skip
def test_errors_in_anthropics_form(
    served: tuple[str, ScriptedBridge], more: dict[str, Any], kind: str, words: str
) -> None:
    answer = post(served[0], "messages", asked(**more))
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == kind
    assert words in answer.json()["error"]["message"]


def test_a_prompt_that_is_too_long_in_the_words_that_claude_code_reads(server: Running) -> None:
    body = {"max_tokens": 8, "messages": [{"role": "user", "content": "x" * 600}]}
    answer = post(server.v1, "messages", body)
    assert answer.status_code == 400
    assert re.fullmatch(r"prompt is too long: 6\d\d tokens > 512 maximum", answer.json()["error"]["message"])


def test_a_path_that_is_not_there_answers_in_its_interfaces_form(served: tuple[str, ScriptedBridge]) -> None:
    assert post(served[0], "messages/batches", {}).json()["error"]["type"] == "not_found_error"
    assert post(served[0], "batches", {}).json()["error"]["code"] == "not_found"
    assert httpx.head(served[0].removesuffix("v1")).status_code == 200


# -- Responses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_as_openais_client_reads_it(client: openai.OpenAI, stream: bool) -> None:
    fields: Any = {"model": "tiny", "input": "Read a.py", "tools": [TOOL]}
    if stream:
        with client.responses.stream(**fields) as answer:
            response = answer.get_final_response()
    else:
        response = client.responses.create(**fields)
    reasoning, message, call = response.output
    assert reasoning.content[0].text == "I look."
    assert response.output_text.strip() == "Here:"
    assert message.status == call.status == response.status == "completed"
    assert (call.name, json.loads(call.arguments)) == ("read", CALL)
    assert response.usage.input_tokens_details.cached_tokens == 4
    assert response.usage.output_tokens_details.reasoning_tokens >= len("I look.")


def test_what_a_stream_builds_is_the_answer(served: tuple[str, ScriptedBridge], bridge: ScriptedBridge) -> None:
    """Every item is opened and closed under one id, its pieces are its text, and the last event has them all."""
    events = events_of(served[0], "responses", {"input": "Read a.py", "tools": [TOOL]})
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    final = events[-1]["response"]
    assert events[-1]["type"] == "response.completed"
    for number, item in enumerate(final["output"]):
        own = [event for event in events if event.get("output_index") == number]
        assert own[0]["type"] == "response.output_item.added"
        assert own[-1] == own[-1] | {"type": "response.output_item.done", "item": item}
        assert {event.get("item_id", item["id"]) for event in own} == {item["id"]} == {own[0]["item"]["id"]}
        text = "".join(event["delta"] for event in own if event["type"].endswith(".delta"))
        assert text == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cannot_be_stored_is_whole_and_says_so(
    served: tuple[str, ScriptedBridge], bridge: ScriptedBridge, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    def full(*_: Any) -> None:
        raise InvalidFile("the disk is full", hint="make room")

    monkeypatch.setattr(ResponseStore, "_keep", full)
    body = {"input": "Read a.py", "tools": [TOOL]}
    found = events_of(served[0], "responses", body)[-1] if stream else post(served[0], "responses", body).json()
    answer = found["response"] if stream else found
    assert (answer["status"], answer["store"]) == ("completed", False)
    assert answer["output"]
    assert "could not be stored" in answer["warnings"][-1]
    assert httpx.get(f"{served[0]}/responses/{answer['id']}").status_code == 404


def test_namespaces_and_texts_of_tools(client: openai.OpenAI, bridge: ScriptedBridge) -> None:
    tools: Any = [
        {"type": "namespace", "name": "files", "tools": [TOOL]}, {"type": "custom", "name": "patch", "format": {
            "type": "grammar", "syntax": "lark",
            "definition": "start: line+\nline: /[+-]/ /(.*)/ LF\n%import common.LF"}},
        {"type": "web_search"},
    ]  # fmt: skip
    call = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
    bridge.replies[:] = [
        "</think>" + call % ("files__read", json.dumps(CALL)) + call % ("patch", json.dumps({"input": "+ line\n"}))
    ]
    response = client.responses.create(model="tiny", input="Go", tools=tools)
    read, patch = (each.model_dump() for each in response.output if each.type.endswith("call"))
    assert (read["name"], read["namespace"]) == ("read", "files")
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "patch", "+ line\n")
    assert any("web_search" in warning for warning in response.model_extra["warnings"])
    history: Any = [{"role": "user", "content": "Go"}, read, patch, {
        "type": "custom_tool_call_output", "call_id": patch["call_id"], "output": "done"}]  # fmt: skip
    client.responses.create(model="tiny", input=history, tools=tools)
    assert "files__read" in bridge.prompt()
    assert json.dumps({"input": "+ line\n"}) in bridge.prompt()
    assert "line: /[+-]/" in bridge.prompt(), "the model is shown the grammar"
    (structure,) = {job.sampling.structure for job in bridge.jobs}
    assert structure is not None
    assert "_line: " in structure.text, "and held to it"
    for definition, words in ((70_000 * "start:", "bytes"), ("start: /a{9999}b{9999}/", "multiply"), ("a: b", "start")):
        tools[1]["format"]["definition"] = definition
        with pytest.raises(openai.BadRequestError, match=words):
            client.responses.create(model="tiny", input="Go", tools=tools)
    tools[1]["format"] = {"type": "gbnf"}
    with pytest.raises(openai.BadRequestError, match="neither any text nor a grammar"):
        client.responses.create(model="tiny", input="Go", tools=tools)


def test_a_response_goes_on_where_another_ended(client: openai.OpenAI, bridge: ScriptedBridge) -> None:
    first = client.responses.create(model="tiny", input="Read a.py", tools=[TOOL], instructions="Be brief.")
    output: Any = [{"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "x = 1"}]
    second = client.responses.create(model="tiny", input=output, tools=[TOOL], previous_response_id=first.id)
    later = bridge.prompt()
    assert "Be brief." not in later, "instructions are of one request"
    whole: Any = [{"role": "user", "content": "Read a.py"}, *(each.model_dump() for each in first.output), *output]
    client.responses.create(model="tiny", input=whole, tools=[TOOL], store=False)
    assert bridge.prompt() == later
    assert client.responses.retrieve(second.id).output[-1].name == "read"
    listed = client.responses.input_items.list(second.id, order="asc")
    assert len(listed.data) == 5
    paged = client.responses.input_items.list(second.id, limit=2)
    assert len(paged.data) == 2
    assert [item.id for item in paged] == [item.id for item in listed.data][::-1], "the client asks for all pages"
    with pytest.raises(openai.BadRequestError, match="limit='0' is out of range"):
        client.responses.input_items.list(second.id, limit=0)
    client.responses.delete(first.id)
    client.responses.retrieve(second.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    assert post(str(client.base_url).rstrip("/"), "responses/compact", {"input": "x"}).status_code == 404
    with pytest.raises(openai.BadRequestError, match="there is no response"):
        client.responses.create(model="tiny", input="x", previous_response_id=first.id)
    unkept = client.responses.create(model="tiny", input="x", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"background": True}, "background"),
        ({"input": [{"type": "compaction", "id": "c"}]}, "compacted"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input_image"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"input": []}, "empty"),
        ({"text": {"format": {"type": "json_schema"}}}, "schema"),
        ({"tools": [{"type": "function"}]}, "no name"),
        ({"model": "another"}, "not served here"),
    ],
)
def test_what_would_change_the_answer_is_refused(
    served: tuple[str, ScriptedBridge], fields: dict[str, Any], words: str
) -> None:
    answer = post(served[0], "responses", {"input": "x", **fields})
    assert answer.status_code in (400, 404), answer.text
    assert words in answer.json()["error"]["message"]


# -- a real model -----------------------------------------------------------------------------------------------------


def test_with_a_real_engine_drafts_change_nothing(server: Running) -> None:
    """The answers of both interfaces with drafts are those without, and those of chat."""
    messages = [{"role": "user", "content": "hello"}]
    shared: dict[str, Any] = {"temperature": 0.8, "seed": 5, "top_k": 20}
    plain = {"speculation": {"enabled": False}}
    body = {"max_tokens": 24, "messages": messages, **shared}
    chat = post(server.v1, "chat/completions", body).json()["choices"][0]["message"]["content"]
    drafted, alone = (post(server.v1, "messages", body | more).json() for more in ({}, plain))
    assert drafted["content"] == alone["content"] == [{"type": "text", "text": chat, "citations": None}]
    asked = {"input": "hello", "max_output_tokens": 24, **shared}
    drafted, alone = (post(server.v1, "responses", asked | more).json() for more in ({}, plain))
    texts = [each["output"][0]["content"][0]["text"] for each in (drafted, alone)]
    assert texts == [chat, chat]
    assert drafted["status"] == "incomplete"
    assert drafted["incomplete_details"] == {"reason": "max_output_tokens"}
