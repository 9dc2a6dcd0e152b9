"""Rules of calls in llguidance's Lark: these tools in this form. They follow from the same table as reading does, so
that what may be written can be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headstart.base.errors import InvalidGrammar
from headstart.rule import grammar_limits
from headstart.rule.json_patterns import guarded
from headstart.serve.conversation.custom import text_item
from headstart.serve.conversation.detect import Marks
from headstart.serve.conversation.formats import Format, Separators
from headstart.serve.conversation.schemas import kinds_of, without_words
from headstart.serve.conversation.turns import ANY_OBJECT, INPUT, Tool
from headstart.types import Structure

_SLOT = re.compile(r"(\{(?:id|index)\})")


class CallRules:
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
        call = self.bodies(tools)
        opened = form.open.removeprefix(behind) if behind and not form.begin else form.open
        parts = (self.marks.items(opened), f"({call})", "" if form.body == "channels" else self.marks.items(form.close))
        one = " ".join(part for part in parts if part)
        if several:
            again = " ".join(part for part in (self.marks.items(form.between), one) if part)
            one = f"{one} ({again})*"
        begin = form.begin.removeprefix(behind) if behind else form.begin
        found = (self.marks.items(begin), one, self.marks.items(form.end))
        return " ".join(part for part in found if part)

    def bodies(self, tools: Sequence[Tool]) -> str:
        """A call of one of these tools, without what is around it; adds the rules that it needs."""
        for number, tool in enumerate(tools):
            self.rules.append(f"tool_{number}: {self._body(number, tool)}")
        return " | ".join(f"tool_{number}" for number, _ in enumerate(tools))

    @staticmethod
    def inner(number: int) -> str:
        """The named arguments of a tool of `bodies`, without what is around them; for forms that name arguments."""
        return f"tool_{number}_n0"

    def _body(self, number: int, tool: Tool) -> str:
        form, items = self.form, self.marks.items
        match form.body:
            case "json":
                return self._members(tool)
            case "text" | "channels":
                after = "".join(_slot(each) if _SLOT.fullmatch(each) else _joined(items(each))
                                for each in _SLOT.split(form.after_name))  # fmt: skip
                return f"{items(tool.name)} {after} {self.arguments(tool)}"
            case "xml":
                return self._xml(number, tool)
            case "object" if tool.grammar is not None:
                begin, end = f"{tool.name}{{{INPUT}:{form.quote}", f"{form.quote}}}"
                return f"{items(begin)} {self._custom(tool, tool.grammar, as_json=False, close=end)} {items(end)}"
            case "python":
                if tool.grammar is not None:
                    words = f"the grammar of the tool {json.dumps(tool.name[:60])} is not followed"
                    self.warnings.append(f"{words}: this model writes arguments in Python")
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
                found.append(self.arguments(tool))
            else:
                length = self.form.id_length
                found.append(f'/"[a-zA-Z0-9]{{{length}}}"/' if length else r'/"[a-zA-Z0-9_]{1,40}"/')
        return " ".join([*found, self.marks.items(text + "}")])

    def arguments(self, tool: Tool) -> str:
        """A call's arguments, where the form writes them as JSON."""
        if tool.grammar is not None:
            key = quoted("{" + json.dumps(INPUT) + self.separators.key)
            return f'{key} {self._custom(tool, tool.grammar, as_json=True)} "}}"'
        return "%json " + self._enforced(tool.parameters, tool, tool.strict, self.separators)

    def _custom(self, tool: Tool, grammar: Structure, *, as_json: bool, close: str = "") -> str:
        """The text that a tool takes, before `close`."""
        name = f"custom_{len(self.rules)}"
        item, rules = text_item(grammar, name, as_json=as_json, close=close)
        text = "\n".join([f"start: {item}", *rules])
        if trouble := _trouble(text):
            words = f"the grammar of the tool {json.dumps(tool.name[:60])} cannot be followed: {trouble}"
            raise InvalidGrammar(words, hint="write it in Lark as llguidance reads it")
        self.rules += [f"{name}: {item}", *rules]
        return name

    def _enforced(self, schema: Any, tool: Tool, strict: bool, separators: Separators | None) -> str:
        """A schema with its options; any object where it cannot be followed at all."""
        found = schema_item(schema, separators, lenient=not strict)
        try:
            grammar_limits.check(Structure("schema", found))  # inside a grammar nobody would count its levels
            trouble = _trouble(f"start: %json {found}")
        except InvalidGrammar as error:
            trouble = error.message
        if not trouble:
            return found
        words = f"the schema of the tool {json.dumps(tool.name[:60])} cannot be followed: {trouble}"
        if strict:
            raise InvalidGrammar(words, hint="change it, or leave strict out")
        self.warnings.append(words)
        return schema_item(ANY_OBJECT if schema is tool.parameters else {}, separators, lenient=True)

    def _xml(self, number: int, tool: Tool) -> str:
        form, items = self.form, self.marks.items
        found = [items(tool.name + form.after_name)]
        parameters = _parameters(tool)
        for place, (key, schema, required) in enumerate(parameters):
            rule = f"tool_{number}_{place}"
            argument = self._argument(items(form.key[0] + key + form.key[1]), schema, tool)
            self.rules.append(f"{rule}: {argument}")
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
        if tool.grammar is None:
            text = _joined(self._text(form.value_close))
        else:
            custom = self._custom(tool, tool.grammar, as_json=False, close=form.value_close)
            text = f"{custom} {items(form.value_close)}"
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
                self.rules.append(f"{name}[suffix={quoted(close)}]: /(.|\\n)*/")
        return self._values[close]

    def _named(self, number: int, tool: Tool, begin: str, sets: str, item: str, end: str) -> str:
        """Arguments with names, in the schema's order, those that are not required or not there between commas."""
        items, parameters = self.marks.items, _parameters(tool)
        prefix = f"tool_{number}"
        count = len(parameters)
        for place, (key, schema, required) in enumerate(parameters):
            argument = f"{items(key + sets)} {self._value(schema)}"
            self.rules.append(f"{prefix}_a{place}: {argument}")
            first, more = f"{prefix}_a{place} {prefix}_m{place + 1}", f"{quoted(item)} {prefix}_a{place}"
            self.rules.append(f"{prefix}_n{place}: {first}" + ("" if required else f" | {prefix}_n{place + 1}"))
            self.rules.append(f"{prefix}_m{place}: {more if required else f'({more})?'} {prefix}_m{place + 1}")
        self.rules += [f'{prefix}_n{count}: ""', f'{prefix}_m{count}: ""']
        if not parameters:
            pair = f"/[A-Za-z_][A-Za-z0-9_]*/ {quoted(sets)} {self._value({})}"
            self.rules[-2] = f"{prefix}_n0: ({pair} ({quoted(item)} {pair})*)?"
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
            return f'("[" ({of} ({quoted(", " if python else ",")} {of})*)? "]")'
        names = {"number": "number", "integer": "integer", "boolean": "boolean", "null": "nothing", "string": "string",
                 "array": "list", "object": "object"}  # fmt: skip
        found = sorted({names[kind] for kind in kinds if kind in names})
        return f"({' | '.join(found)})" if found else "value"

    def _add_values(self) -> None:
        python = self.form.body == "python"
        item = quoted(", " if python else ",")
        self._values["value"] = "value"
        if python:
            string = r"""/'([^'\\\n]|\\[^\n])*'/ | /"([^"\\\n]|\\[^\n])*"/"""
            pair = f"string {quoted(': ')} value"
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


def schema_item(schema: Any, separators: Separators | None, *, lenient: bool) -> str:
    """A schema with llguidance's options. separators: None for white space as the model likes."""
    options: dict[str, Any] = {"coerce_one_of": True, "lenient": lenient}
    if separators is None:
        options["whitespace_pattern"] = r"[\x20\x0A\x0D\x09]{1,8}"
    else:
        options |= {
            "whitespace_flexible": False, "item_separator": separators.item, "key_separator": separators.key,
        }  # fmt: skip
    plain = guarded(without_words(schema)) if isinstance(schema, Mapping) else {}
    return json.dumps({**plain, "x-guidance": options}, ensure_ascii=False)


_trouble_known: dict[str, str] = {}


def _trouble(grammar: str) -> str:
    """Why a grammar cannot be followed, in a line; "" where it can, or where it cannot be told."""
    if grammar in _trouble_known:
        return _trouble_known[grammar]
    try:
        from llguidance import LLMatcher
    except ImportError:
        return ""
    found = str(LLMatcher.validate_grammar(grammar, None) or "").strip()
    first = found.splitlines()[0][:200] if found else ""
    if len(_trouble_known) >= 1024:
        _trouble_known.clear()
    _trouble_known[grammar] = first
    return first


def _slot(slot: str) -> str:
    return " /[0-9]{1,4}/ " if slot == "{index}" else " /[a-zA-Z0-9]{9}/ "


def _joined(items: str) -> str:
    return f" {items} " if items else ""


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def in_regex(text: str) -> str:
    return re.escape(text).replace("/", r"\/")
