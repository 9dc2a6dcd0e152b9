"""What `/v1/responses` takes: the items of OpenAI's Responses and of Open Responses, read into a conversation.

Agents send what no list has, and one refusal ends their work: unknown fields, items and tools are accepted and named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from headstart.serve.api.errors import Refused, invalid_value, unsupported
from headstart.serve.api.schemas.common import MOST_LOGPROBS
from headstart.serve.api.schemas.messages import Lenient
from headstart.serve.api.schemas.parts import PredictionField, SpeculationField, StreamOptions
from headstart.serve.api.schemas.tools import custom_tool
from headstart.serve.conversation.turns import (
    ANY_OBJECT,
    INPUT,
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

Item = Mapping[str, Any]
_TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")
JOINED = "__"
"""Between a namespace and the name of a function in it, in the prompt."""


class TextFormat(Lenient):
    """The form of the answer's text."""

    place: ClassVar[str] = "text.format."

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextOptions(Lenient):
    """`text`: the form of the answer."""

    place: ClassVar[str] = "text."
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {"verbosity": ()}

    format: TextFormat | None = None


class ReasoningOptions(Lenient):
    """`reasoning`: how much the model thinks. Summaries are not written: an answer has the reasoning itself."""

    place: ClassVar[str] = "reasoning."
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {"summary": (), "generate_summary": (), "context": ()}

    effort: str | None = None


class ResponsesRequest(Lenient):
    """A conversation to continue. Names and meanings are OpenAI's; what is ours has our names."""

    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {
        **dict.fromkeys(
            ("include", "prompt_cache_key", "prompt_cache_retention", "service_tier", "client_metadata",
             "max_tool_calls"),
            (),
        ),
        "background": (False,),
        "truncation": ("disabled", "auto"),
    }  # fmt: skip
    refused: ClassVar[Mapping[str, str]] = {
        "background": "an answer is written while its request waits",
        "conversation": "send the items, or previous_response_id",
        "prompt": "send the prompt itself as instructions and input",
        "truncation": "leave it out",
    }

    model: str | None = None
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_logprobs: int | None = Field(default=None, ge=0, le=MOST_LOGPROBS)
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0)
    seed: int | None = None
    cache_salt: str | None = Field(default=None, max_length=256)
    tag: str | None = Field(default=None, max_length=64)
    speculation: SpeculationField | None = None
    prediction: PredictionField | None = None

    @property
    def items(self) -> list[dict[str, Any]]:
        """The new items of the conversation."""
        if isinstance(self.input, str):
            return [{"type": "message", "role": "user", "content": self.input}]
        return self.input or []

    def options(self) -> dict[str, Any]:
        """The fields that chat requests have, by their names there."""
        same = (
            "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
            "seed", "stream", "cache_salt", "tag", "speculation", "prediction", "user", "safety_identifier",
        )  # fmt: skip
        found = {name: getattr(self, name) for name in same} | {"response_format": self._response_format()}
        return found | {"max_tokens": self.max_output_tokens}

    def _response_format(self) -> dict[str, Any] | None:
        form = self.text.format if self.text else None
        if form is None or form.type == "text":
            return None
        if form.type == "json_object":
            return {"type": "json_object"}
        if form.json_schema is None:
            raise invalid_value("text.format.schema", "text.format has no schema", "give the JSON schema of the answer")
        schema = {"name": form.name or "answer", "schema": form.json_schema, "strict": bool(form.strict)}
        return {"type": "json_schema", "json_schema": schema}


@dataclass(frozen=True, slots=True)
class Named:
    """What a function of the prompt is called in the interface.

    namespace: of the tool that holds it; "" where it stands alone.
    custom: whether its arguments are one text, which the prompt asks for as {"input": text}.
    """

    name: str
    namespace: str = ""
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks: the conversation, and what was left out of it.

    names: of functions that are called otherwise in the interface than in the prompt.
    ignored: items and tools that do nothing here.
    """

    conversation: Conversation
    names: Mapping[str, Named]
    ignored: tuple[str, ...]


def asked(request: ResponsesRequest, before: Sequence[Item] = ()) -> Asked:
    """The conversation of a request. before: the items of the responses that it follows.

    Raises:
        Refused: an item that cannot be, a choice of a tool that is not there, or what this model cannot read.
    """
    ignored: list[str] = []
    tools, names = _tools(request.tools or (), ignored)
    by_name = {(named.namespace, named.name): name for name, named in names.items()}
    turns = list(_turns([*before, *request.items], by_name, ignored))
    lead = 0
    while lead < len(turns) and isinstance(turns[lead], System):
        lead += 1
    texts = [text for text in (request.instructions, *(turn.text for turn in turns[:lead])) if text]
    if texts:  # templates refuse a second system message
        turns[:lead] = [System("\n\n".join(texts))]
    if not turns:
        raise Refused("the input is empty", hint="give at least one item", code="invalid_prompt", param="input")
    effort = request.reasoning.effort if request.reasoning else None
    conversation = Conversation(
        tuple(turns), tools, _choice(request.tool_choice, tools, by_name),
        parallel=request.parallel_tool_calls is not False, thinking=Thinking(effort=effort),
    )  # fmt: skip
    return Asked(conversation, names, tuple(dict.fromkeys(ignored)))


# -- tools -----------------------------------------------------------------------------------------------------------


def _tools(given: Sequence[Item], ignored: list[str]) -> tuple[tuple[Tool, ...], dict[str, Named]]:
    tools: list[Tool] = []
    names: dict[str, Named] = {}
    for number, tool in enumerate(given):
        place = f"tools.{number}"
        match tool.get("type"):
            case "function":
                tools.append(_function(tool, place, _name(tool, place)))
            case "custom":
                name = _name(tool, place)
                tools.append(custom_tool(name, str(tool.get("description") or ""), tool.get("format"), place))
                names[name] = Named(name, custom=True)
            case "namespace":
                space = _name(tool, place)
                for at, each in enumerate(tool.get("tools") or ()):
                    inner = _name(each, f"{place}.tools.{at}")
                    tools.append(_function(each, f"{place}.tools.{at}", f"{space}{JOINED}{inner}"))
                    names[tools[-1].name] = Named(inner, space)
            case other:  # a tool that OpenAI's servers run
                ignored.append(f"the tool {str(other)[:60]}")
    return tuple(tools), names


def _name(tool: Any, place: str) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    if not isinstance(name, str) or not name:
        raise invalid_value(f"{place}.name", f"{place} has no name", "each tool has a name and parameters")
    return name


def _function(tool: Item, place: str, name: str) -> Tool:
    parameters = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid_value(f"{place}.parameters", f"{place}.parameters is no object", "give a JSON schema")
    return Tool(name, str(tool.get("description") or ""), parameters or ANY_OBJECT, strict=bool(tool.get("strict")))


def _choice(choice: Any, tools: Sequence[Tool], by_name: Mapping[tuple[str, str], str]) -> ToolChoice:
    if choice in (None, "auto"):
        return ToolChoice()
    if choice == "none":
        return ToolChoice("none")
    known = {tool.name for tool in tools}
    if choice == "required":
        names: tuple[str, ...] = ()
    elif isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
        names = (_called(choice, by_name),)
    elif isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = [each for each in choice.get("tools") or () if isinstance(each, dict)]
        names = tuple(name for each in allowed if (name := _called(each, by_name)) in known)
        if choice.get("mode") != "required":
            return ToolChoice("auto", names) if names else ToolChoice("none")
    else:
        kind = json.dumps(choice if isinstance(choice, str) else (choice or {}).get("type"))[:60]
        raise unsupported("tool_choice", f"tool_choice {kind} is not served here", "choose a function, or auto")
    if not known or any(name not in known for name in names):
        words = "tool_choice wants a tool that is not among tools"
        raise invalid_value("tool_choice", words, "name one of the tools of this request")
    return ToolChoice("required", names)


def _called(item: Item, by_name: Mapping[tuple[str, str], str]) -> str:
    """The name in the prompt of what an item calls."""
    space, name = str(item.get("namespace") or ""), str(item.get("name") or "")
    return by_name.get((space, name), f"{space}{JOINED}{name}" if space else name)


# -- items -----------------------------------------------------------------------------------------------------------


def _turns(items: Sequence[Item], by_name: Mapping[tuple[str, str], str], ignored: list[str]) -> Iterator[Turn]:
    """The turns: what the model wrote in a row, reasoning, text and calls, is one."""
    own: list[Turn] = []
    for number, item in enumerate(items):
        turn = _turn(item, f"input.{number}", by_name, ignored, newest=number == len(items) - 1)
        if isinstance(turn, Assistant):
            own.append(turn)
            continue
        if turn is not None:
            yield from _joined(own)
            own = []
            yield turn
    yield from _joined(own)


def _joined(own: Sequence[Any]) -> Iterator[Turn]:
    if own:
        yield Assistant(
            "\n\n".join(turn.text for turn in own if turn.text),
            "\n\n".join(turn.reasoning for turn in own if turn.reasoning),
            tuple(call for turn in own for call in turn.calls),
        )


def _turn(
    item: Item, place: str, by_name: Mapping[tuple[str, str], str], ignored: list[str], *, newest: bool
) -> Turn | None:
    kind = item.get("type") or ("message" if "role" in item else None)
    identity = str(item.get("call_id") or item.get("id") or "")
    match kind:
        case "message":
            text = _text(item.get("content"), f"{place}.content", newest=newest)
            match item.get("role"):
                case "system" | "developer" as role:
                    return System(text, role)
                case "user":
                    return User(text)
                case "assistant":
                    return Assistant(text)
            words = f"{place} has the role {json.dumps(item.get('role'))[:60]}"
            raise invalid_value(f"{place}.role", words, "roles are system, developer, user and assistant")
        case "function_call":
            return Assistant(calls=(Call(_called(item, by_name), str(item.get("arguments") or "{}"), identity),))
        case "custom_tool_call":
            arguments = json.dumps({INPUT: item.get("input") or ""}, ensure_ascii=False)
            return Assistant(calls=(Call(_called(item, by_name), arguments, identity),))
        case "function_call_output" | "custom_tool_call_output":
            return ToolResult(_text(item.get("output"), f"{place}.output", newest=False), identity)
        case "reasoning":
            return Assistant(reasoning=_text(item.get("content"), f"{place}.content", newest=False))
        case "compaction":
            hint = "send the items that it stands for"
            raise unsupported(f"{place}.type", "compacted items of another server cannot be read", hint)
    ignored.append(f"the input item {str(kind)[:60]}")
    return None


def _text(content: Any, place: str, *, newest: bool) -> str:
    """The text of a content field: a text, or parts; what is no text stands as its kind in brackets where it is old."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise invalid_value(place, f"{place} is neither a text nor a list of parts", "give a text")
    texts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in _TEXTS:
            texts.append(str(part.get("text") or ""))
        elif kind == "refusal":
            texts.append(str(part.get("refusal") or ""))
        elif newest:
            raise unsupported(
                place, f"{str(kind)[:60]} parts are not read here", "this model reads text; send input_text"
            )
        else:
            texts.append(f"[{str(kind)[:60]}]")
    return "\n".join(texts)
