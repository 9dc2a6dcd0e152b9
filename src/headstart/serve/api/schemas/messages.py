"""What `/v1/messages` takes: Anthropic's Messages, read into a conversation.

Agents send what no list has, and one refusal ends their work: unknown fields and kinds of blocks are accepted and
named. In the history, what this model cannot read is said in brackets; in the newest message it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from headstart.serve.api.errors import Refused, invalid_value, unsupported
from headstart.serve.api.schemas.parts import PredictionField, SpeculationField
from headstart.serve.api.schemas.strict import Strict
from headstart.serve.conversation.turns import (
    ANY_OBJECT,
    Assistant,
    Call,
    Conversation,
    System,
    Thinking,
    Tool,
    ToolChoice,
    ToolResult,
    Turn,
    User,
)  # fmt: skip

BILLING = "x-anthropic-billing-header:"
"""A system block that begins so changes with each request and is not for the model. It would make the cache useless."""
_TEXTLESS = "this model reads text; send text blocks"


class Lenient(Strict):
    """An object whose unknown fields are accepted and named."""

    lenient: ClassVar[bool] = True


class Marked(Strict):
    """An object that bears marks of many kinds, such as `cache_control`, which change nothing and are not named."""

    @classmethod
    def _matters(cls, _name: str, _value: Any) -> bool:
        return False


class Block(Marked):
    """A block of a message: text, thinking, a call or its result. Which fields it has depends on its type."""

    place: ClassVar[str] = "messages.content."

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None


class MessageOf(Lenient):
    """One message. `system` may stand between others."""

    place: ClassVar[str] = "messages."

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class SystemBlock(Marked):
    """A block of the instructions."""

    place: ClassVar[str] = "system."

    type: Literal["text"]
    text: str


class ToolOf(Marked):
    """A tool. One with a `type` other than "custom" is run by Anthropic's own servers, and is left out here."""

    place: ClassVar[str] = "tools."

    type: str | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoiceOf(Lenient):
    """Whether a tool must be called."""

    place: ClassVar[str] = "tool_choice."

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingOf(Lenient):
    """Whether the model reasons, and how long it may."""

    place: ClassVar[str] = "thinking."
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {"display": ()}

    type: str
    budget_tokens: int | None = Field(default=None, ge=1)


class OutputFormat(Lenient):
    """The form of the answer's text."""

    place: ClassVar[str] = "output_config.format."

    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(Lenient):
    """How much the model thinks, and the form of its answer."""

    place: ClassVar[str] = "output_config."

    effort: str | None = None
    format: OutputFormat | None = None


class CountRequest(Lenient):
    """A conversation to count: the part of a request that makes its prompt."""

    any_model: ClassVar[bool] = True
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = dict.fromkeys(
        ("metadata", "context_management", "service_tier", "container", "mcp_servers", "speed", "betas",
         "inference_geo", "cache_control"),
        (),
    )  # fmt: skip

    model: str | None = None
    messages: list[MessageOf] = Field(min_length=1)
    system: str | list[SystemBlock] | None = None
    tools: list[ToolOf] | None = None
    tool_choice: ToolChoiceOf | None = None
    thinking: ThinkingOf | None = None
    output_config: OutputConfig | None = None

    @property
    def dropped(self) -> list[str]:
        """Tools that somebody else would have to run."""
        return [tool.name for tool in self.tools or () if tool.type not in (None, "custom")]

    def conversation(self) -> Conversation:
        """What the model is asked.

        Raises:
            Refused: a choice of a tool that is not there, or what this model cannot read.
        """
        turns: list[Turn] = [System(text)] if (text := _instructions(self.system)) else []
        for number, message in enumerate(self.messages):
            turns += _turns(message, newest=number == len(self.messages) - 1)
        if not turns:
            raise Refused(
                "the messages are empty", hint="give at least one text", code="invalid_prompt", param="messages"
            )
        tools = tuple(
            Tool(tool.name, tool.description or "", tool.input_schema or ANY_OBJECT, strict=bool(tool.strict))
            for tool in self.tools or ()
            if tool.type in (None, "custom")
        )
        asked = self.tool_choice
        return Conversation(
            tuple(turns), tools, self._choice(tools), parallel=not (asked and asked.disable_parallel_tool_use),
            thinking=self._thinking(), continued=isinstance(turns[-1], Assistant),
        )  # fmt: skip

    def _choice(self, tools: Sequence[Tool]) -> ToolChoice:
        asked = self.tool_choice
        if asked is None or asked.type == "auto":
            return ToolChoice()
        if asked.type == "none":
            return ToolChoice("none")
        names = () if asked.type == "any" else (asked.name or "",)
        if not tools or any(name not in {tool.name for tool in tools} for name in names):
            words = f"tool_choice wants {json.dumps(asked.name) if names else 'a tool'}, and tools has none like that"
            raise invalid_value("tool_choice", words, "name one of the tools of this request")
        return ToolChoice("required", names)

    def _thinking(self) -> Thinking:
        asked, effort = self.thinking, self.output_config.effort if self.output_config else None
        if asked is None:
            return Thinking(effort=effort)
        if asked.type == "disabled":
            return Thinking(on=False)
        if asked.type == "enabled":
            return Thinking(on=True, effort=effort, budget=asked.budget_tokens)
        return Thinking(effort=effort)  # "adaptive" and what may come: the model's template decides


class MessagesRequest(CountRequest):
    """A conversation to continue. Names and meanings are Anthropic's; what is ours has our names."""

    max_tokens: int = Field(ge=1)
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = None
    cache_salt: str | None = Field(default=None, max_length=256)
    tag: str | None = Field(default=None, max_length=64)
    speculation: SpeculationField | None = None
    prediction: PredictionField | None = None

    def options(self) -> dict[str, Any]:
        """The fields that chat requests have, by their names there."""
        same = (
            "temperature", "top_p", "top_k", "min_p", "seed", "stream", "cache_salt", "tag", "speculation",
            "prediction",
        )  # fmt: skip
        return {name: getattr(self, name) for name in same} | {"stop": self.stop_sequences}


def _instructions(system: str | Sequence[SystemBlock] | None) -> str:
    texts = [system] if isinstance(system, str) else [block.text for block in system or ()]
    return "\n\n".join(text.strip("\n") for text in texts if text and not text.startswith(BILLING))


def _turns(message: MessageOf, *, newest: bool) -> Iterator[Turn]:
    blocks = [Block(type="text", text=message.content)] if isinstance(message.content, str) else message.content
    match message.role:
        case "system":
            if text := "\n\n".join(_texts(blocks, newest=newest)):
                yield System(text)
        case "assistant":
            yield _assistant(blocks)
        case "user":
            yield from _results(blocks)
            if texts := _texts([block for block in blocks if block.type != "tool_result"], newest=newest):
                yield User("\n\n".join(texts))


def _assistant(blocks: Sequence[Block]) -> Assistant:
    thoughts = [block.thinking or "" for block in blocks if block.type == "thinking"]
    texts = [block.text or "" for block in blocks if block.type == "text"]
    calls = [
        Call(block.name or "", _dumped({} if block.input is None else block.input), block.id or "")
        for block in blocks
        if block.type == "tool_use"
    ]
    return Assistant("\n\n".join(texts), "\n\n".join(thoughts), tuple(calls))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _results(blocks: Sequence[Block]) -> Iterator[ToolResult]:
    """Results come first, as the calls that they answer do. That one is an error, only its text can say."""
    for block in blocks:
        if block.type == "tool_result":
            yield ToolResult(_plain(block.content), block.tool_use_id or "")


def _plain(content: Any) -> str:
    """The text of a tool's result: a text, blocks, or anything else as JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        parts = [each if isinstance(each, dict) else {"type": "text", "text": str(each)} for each in content]
        texts = (str(each.get("text", "")) if each.get("type") == "text" else f"[{each.get('type')}]" for each in parts)
        return "\n".join(texts)
    return _dumped(content)


def _texts(blocks: Sequence[Block], *, newest: bool) -> list[str]:
    """The texts of blocks; what is no text stands as its kind in brackets, or is refused where it is new."""
    texts: list[str] = []
    for block in blocks:
        if block.type == "text":
            texts.append(block.text or "")
        elif newest and block.type in ("image", "document"):
            raise unsupported("messages.content", f"{block.type} blocks are not read here", _TEXTLESS)
        else:
            texts.append(f"[{block.type}]")
    return [text for text in texts if text]
