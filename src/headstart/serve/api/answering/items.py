"""A reply as the output items of `/v1/responses`, whole or as the events that build them up.

An item has its ids from the moment it opens, and the items of the whole answer are those that the events have built:
nothing is read twice, and no id changes.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headstart.serve.api.schemas.responses import Named
from headstart.serve.api.schemas.tools import input_of
from headstart.serve.conversation.parts import CallArguments, CallClosed, CallOpened, Content, Part, Reasoning

Json = dict[str, Any]


class Items:
    """Builds the items of one answer from the parts of a reply.

    names: of functions that are called otherwise in the interface than in the prompt.
    """

    def __init__(self, names: Mapping[str, Named]) -> None:
        self.output: list[Json] = []
        """The items so far; the last may still be open."""
        self._names = names
        self._close: Callable[[str], list[Json]] | None = None
        self._kind: type[Part] | None = None
        self._arguments = ""

    def feed(self, parts: Iterable[Part]) -> list[Json]:
        """The events of these parts, without their numbers."""
        events: list[Json] = []
        for part in parts:
            match part:
                case Reasoning(text):
                    if self._kind is not Reasoning:
                        events += self._open_text(Reasoning)
                    events.append(self._text("response.reasoning_text.delta", text))
                case Content(text):
                    if self._kind is not Content:
                        events += self._open_text(Content)
                    events.append(self._text("response.output_text.delta", text))
                case CallOpened(_, name):
                    events += self._open_call(name)
                case CallArguments(_, text):
                    events += self._argue(text)
                case CallClosed(_, whole):
                    events += self.close("completed" if whole else "incomplete")
        return events

    def close(self, status: str = "completed") -> list[Json]:
        """The events that end the open item, if one is open. status: "completed", or "incomplete" where it was cut."""
        if self._close is None:
            return []
        close, self._close, self._kind = self._close, None, None
        events = close(status)
        item = self.output[-1]
        item["status"] = status
        return [*events, self._event("response.output_item.done", item=copy.deepcopy(item))]

    # -- messages and reasoning -----------------------------------------------------------------------------------

    def _open_text(self, kind: type[Part]) -> list[Json]:
        events = self.close()
        if kind is Reasoning:
            item: Json = {"id": _id("rs"), "type": "reasoning", "summary": [], "content": [], "status": "in_progress"}
            part: Json = {"type": "reasoning_text", "text": ""}
        else:
            item = {"id": _id("msg"), "type": "message", "role": "assistant", "content": [], "status": "in_progress"}
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self._kind, self._close = kind, self._close_text
        events.append(self._added(item))
        item["content"].append(part)
        events.append(self._of_part("response.content_part.added", part=dict(part)))
        return events

    def _text(self, kind: str, text: str) -> Json:
        self.output[-1]["content"][0]["text"] += text
        more: Json = {"logprobs": []} if kind == "response.output_text.delta" else {}
        return self._of_part(kind, delta=text, **more)

    def _close_text(self, _status: str) -> list[Json]:
        item = self.output[-1]
        part = item["content"][0]
        done = "response.reasoning_text.done" if item["type"] == "reasoning" else "response.output_text.done"
        more: Json = {} if item["type"] == "reasoning" else {"logprobs": []}
        return [
            self._of_part(done, text=part["text"], **more),
            self._of_part("response.content_part.done", part=dict(part)),
        ]

    # -- calls ----------------------------------------------------------------------------------------------------

    def _open_call(self, name: str) -> list[Json]:
        events = self.close()
        known = self._names.get(name, Named(name))
        shared = {"call_id": f"call_{secrets.token_hex(12)}", "name": known.name, "status": "in_progress"}
        if known.custom:
            item: Json = {"id": _id("ctc"), "type": "custom_tool_call", **shared, "input": ""}
        else:
            item = {"id": _id("fc"), "type": "function_call", **shared, "arguments": ""}
        if known.namespace:
            item["namespace"] = known.namespace
        self._kind, self._arguments = CallOpened, ""
        self._close = self._close_custom if known.custom else self._close_function
        return [*events, self._added(item)]

    def _argue(self, text: str) -> list[Json]:
        item = self.output[-1]
        self._arguments += text
        if item["type"] == "custom_tool_call":
            return []  # it is JSON around the input so far
        item["arguments"] += text
        return [self._of_item("response.function_call_arguments.delta", delta=text)]

    def _close_function(self, _status: str) -> list[Json]:
        item = self.output[-1]
        done = {"name": item["name"], "arguments": item["arguments"]}
        return [self._of_item("response.function_call_arguments.done", **done)]

    def _close_custom(self, _status: str) -> list[Json]:
        item = self.output[-1]
        item["input"] = input_of(self._arguments)
        return [
            self._of_item("response.custom_tool_call_input.delta", delta=item["input"]),
            self._of_item("response.custom_tool_call_input.done", input=item["input"]),
        ]

    # -- events ---------------------------------------------------------------------------------------------------

    def _added(self, item: Json) -> Json:
        self.output.append(item)
        return self._event("response.output_item.added", item=copy.deepcopy(item))

    def _event(self, kind: str, **more: Any) -> Json:
        return {"type": kind, "output_index": len(self.output) - 1, **more}

    def _of_item(self, kind: str, **more: Any) -> Json:
        return self._event(kind, item_id=self.output[-1]["id"], **more)

    def _of_part(self, kind: str, **more: Any) -> Json:
        return self._of_item(kind, content_index=0, **more)


def _id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(24)}"
