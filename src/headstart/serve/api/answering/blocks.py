"""A reply as the content blocks of `/v1/messages`, whole or as the events that build them up.

The blocks of the whole answer are those that the events have built: nothing is read twice.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Iterable
from typing import Any

from headstart.serve.conversation.parts import CallArguments, CallClosed, CallOpened, Content, Part, Reasoning

Json = dict[str, Any]


class Blocks:
    """Builds the blocks of one answer from the parts of a reply."""

    def __init__(self) -> None:
        self.content: list[Json] = []
        """The blocks so far; a call's `input` is there once it has ended."""
        self._open = ""
        self._arguments = ""

    def feed(self, parts: Iterable[Part]) -> list[Json]:
        """The events of these parts."""
        events: list[Json] = []
        for part in parts:
            match part:
                case Reasoning(text):
                    events += self._begin("thinking", {"thinking": "", "signature": ""})
                    self.content[-1]["thinking"] += text
                    events.append(self._delta({"type": "thinking_delta", "thinking": text}))
                case Content(text):
                    events += self._begin("text", {"text": "", "citations": None})
                    self.content[-1]["text"] += text
                    events.append(self._delta({"type": "text_delta", "text": text}))
                case CallOpened(_, name):
                    events += self.close()
                    block = {
                        "id": f"toolu_{secrets.token_hex(12)}",
                        "name": name,
                        "input": {},
                        "caller": {"type": "direct"},
                    }
                    events += self._begin("tool_use", block)
                case CallArguments(_, text):
                    self._arguments += text
                    events.append(self._delta({"type": "input_json_delta", "partial_json": text}))
                case CallClosed():
                    events += self.close()
        return events

    def close(self) -> list[Json]:
        """The events that end the open block, if one is open."""
        if not self._open:
            return []
        events: list[Json] = []
        block = self.content[-1]
        if self._open == "thinking":
            # clients send it back with the block; nothing is checked by it here
            digest = hashlib.sha256(block["thinking"].encode("utf-8", "replace")).digest()
            block["signature"] = base64.b64encode(digest).decode()
            events.append(self._delta({"type": "signature_delta", "signature": block["signature"]}))
        if self._open == "tool_use":
            block["input"], self._arguments = _object(self._arguments), ""
        self._open = ""
        return [*events, {"type": "content_block_stop", "index": len(self.content) - 1}]

    def _begin(self, kind: str, block: Json) -> list[Json]:
        if self._open == kind and kind != "tool_use":
            return []
        events = self.close()
        self._open = kind
        self.content.append({"type": kind, **block})
        return [
            *events,
            {"type": "content_block_start", "index": len(self.content) - 1, "content_block": {"type": kind, **block}},
        ]

    def _delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": len(self.content) - 1, "delta": delta}


def _object(arguments: str) -> Any:
    """A call's arguments; an object that was cut off or broken stands as its text, since `input` is an object."""
    try:
        found = json.loads(arguments or "{}")
    except ValueError:
        return {"arguments": arguments}
    return found if isinstance(found, dict) else {"arguments": arguments}
