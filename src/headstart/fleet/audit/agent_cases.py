"""The requests of agents that `headstart audit --tools` asks a server: one fixed set, of our own.

Every request is one of `/v1/chat/completions`, in fields that OpenAI's reference has. Each kind has several prompts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
MOST_TOKENS = 96
_TEMPERATURE, _SEED = 0.8, 20_000


@dataclass(frozen=True, slots=True)
class Case:
    """A request. seeded: whether it is drawn with a seed; else it is greedy."""

    name: str
    body: Mapping[str, Any]
    seeded: bool = False


def _tool(name: str, about: str, **properties: Json) -> Json:
    schema = {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


_TEXT: Json = {"type": "string"}
_READ = _tool("read_file", "Read a file", path=_TEXT, lines={"type": "integer"})
_EDIT = _tool("edit_file", "Replace a text in a file", path=_TEXT, old_string=_TEXT, new_string=_TEXT)
_WEATHER = _tool("weather", "Tell the weather", city=_TEXT, unit={"enum": ["celsius", "fahrenheit"]})
_RUN = _tool("run", "Run a command", command=_TEXT)
TOOLS = [_READ, _EDIT, _WEATHER, _RUN]
_PERSON: Json = {
    "type": "object",
    "properties": {"name": _TEXT, "age": {"type": "integer"}, "tags": {"type": "array", "items": _TEXT, "maxItems": 4}},
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
_FILE = 'def area(width, height):\n    """The area of a "box"."""\n    return width * height\n\n\nprint(area(2, 3))\n'


def _user(text: str) -> list[Json]:
    return [{"role": "user", "content": text}]


def _edited(ask: str, name: str = "box.py") -> list[Json]:
    """A conversation in which a file was read, and is to be edited: the call copies from the tool's result."""
    arguments = json.dumps({"path": name, "lines": 20})
    call = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
    return [
        *_user(f"In {name}, {ask}."),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": _FILE},
    ]


def _forced(name: str) -> Json:
    return {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": name}}}


_ASKED: Sequence[tuple[str, Json, Sequence[list[Json]]]] = (
    ("forced tool", _forced("weather"), [_user("How warm is it in Lima?"), _user("Is it cold in Oslo today?")]),
    ("required", {"tools": TOOLS, "tool_choice": "required"}, [_user("List the files."), _user("Read notes.md.")]),
    ("auto", {"tools": TOOLS}, [_user("What is in setup.py?"), _user("Say hello to the team.")]),
    (
        "parallel", {"tools": [_WEATHER], "tool_choice": "required", "parallel_tool_calls": True},
        [_user("Compare the weather in Rome and in Cairo."), _user("Weather in Quito, Bern and Hanoi?")],
    ),
    (
        "JSON schema",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": _PERSON}}},
        [_user("Invent a person."), _user("Ada is 36. She likes sums, engines and poems.")],
    ),
    (
        "edit", _forced("edit_file"),
        [_edited("rename area to surface"), _edited("print the area of 4 by 5 instead", "print.py")],
    ),
    (
        "reasoning", {"tools": TOOLS, "chat_template_kwargs": {"enable_thinking": True}},
        [_user("Which is larger, 9.11 or 9.9?"), _user("Plan how to sort a list of files by size.")],
    ),
)  # fmt: skip


def cases(*, seeded: bool) -> list[Case]:
    """The requests: greedy ones, and with `seeded` each of them once more at a temperature, with a seed."""
    found: list[Case] = []
    for kind, fields, prompts in _ASKED:
        for number, messages in enumerate(prompts, 1):
            body = {"messages": messages, "max_tokens": MOST_TOKENS, **fields}
            found.append(Case(f"{kind} {number}, greedy", {**body, "temperature": 0}))
            if seeded:
                drawn = {"temperature": _TEMPERATURE, "seed": _SEED + len(found)}
                found.append(Case(f"{kind} {number}, seeded", body | drawn, seeded=True))
    return found
