"""The three interfaces of agents, as `headstart audit --tools` asks them: the same request, and what the model wrote.

Requests are written once, as `/v1/chat/completions` has them, and said in the words of the other two. Agents read
Responses and Messages as streams, so these are asked as streams; of chat the whole answer is read. A call's arguments
are compared as they were sent, with their spaces: of Messages only a stream has them so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Written = Mapping[str, Any]
"""What the model wrote in an answer, or why there is none: {"status", "error"}."""
THOUGHT = 64
"""Tokens that a Messages request lets the model think, where it asks for that."""


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface of a server.

    path: below the /v1.
    body: a request of chat in this interface's fields.
    written: what the model wrote, out of the text of an answer. Ids are left out, since each answer has new ones.
    """

    name: str
    path: str
    body: Callable[[Mapping[str, Any]], Json]
    written: Callable[[str], Written]


def _found(content: str, reasoning: str, ended: Any, calls: list[tuple[str, str]]) -> Written:
    found = {"content": content, "reasoning": reasoning, "finish_reason": str(ended), "calls": str(len(calls))}
    for number, (name, arguments) in enumerate(calls):
        found |= {f"calls.{number}.name": name, f"calls.{number}.arguments": arguments}
    return found


def _events(text: str) -> Iterator[Json]:
    """The events of a stream. Raises ValueError where it has none: some servers answer whole."""
    lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    if not lines:
        raise ValueError("the answer is no stream")
    for line in lines:
        if line != "[DONE]":
            yield json.loads(line)


def _failed(error: Any) -> Written:
    return {"status": 200, "error": json.dumps(error)[:300]}


# -- chat -------------------------------------------------------------------------------------------------------------


def _of_chat(text: str) -> Written:
    choice = json.loads(text)["choices"][0]
    message = choice["message"]
    calls = [each["function"] for each in message.get("tool_calls") or ()]
    return _found(
        message.get("content") or "", message.get("reasoning_content") or message.get("reasoning") or "",
        choice.get("finish_reason"), [(call["name"], call["arguments"]) for call in calls],
    )  # fmt: skip


# -- Responses --------------------------------------------------------------------------------------------------------


def _for_responses(body: Mapping[str, Any]) -> Json:
    found: Json = {
        name: body[name]
        for name in ("temperature", "seed", "parallel_tool_calls", "speculation", "cache_salt")
        if name in body
    }
    found |= {"stream": True, "store": False, "max_output_tokens": body["max_tokens"]}
    found["input"] = [item for message in body["messages"] for item in _items(message)]
    if "tools" in body:
        found["tools"] = [{"type": "function", "strict": False, **tool["function"]} for tool in body["tools"]]
    choice = body.get("tool_choice")
    if choice is not None:
        found["tool_choice"] = choice if isinstance(choice, str) else {"type": "function", **choice["function"]}
    if "response_format" in body:
        found["text"] = {"format": {"type": "json_schema", **body["response_format"]["json_schema"]}}
    if "chat_template_kwargs" in body:
        found["reasoning"] = {"effort": "medium"}
    return found


def _items(message: Mapping[str, Any]) -> Iterator[Json]:
    if message["role"] == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        return
    if message["content"]:
        yield {"type": "message", "role": message["role"], "content": message["content"]}
    for call in message.get("tool_calls") or ():
        yield {"type": "function_call", "call_id": call["id"], "status": "completed", **call["function"]}


def _of_responses(text: str) -> Written:
    last: Json = {}
    for event in _events(text):
        if event["type"] in ("error", "response.failed"):
            return _failed(event)
        last = event
    response = last["response"]
    texts: dict[str, str] = {"message": "", "reasoning": ""}
    calls: list[tuple[str, str]] = []
    for item in response["output"]:
        if item["type"] == "function_call":
            calls.append((item["name"], item["arguments"]))
        else:
            texts[item["type"]] += "".join(part.get("text", "") for part in item.get("content") or ())
    ended = (response.get("incomplete_details") or {}).get("reason", response["status"])
    return _found(texts["message"], texts["reasoning"], ended, calls)


# -- Messages ---------------------------------------------------------------------------------------------------------


def _for_messages(body: Mapping[str, Any]) -> Json:
    found: Json = {
        name: body[name] for name in ("temperature", "seed", "speculation", "cache_salt", "max_tokens") if name in body
    }
    found |= {"stream": True, "messages": [_message(each) for each in body["messages"]]}
    if "tools" in body:
        functions = [tool["function"] for tool in body["tools"]]
        found["tools"] = [
            {"name": each["name"], "description": each["description"], "input_schema": each["parameters"]}
            for each in functions
        ]
    choice = body.get("tool_choice")
    if choice is not None:
        found["tool_choice"] = {"type": "any"} if isinstance(choice, str) else {"type": "tool", **choice["function"]}
    if "response_format" in body:
        schema = body["response_format"]["json_schema"]["schema"]
        found["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    if "chat_template_kwargs" in body:
        found["thinking"] = {"type": "enabled", "budget_tokens": THOUGHT}
    return found


def _message(message: Mapping[str, Any]) -> Json:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [result]}
    if not message.get("tool_calls"):
        return {"role": message["role"], "content": message["content"]}
    blocks = [
        {
            "type": "tool_use", "id": call["id"], "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message["tool_calls"]
    ]  # fmt: skip
    return {"role": message["role"], "content": blocks}


_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def _of_messages(text: str) -> Written:
    blocks: dict[int, Json] = {}
    ended: Any = None
    for event in _events(text):
        match event["type"]:
            case "error":
                return _failed(event)
            case "content_block_start":
                blocks[event["index"]] = {"written": ""} | event["content_block"]
            case "content_block_delta":
                field = _TEXTS.get(event["delta"]["type"])
                blocks[event["index"]]["written"] += event["delta"][field] if field else ""
            case "message_delta":
                ended = event["delta"]["stop_reason"]
    texts: dict[str, str] = {"text": "", "thinking": ""}
    calls: list[tuple[str, str]] = []
    for block in blocks.values():
        if block["type"] == "tool_use":
            calls.append((block["name"], block["written"]))
        else:
            texts[block["type"]] += block["written"]
    return _found(texts["text"], texts["thinking"], ended, calls)


CHAT = Interface("chat", "chat/completions", dict, _of_chat)
INTERFACES = (
    CHAT,
    Interface("responses", "responses", _for_responses, _of_responses),
    Interface("messages", "messages", _for_messages, _of_messages),
)
