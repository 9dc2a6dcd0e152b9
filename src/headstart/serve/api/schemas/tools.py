"""Tools, calls and what may be called, as OpenAI's chat interface writes them; and what they become."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from headstart.base.errors import InvalidGrammar
from headstart.rule.grammar_limits import check
from headstart.serve.api.errors import Refused, invalid_value
from headstart.serve.api.schemas.strict import Strict
from headstart.serve.conversation.turns import ANY_OBJECT, INPUT, Call, Tool, ToolChoice
from headstart.types import Structure

MOST_TOOLS = 256


class FunctionField(Strict):
    """A function that the model may call."""

    place: ClassVar[str] = "tools.function."
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = dict.fromkeys(("returns", "response", "cache_control"), ())

    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = Field(default=None, description="A JSON schema; any object by default.")
    strict: bool | None = Field(default=None, description="The schema is enforced whole, or refused.")


class CustomField(Strict):
    """A tool that takes a text."""

    place: ClassVar[str] = "tools.custom."

    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    format: dict[str, Any] | None = Field(default=None, description="Any text, or one that follows a grammar.")


class ToolField(Strict):
    """A tool: a function, or one that takes a text."""

    place: ClassVar[str] = "tools."
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = dict.fromkeys(("strict", "cache_control"), ())

    type: str
    function: FunctionField | None = None
    custom: CustomField | None = None

    @property
    def value(self) -> Tool:
        """Raises:
        Refused: it is neither.
        """
        if self.type == "function" and self.function is not None:
            of = self.function
            return Tool(of.name, of.description or "", of.parameters or ANY_OBJECT, bool(of.strict))
        if self.type == "custom" and self.custom is not None:
            return custom_tool(self.custom.name, self.custom.description, self.custom.format, "tools.custom")
        raise invalid_value(
            "tools", f"a tool of the type {json.dumps(self.type[:40])} without its object",
            'give {"type": "function", "function": {...}}',
        )  # fmt: skip


class CalledField(Strict):
    """What a call of the past called. Arguments may be broken: a conversation must outlive them."""

    place: ClassVar[str] = "messages.tool_calls.function."

    name: str
    arguments: str | dict[str, Any] | None = None
    input: str | None = Field(default=None, description="Of a tool that takes a text.")


class CallField(Strict):
    """A call in a message of the assistant. What an answer of this server has may be sent back as it is."""

    place: ClassVar[str] = "messages.tool_calls."
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {"index": (), "extra_content": ()}

    id: str | None = None
    type: str | None = None
    function: CalledField | None = None
    custom: CalledField | None = None

    @property
    def value(self) -> Call:
        """Raises:
        Refused: it says nothing of what is called.
        """
        of = self.function or self.custom
        if of is None:
            hint = 'give {"id": "...", "type": "function", "function": {"name": "...", "arguments": "{}"}}'
            raise Refused("a call without its function", hint=hint, code="invalid_value", param="messages")
        if of.input is not None:
            arguments = json.dumps({INPUT: of.input}, ensure_ascii=False)
        elif isinstance(of.arguments, dict):
            arguments = json.dumps(of.arguments, ensure_ascii=False)
        else:
            arguments = of.arguments or "{}"
        return Call(of.name, arguments, self.id or "")


def custom_tool(name: str, description: str | None, form: Any, place: str) -> Tool:
    """A tool that takes one text, as the prompt shows it: a function with one argument.

    form: OpenAI's `format`: any text, or a grammar, whose fields chat requests wrap once more than responses do.
    place: of the tool in the request.

    Raises:
        Refused: the format is neither, or its grammar is larger or more costly than a grammar may be.
    """
    shown: dict[str, Any] = {"type": "string"}
    grammar: Structure | None = None
    if form is not None and form != {"type": "text"}:
        inner = form.get("grammar", form) if isinstance(form, Mapping) and form.get("type") == "grammar" else None
        found = inner if isinstance(inner, Mapping) else {}
        syntax, definition = found.get("syntax"), found.get("definition")
        if syntax not in ("lark", "regex") or not isinstance(definition, str) or not definition:
            hint = 'give {"type": "text"}, or {"type": "grammar", "syntax": "lark" or "regex", "definition": "..."}'
            raise invalid_value(f"{place}.format", f"{place}.format is neither any text nor a grammar", hint)
        grammar = Structure(syntax, definition)
        try:
            check(grammar)
        except InvalidGrammar as error:
            raise invalid_value(f"{place}.format.definition", error.message, error.hint) from error
        shown["description"] = f"A text that follows this {syntax} grammar:\n{definition}"
    schema = {
        "type": "object", "properties": {INPUT: shown}, "required": [INPUT], "additionalProperties": False,
    }  # fmt: skip
    return Tool(name, description or "", schema, grammar=grammar)


def input_of(arguments: str) -> str:
    """The text of a tool that takes one, out of the JSON that the prompt asks for; broken JSON as it is."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return str(found[INPUT]) if isinstance(found, dict) and INPUT in found else arguments


def tools_of(fields: Sequence[ToolField] | None) -> tuple[Tool, ...]:
    """The tools of a request.

    Raises:
        Refused: two have one name, there are too many, or one is none.
    """
    found = tuple(field.value for field in fields or ())
    if len(found) > MOST_TOOLS:
        raise invalid_value("tools", f"{len(found)} tools", f"give at most {MOST_TOOLS}")
    names = [tool.name for tool in found]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise invalid_value("tools", f"two tools are called {json.dumps(double)}", "give each a name of its own")
    return found


def choice_of(given: str | Mapping[str, Any] | None, tools: Sequence[Tool]) -> ToolChoice:
    """Which tools may be called: OpenAI's `tool_choice`.

    Raises:
        Refused: it is none of its forms, or names a tool that is not there.
    """
    if given is None:
        return ToolChoice()
    if given in ("auto", "none", "required"):
        if given == "required" and not tools:
            raise invalid_value("tool_choice", "a call is required, and there are no tools", "give tools")
        return ToolChoice(given)  # type: ignore[arg-type]
    if isinstance(given, Mapping):
        if given.get("type") == "allowed_tools":
            inner = given.get("allowed_tools", given)
            listed = inner.get("tools") if isinstance(inner, Mapping) else None
            mode = inner.get("mode", "auto") if isinstance(inner, Mapping) else None
            if mode in ("auto", "required") and isinstance(listed, list) and listed:
                return ToolChoice(mode, tuple(_known(_named(each), tools) for each in listed))
        elif (name := _named(given)) is not None:
            return ToolChoice("required", (_known(name, tools),), one=True)
    words = "tool_choice is none of its forms"
    hint = 'give "auto", "none", "required" or {"type": "function", "function": {"name": "..."}}'
    raise invalid_value("tool_choice", words, hint)


def _named(given: Any) -> str | None:
    if not isinstance(given, Mapping):
        return None
    inner = given.get("function", given.get("custom", given))
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return name if isinstance(name, str) else None


def _known(name: str | None, tools: Sequence[Tool]) -> str:
    if name is None or all(tool.name != name for tool in tools):
        words = f"tool_choice names {json.dumps((name or '')[:60])}, which is none of the tools"
        raise invalid_value("tool_choice", words, "name one of the request's tools")
    return name
