"""Requests in the shapes that Codex CLI and Claude Code send, two turns of each, replayed against a scripted model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from support.chat_forms import chat_tokenizer, template
from support.http_server import MODEL
from support.scripted_bridge import ScriptedBridge, scripted

THINK = "<think>\n"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, ScriptedBridge]]:
    tokenizer = chat_tokenizer(template("hermes", think=THINK), "hermes")
    with scripted(tokenizer, "", burst=5) as found:
        yield found


def recorded(name: str, bridge: ScriptedBridge) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parent / "recorded" / f"{name}.json").read_text())
    bridge.jobs.clear()
    bridge.replies[:] = [found["reply"]]
    return found


def streamed(url: str, case: dict[str, Any], body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = httpx.post(url, json=body, headers=case["headers"], timeout=30)
    assert answer.status_code == 200, answer.text
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(each) for each in data]


def check_prompts(bridge: ScriptedBridge, result: str) -> None:
    """The second turn's prompt begins with the first one's, up to the reply: the cache holds all of it."""
    first, second = (list(job.prompt) for job in bridge.jobs)
    opened = len(bridge.tokenizer(THINK, add_special_tokens=False)["input_ids"])
    assert second[: len(first) - opened] == first[:-opened]
    assert result.strip() in bridge.prompt()
    assert "Say what echo says" in bridge.prompt(0)


def test_codex(served: tuple[str, ScriptedBridge]) -> None:
    url, bridge = served
    case = recorded("codex", bridge)
    body = case["body"] | {"model": MODEL}  # its configuration names the model, where Claude Code's need not
    events = streamed(f"{url}/responses", case, body)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    last = events[-1]
    assert last["type"] == "response.completed"
    output = last["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    added = [event["item"]["id"] for event in events if event["type"] == "response.output_item.added"]
    assert added == [item["id"] for item in output]
    assert added[0].startswith("rs_")
    assert added[1].startswith("fc_")
    assert (output[1]["name"], json.loads(output[1]["arguments"])) == ("exec_command", {"cmd": "echo hi"})
    assert any("web_search" in warning for warning in last["response"]["warnings"])
    answered = {"type": "function_call_output", "call_id": output[1]["call_id"], "output": case["result"]}
    later = [*body["input"], *output, answered]
    assert streamed(f"{url}/responses", case, body | {"input": later})[-1]["type"] == "response.completed"
    check_prompts(bridge, case["result"])


def test_claude_code(served: tuple[str, ScriptedBridge]) -> None:
    url, bridge = served
    case = recorded("claude-code", bridge)
    body = case["body"]
    assert httpx.head(f"{url.removesuffix('/v1')}/", timeout=30).status_code == 200
    messages = f"{url}/messages?beta=true"
    events = streamed(messages, case, body)
    assert events[0]["message"]["id"].startswith("msg_")
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert blocks[1]["id"].startswith("toolu_")
    ends = [event["delta"]["stop_reason"] for event in events if event["type"] == "message_delta"]
    assert ends == ["tool_use"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    thinking, signature, arguments = (
        "".join(delta.get(field, "") for delta in deltas) for field in ("thinking", "signature", "partial_json")
    )
    first = body["messages"][0]
    first["content"][1].pop("cache_control")  # the client moves its mark to the last block
    said = [
        {"type": "thinking", "thinking": thinking, "signature": signature},
        {"type": "tool_use", "id": blocks[1]["id"], "name": blocks[1]["name"], "input": json.loads(arguments)},
    ]
    result = {
        "type": "tool_result", "tool_use_id": blocks[1]["id"], "content": case["result"], "is_error": False,
        "cache_control": {"type": "ephemeral"},
    }  # fmt: skip
    later = [*body["messages"], {"role": "assistant", "content": said}, {"role": "user", "content": [result]}]
    system = [{"type": "text", "text": body["system"][0]["text"].replace("a1b", "c2d")}, *body["system"][1:]]
    streamed(messages, case, body | {"messages": later, "system": system})
    check_prompts(bridge, case["result"])
    assert "billing" not in bridge.prompt()
