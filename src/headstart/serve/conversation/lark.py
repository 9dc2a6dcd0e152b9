"""The grammar of a reply, in llguidance's Lark: calls of these tools in this form, before them reasoning, beside them
an answer of a given form. It follows from the same table as reading does, so that what may be written can be read.

Free text costs nothing: reasoning that the prompt has opened, and text before a call that need not come, are left to
the model up to the token that ends them (`Structure.after`, `Structure.trigger`). Only where such a mark is not one
token does the grammar go through the text itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headstart.base.errors import InvalidGrammar
from headstart.engine.prompts import encode_after
from headstart.rule import grammar_limits
from headstart.serve.conversation.detect import ChatForm, Marks
from headstart.serve.conversation.formats import Format, Separators
from headstart.serve.conversation.schemas import kinds_of, without_words
from headstart.serve.conversation.turns import ANY_OBJECT, Conversation, Tool
from headstart.types import Structure

_FINAL = "<|channel|>final<|message|>"
_ANALYSIS = ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")
_SLOT = re.compile(r"(\{(?:id|index)\})")


@dataclass(frozen=True, slots=True)
class Constraint:
    """What holds a reply to its form.

    structure: None where nothing does.
    stop: strings that end the reply.
    forbidden: a token that may not come.
    opens: text that is put behind the prompt: the mark of reasoning whose length is limited.
    warnings: what cannot be enforced.
    """

    structure: Structure | None = None
    stop: tuple[str, ...] = ()
    forbidden: int | None = None
    opens: str = ""
    warnings: tuple[str, ...] = ()


def constraint_of(
    conversation: Conversation, form: ChatForm, tokenizer: Any, *, thinking: bool, answer: Structure | None = None
) -> Constraint:
    """What holds the reply to a conversation to its form.

    thinking: whether the prompt has opened the reasoning.
    answer: the form of its text, where the request asks for one.

    Raises:
        InvalidGrammar: a strict tool's schema cannot be enforced.
    """
    calls, choice, budget = form.format, conversation.choice, conversation.thinking.budget
    marks = form.marks
    tools = conversation.callable if calls is not None else ()
    warnings: list[str] = []
    opens = ""
    if budget is not None and not thinking:
        if form.think is None or conversation.thinking.on is False:
            budget = None
            warnings.append("thinking_budget does nothing here: the reply has no reasoning")
        else:
            opens, thinking = form.think.open.rstrip("\n") + "\n", True
    writing = _Writing(calls, form.separators, marks, warnings) if calls is not None else None
    whole: Structure | None = None
    stop: tuple[str, ...] = ()
    forbidden: int | None = None
    if calls is not None and writing is not None and tools and (choice.mode == "required" or answer is not None):
        start = writing.calls(tools, several=conversation.parallel and calls.parallel and not choice.one)
        if answer is not None and choice.mode != "required":
            start = f"{start} | {_answer(answer, writing)}"
        whole = Structure("lark", writing.grammar(start))
    elif answer is not None:
        whole = answer
    elif calls is not None and writing is not None and tools:
        trigger = marks.ids.get(calls.trigger)
        if trigger is not None and calls.body != "channels":
            start = writing.calls(tools, several=conversation.parallel and bool(calls.begin), behind=calls.trigger)
            whole = Structure("lark", writing.grammar(start), trigger=(trigger,))
        if not conversation.parallel and calls.parallel:
            end = (calls.end or calls.close).strip()
            stop = (end,) if len(end) > 1 else ()
    elif calls is not None and conversation.tools and choice.mode == "none":
        forbidden = marks.ids.get(calls.trigger) if calls.body != "channels" else None
    structure = _behind_reasoning(whole, form, marks, tokenizer, thinking=thinking, budget=budget)
    return Constraint(structure, stop, forbidden, opens, tuple(warnings))


def _behind_reasoning(
    whole: Structure | None, form: ChatForm, marks: Marks, tokenizer: Any, *, thinking: bool, budget: int | None
) -> Structure | None:
    """The structure of what follows the reasoning, as that of the whole reply."""
    if form.format is not None and form.format.body == "channels":
        if whole is None or whole.trigger:
            return whole
        rules = (
            f"start: analysis? reply\nanalysis: {marks.items(_ANALYSIS[0])} /(.|\\n)*/ {marks.items(_ANALYSIS[1])}\n"
            f"reply: {marks.items(_FINAL) + ' ' if whole.kind != 'lark' else ''}"
        )  # fmt: skip
        return Structure("lark", rules + _inner(whole), spelling=whole.spelling)
    if form.think is None or (whole is None and budget is None):
        return whole
    close = form.think.close
    one = marks.ids.get(close)
    if thinking:
        after = (one,) if one is not None else encode_after(tokenizer, (), close)
        if budget is not None or one is not None:
            if whole is None:
                return Structure("text", after=after, thinking=budget)
            if not whole.trigger:
                whole = Structure("lark", f"start: /\\n{{0,2}}/ reply\nreply: {_inner(whole)}", spelling=whole.spelling)
            return replace(whole, after=after, thinking=budget)
    if whole is None or whole.trigger:
        return whole
    thought = f"/(.|\\n)*/ {marks.items(close)}" if marks.within(close) else "ended"
    opened = "" if thinking else marks.items(form.think.open.rstrip()) + " "
    rules = f"start: thought{'' if thinking else '?'} /\\n{{0,2}}/ reply\nthought: {opened}{thought}\n"
    if thought == "ended":
        rules += f"ended[lazy]: /(.|\\n)*{_in_regex(close)}/\n"
    return Structure("lark", f"{rules}reply: {_inner(whole)}", spelling=whole.spelling)


def _inner(whole: Structure) -> str:
    """A structure as the right side of a rule, and what rules it needs behind it."""
    if whole.kind == "lark":
        return whole.text.removeprefix("start: ")
    if whole.kind == "json":
        return "%json " + _schema(ANY_OBJECT, None, lenient=True)
    if whole.kind == "schema":
        separators = None if whole.whitespace == "flexible" else _SEPARATORS[whole.whitespace]
        return "%json " + _schema(json.loads(whole.text), separators, lenient=whole.lenient)
    if whole.kind == "regex":
        return f"/{whole.text.replace('/', chr(92) + '/')}/"
    if whole.kind == "choice":
        return " | ".join(_quoted(each) for each in json.loads(whole.text))
    raise InvalidGrammar(
        f"a grammar of the kind {whole.kind!r} goes together neither with tools nor with reasoning",
        hint="leave the tools out, and set enable_thinking to false in chat_template_kwargs",
    )


_SEPARATORS = {"compact": Separators(",", ":"), "spaced": Separators()}


def _answer(answer: Structure, writing: _Writing) -> str:
    if answer.kind == "lark":
        raise InvalidGrammar("a grammar and tools exclude each other", hint="ask for a JSON schema, or leave out tools")
    writing.rules.append(f"answer: {_inner(answer)}")
    return "answer"


class _Writing:
    """Writes the rules of calls. warnings: takes what cannot be enforced."""

    def __init__(self, form: Format, separators: Separators, marks: Marks, warnings: list[str]) -> None:
        self.form, self.separators, self.marks, self.warnings = form, separators, marks, warnings
        self.rules: list[str] = []
        self._values: dict[str, str] = {}

    def grammar(self, start: str) -> str:
        """The whole of it. start: the right side of the first rule."""
        return "\n".join([f"start: {start}", *self.rules]) + "\n"

    def calls(self, tools: Sequence[Tool], *, several: bool, behind: str = "") -> str:
        """The right side of a rule for calls of these tools; adds the rules that it needs.

        behind: the mark that has come already.
        """
        form = self.form
        names = []
        for number, tool in enumerate(tools):
            names.append(f"tool_{number}")
            self.rules.append(f"tool_{number}: {self._body(number, tool)}")
        call = " | ".join(names)
        opened = form.open.removeprefix(behind) if behind and not form.begin else form.open
        parts = (self.marks.items(opened), f"({call})", "" if form.body == "channels" else self.marks.items(form.close))
        one = " ".join(part for part in parts if part)
        if several:
            again = " ".join(part for part in (self.marks.items(form.between), one) if part)
            one = f"{one} ({again})*"
        begin = form.begin.removeprefix(behind) if behind else form.begin
        found = (self.marks.items(begin), one, self.marks.items(form.end))
        return " ".join(part for part in found if part)

    def _body(self, number: int, tool: Tool) -> str:
        form, items = self.form, self.marks.items
        match form.body:
            case "json":
                return self._members(tool)
            case "text" | "channels":
                after = "".join(_slot(each) if _SLOT.fullmatch(each) else _joined(items(each))
                                for each in _SLOT.split(form.after_name))  # fmt: skip
                return f"{items(tool.name)} {after} {self._json(tool)}"
            case "xml":
                return self._xml(number, tool)
            case "python":
                return self._named(number, tool, tool.name + "(", "=", ", ", ")")
            case _:
                return self._named(number, tool, tool.name + "{", ":", ",", "}")

    def _members(self, tool: Tool) -> str:
        """An object of JSON with a name and arguments."""
        found, text = [], "{"
        for number, (meaning, key) in enumerate(self.form.keys):
            text += (self.separators.item if number else "") + json.dumps(key) + self.separators.key
            if meaning == "name":
                text += json.dumps(tool.name, ensure_ascii=False)
                continue
            found.append(self.marks.items(text))
            text = ""
            if meaning == "arguments":
                found.append(self._json(tool))
            else:
                length = self.form.id_length
                found.append(f'/"[a-zA-Z0-9]{{{length}}}"/' if length else r'/"[a-zA-Z0-9_]{1,40}"/')
        return " ".join([*found, self.marks.items(text + "}")])

    def _json(self, tool: Tool) -> str:
        return "%json " + self._enforced(tool.parameters, tool, tool.strict, self.separators)

    def _enforced(self, schema: Any, tool: Tool, strict: bool, separators: Separators | None) -> str:
        """A schema with its options; any object where it cannot be followed at all."""
        found = _schema(schema, separators, lenient=not strict)
        trouble = _trouble(found)
        if not trouble:
            return found
        words = f"the schema of the tool {json.dumps(tool.name[:60])} cannot be followed: {trouble}"
        if strict:
            raise InvalidGrammar(words, hint="change it, or leave strict out")
        self.warnings.append(words)
        return _schema(ANY_OBJECT if schema is tool.parameters else {}, separators, lenient=True)

    def _xml(self, number: int, tool: Tool) -> str:
        form, items = self.form, self.marks.items
        found = [items(tool.name + form.after_name)]
        parameters = _parameters(tool)
        for place, (key, schema, required) in enumerate(parameters):
            rule = f"tool_{number}_{place}"
            self.rules.append(f"{rule}: {self._argument(items(form.key[0] + key + form.key[1]), schema, tool)}")
            found.append(rule if required else f"{rule}?")
        if not parameters:
            rule = f"tool_{number}_any"
            key = f'{items(form.key[0])} /[^<>"\\n]+/ {items(form.key[1])}'
            self.rules.append(f"{rule}: {self._argument(key, {}, tool)}")
            found.append(f"{rule}*")
        return " ".join(found)

    def _argument(self, key: str, schema: Any, tool: Tool) -> str:
        form, items = self.form, self.marks.items
        kinds = kinds_of(schema)
        text = _joined(self._text(form.value_close))
        if form.typed:
            as_text, as_json = items('true">'), items('false">')
        else:
            as_text = as_json = ""
        choices = _strings(schema)
        if choices:
            text = f"({' | '.join(items(each + form.value_close) for each in choices)})"
        if "string" in kinds and len(kinds) == 1:
            return f"{key} {as_text} {text}"
        value = f"%json {self._enforced(schema if isinstance(schema, Mapping) else {}, tool, False, Separators())}"
        self.rules.append(f"{(name := f'value_{len(self.rules)}')}: {value}")
        if not kinds or "string" in kinds:
            either = f"({as_text} {text} | {as_json} {name} {items(form.value_close)})"
            return f"{key} {either if form.typed else text}"
        return f"{key} {as_json} {name} {items(form.value_close)}"

    def _text(self, close: str) -> str:
        """Any text up to a mark, and the mark."""
        if close not in self._values:
            name = f"text_{len(self._values)}"
            self._values[close] = name
            if self.marks.within(close):
                self.rules.append(f"{name}: /(.|\\n)*/ {self.marks.items(close)}")
            else:
                self.rules.append(f"{name}[suffix={_quoted(close)}]: /(.|\\n)*/")
        return self._values[close]

    def _named(self, number: int, tool: Tool, begin: str, sets: str, item: str, end: str) -> str:
        """Arguments with names, in the schema's order, those that are not required or not there between commas."""
        items, parameters = self.marks.items, _parameters(tool)
        prefix = f"tool_{number}"
        count = len(parameters)
        for place, (key, schema, required) in enumerate(parameters):
            argument = f"{items(key + sets)} {self._value(schema)}"
            self.rules.append(f"{prefix}_a{place}: {argument}")
            first, more = f"{prefix}_a{place} {prefix}_m{place + 1}", f"{_quoted(item)} {prefix}_a{place}"
            self.rules.append(f"{prefix}_n{place}: {first}" + ("" if required else f" | {prefix}_n{place + 1}"))
            self.rules.append(f"{prefix}_m{place}: {more if required else f'({more})?'} {prefix}_m{place + 1}")
        self.rules += [f'{prefix}_n{count}: ""', f'{prefix}_m{count}: ""']
        if not parameters:
            pair = f"/[A-Za-z_][A-Za-z0-9_]*/ {_quoted(sets)} {self._value({})}"
            self.rules[-2] = f"{prefix}_n0: ({pair} ({_quoted(item)} {pair})*)?"
        return f"{items(begin)} {prefix}_n0 {items(end)}"

    def _value(self, schema: Any) -> str:
        """A value as Python or Gemma write it."""
        python = self.form.body == "python"
        if not self._values:
            self._add_values()
        choices = _strings(schema)
        if choices:
            spelled = [repr(each) if python else f"{self.form.quote}{each}{self.form.quote}" for each in choices]
            return f"({' | '.join(map(self.marks.items, spelled))})"
        kinds = kinds_of(schema)
        if kinds == {"array"} and isinstance(schema, Mapping) and kinds_of(schema.get("items")):
            of = self._value(schema["items"])
            return f'("[" ({of} ({_quoted(", " if python else ",")} {of})*)? "]")'
        names = {"number": "number", "integer": "integer", "boolean": "boolean", "null": "nothing", "string": "string",
                 "array": "list", "object": "object"}  # fmt: skip
        found = sorted({names[kind] for kind in kinds if kind in names})
        return f"({' | '.join(found)})" if found else "value"

    def _add_values(self) -> None:
        python = self.form.body == "python"
        item = _quoted(", " if python else ",")
        self._values["value"] = "value"
        if python:
            string = r"""/'([^'\\\n]|\\[^\n])*'/ | /"([^"\\\n]|\\[^\n])*"/"""
            pair = f"string {_quoted(': ')} value"
        else:
            quote = self.marks.items(self.form.quote)
            string = f"{quote} {self._text(self.form.quote)}"
            pair = '/[A-Za-z_][A-Za-z0-9_]*/ ":" value'
        self.rules += [
            "value: string | number | boolean | nothing | list | object",
            f"string: {string}",
            r"integer: /-?(0|[1-9][0-9]{0,17})/",
            r"number: /-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?/",
            'boolean: "True" | "False"' if python else 'boolean: "true" | "false"',
            'nothing: "None"' if python else 'nothing: "null"',
            f'list: "[" (value ({item} value)*)? "]"',
            f'object: "{{" ({pair} ({item} {pair})*)? "}}"',
        ]


def _parameters(tool: Tool) -> list[tuple[str, Any, bool]]:
    """The name, the schema and whether it is required, of each argument."""
    found = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    names = required if isinstance(required, list) else []
    return [(key, schema, key in names) for key, schema in found.items()] if isinstance(found, Mapping) else []


def _strings(schema: Any) -> list[str]:
    """The strings that a schema lists; none where it lists something else too."""
    if not isinstance(schema, Mapping):
        return []
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return values if isinstance(values, list) and all(isinstance(each, str) for each in values) else []


def _schema(schema: Any, separators: Separators | None, *, lenient: bool) -> str:
    """A schema with llguidance's options. separators: None for white space as the model likes."""
    options: dict[str, Any] = {"coerce_one_of": True, "lenient": lenient}
    if separators is None:
        options["whitespace_pattern"] = r"[\x20\x0A\x0D\x09]{1,8}"
    else:
        options |= {
            "whitespace_flexible": False, "item_separator": separators.item, "key_separator": separators.key,
        }  # fmt: skip
    plain = without_words(schema) if isinstance(schema, Mapping) else {}
    return json.dumps({**plain, "x-guidance": options}, ensure_ascii=False)


_trouble_known: dict[str, str] = {}


def _trouble(schema: str) -> str:
    """Why a schema cannot be followed, in a line; "" where it can, or where it cannot be told."""
    if schema in _trouble_known:
        return _trouble_known[schema]
    try:
        grammar_limits.check(Structure("schema", schema))  # inside a grammar nobody would count its levels
    except InvalidGrammar as error:
        return error.message
    try:
        from llguidance import LLMatcher
    except ImportError:
        return ""
    found = str(LLMatcher.validate_grammar(f"start: %json {schema}", None) or "").strip()
    first = found.splitlines()[0][:200] if found else ""
    if len(_trouble_known) >= 1024:
        _trouble_known.clear()
    _trouble_known[schema] = first
    return first


def _slot(slot: str) -> str:
    return " /[0-9]{1,4}/ " if slot == "{index}" else " /[a-zA-Z0-9]{9}/ "


def _joined(items: str) -> str:
    return f" {items} " if items else ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _in_regex(text: str) -> str:
    return re.escape(text).replace("/", r"\/")
