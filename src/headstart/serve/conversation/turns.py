"""A conversation as every interface reads it: turns, tools, and which of the tools may be called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headstart.types import Structure

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
"""The JSON schema of a tool's arguments where it has none."""


INPUT = "input"
"""The only argument of a tool that takes one text."""


@dataclass(frozen=True, slots=True)
class System:
    """Instructions. Their place is kept: a conversation may have them in its middle.

    role: "developer" is OpenAI's newer name; templates that do not know it are given "system".
    """

    text: str
    role: Literal["system", "developer"] = "system"


@dataclass(frozen=True, slots=True)
class User:
    """What the user says."""

    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool, as a model has written it.

    arguments: JSON text. It is kept as it was written, and may be broken: a conversation must outlive one bad call.
    """

    name: str
    arguments: str = "{}"
    id: str = ""


@dataclass(frozen=True, slots=True)
class Assistant:
    """What the model has said: its reasoning, its text, its calls, in this order."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool has answered.

    call_id: of the call; a result without one, or without a call of that id, is accepted.
    name: of the tool; where it is empty, `Conversation.named` finds it by the call.
    """

    text: str
    call_id: str = ""
    name: str = ""


Turn = System | User | Assistant | ToolResult


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call.

    parameters: the JSON schema of its arguments, an object.
    strict: whether a schema that cannot be enforced whole is an error; else what cannot be enforced is left out.
    grammar: of a tool that takes one text, its only argument "input": what the text must be, of the kind "lark" or
        "regex"; None for any text.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: ANY_OBJECT)
    strict: bool = False
    grammar: Structure | None = None


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools may be called, and whether one must be.

    mode: "auto" leaves it to the model, "none" forbids calls, "required" asks for at least one.
    names: the tools that may be called; empty for all of them. The prompt shows all tools in any case, so that the
        cache of a conversation stays good when the choice changes.
    one: whether the request names a single function (OpenAI's named choice). Its answer ends with "stop".
    """

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    one: bool = False


@dataclass(frozen=True, slots=True)
class Thinking:
    """What the request says of reasoning.

    on: whether the model is to reason; None leaves it to the template.
    effort: "none", "minimal", "low", "medium", "high" or a template's own word; None leaves it to the template.
    budget: the most tokens of reasoning; None is no limit.
    """

    on: bool | None = None
    effort: str | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a model is asked.

    parallel: whether one reply may have several calls.
    variables: of the chat template, as the client names them.
    continued: whether the reply continues the last turn, an assistant's, in place of a new one.
    begun: whether the template begins the reply; only the tokenizer's paths ever say no.
    """

    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = ToolChoice()
    parallel: bool = True
    thinking: Thinking = Thinking()
    variables: Mapping[str, Any] = field(default_factory=dict)
    continued: bool = False
    begun: bool = True

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that the reply may call."""
        if self.choice.mode == "none":
            return ()
        return tuple(tool for tool in self.tools if not self.choice.names or tool.name in self.choice.names)

    def named(self, result: ToolResult) -> str:
        """The name of the tool that gave a result; "" where no call of the conversation has its id."""
        if result.name or not result.call_id:
            return result.name
        calls = (call for turn in self.turns if isinstance(turn, Assistant) for call in turn.calls)
        return next((call.name for call in calls if call.id == result.call_id), "")
