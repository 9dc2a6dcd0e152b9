"""Readers of calls in the forms of the table; gpt-oss's are in `channels`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headstart.serve.conversation.characters import Broken, Characters, Reading, Word
from headstart.serve.conversation.formats import Format, literals
from headstart.serve.conversation.schemas import kinds_of
from headstart.serve.conversation.spoken import Spoken
from headstart.serve.conversation.turns import Tool
from headstart.serve.conversation.values import as_json, as_object, escaped, json_value, relaxed, string


class CallReader:
    """Reads calls of one form from a text, and says them."""

    def __init__(self, form: Format, tools: Mapping[str, Tool], text: Characters, said: Spoken) -> None:
        self._form, self._tools, self._text, self._said = form, tools, text, said

    def read(self, mark: str) -> Reading:
        """Read the calls behind a mark that has been read; "" for calls without one.

        Raises:
            Broken: the text does not keep to the form.
        """
        form = self._form
        if mark in form.also:
            yield from self._one("")
            return
        if not form.begin:
            yield from self._one(form.open.removeprefix(mark))
            return
        bracket = form.begin.removeprefix(mark).strip()
        if bracket and not (yield from self._text.which((bracket,))) and bracket != "[":
            raise Broken
        opened = form.open
        while True:
            yield from self._one(opened)
            follows = form.between.strip()
            ends = [each for each in (_first(form.end), _first(form.end).lstrip("]")) if each]
            begins = follows or _first(form.open)
            found = yield from self._text.which([*ends, *([begins] if begins else [])])
            if not found:
                raise Broken
            if found in ends:
                rest = form.end.split()[1:]
                for word in rest:
                    yield from self._text.which((word,))
                return
            opened = form.open if follows else " ".join(form.open.split()[1:])

    def _one(self, opened: str) -> Reading:
        form = self._form
        yield from self._text.literal(opened)
        match form.body:
            case "json":
                yield from self._json_call()
            case "text":
                yield from self._text_call()
            case "xml":
                yield from self._xml_call()
            case "python":
                yield from self._python_call()
            case _:
                yield from self._object_call()
        words = form.close.split()
        self._said.close_call()
        for word in words[1:] if form.body == "xml" else words:
            if not (yield from self._text.which((word,))):
                raise Broken

    def _json_call(self) -> Reading:
        """An object with a name and arguments, in whatever order. The arguments go through as they are written."""
        form = self._form
        meanings = {key: meaning for meaning, key in form.keys} | {"arguments": "arguments", "parameters": "arguments"}
        yield from self._text.literal("{")
        held, first = "", True
        while True:
            character = yield from self._text.peek()
            if character == "}":
                yield from self._text.next()
                break
            if not first:
                yield from self._text.literal(",")
            first = False
            key = yield from string(self._text)
            yield from self._text.literal(":")
            meaning = meanings.get(key, "")
            if meaning == "name":
                name = yield from string(self._text)
                if form.at_start and name not in self._tools:
                    raise Broken
                if self._said.opened is None:
                    self._said.open_call(name)
            elif meaning == "arguments" and self._said.opened is not None:
                yield from self._arguments()
            elif meaning == "arguments":
                held = yield from json_value(self._text)
            elif form.at_start and not meaning and key != "type":
                raise Broken  # an answer in JSON that is no call
            else:
                yield from json_value(self._text)
        if self._said.opened is None:
            raise Broken
        if not self._said.whole:
            self._said.arguments(as_object(held))
            self._said.whole = True

    def _text_call(self) -> Reading:
        form = self._form
        first, *others = literals(form.after_name)
        name = yield from self._name(first.strip()[:1] + "{")
        yield from self._text.literal(first)
        for each in others:
            yield from self._text.until(each.strip(), lambda _: None)
        self._said.open_call(name)
        yield from self._arguments()

    def _xml_call(self) -> Reading:
        form = self._form
        begin, close = _first(form.key[0]), _first(form.close)
        name = yield from self._name(form.after_name.strip()[:1] + begin[:1] + close[:1])
        self._said.open_call(name)
        yield from self._text.literal(form.after_name)
        tool, said = self._tools.get(name), "{"
        if tool is None:
            properties: Mapping[str, Any] = {}
        else:
            found = tool.parameters.get("properties")
            properties = found if isinstance(found, Mapping) else {}
        while True:
            found = yield from self._text.which((begin, close))
            if not found:
                raise Broken
            if found == close:
                break
            rest = form.key[0].removeprefix(begin)
            if rest.strip():
                yield from self._text.literal(rest)
            key = yield from self._key()
            self._said.arguments(said + json.dumps(key, ensure_ascii=False) + ": ")
            said = ", "
            yield from self._xml_value(kinds_of(properties.get(key)))
        self._said.arguments("{}" if said == "{" else "}")
        self._said.whole = True

    def _key(self) -> Word:
        form = self._form
        key: list[str] = []
        for number, word in enumerate(form.key[1].split()):
            if number:
                yield from self._text.literal(word)
            else:
                yield from self._text.until(word, key.append)
        return "".join(key).strip()

    def _xml_value(self, kinds: frozenset[str]) -> Reading:
        """A value: a string is said while it comes, another once it is whole."""
        form = self._form
        if form.typed:
            kind: list[str] = []
            yield from self._text.until('">', kind.append)
            kinds = frozenset({"string"}) if "".join(kind) == "true" else kinds - {"string"}
        lines = form.key[1].endswith("\n") and form.value_close.startswith("\n")
        whole: list[str] = []
        as_text = kinds == {"string"}
        newline, first = "", True

        def say(character: str) -> None:
            nonlocal newline, first
            if lines and first and character == "\n":
                first = False
                return
            first = False
            if not as_text:
                whole.append(character)
                return
            text, newline = newline + ("" if lines and character == "\n" else character), ""
            if lines and character == "\n":
                newline = "\n"
            self._said.arguments(escaped(text))

        if as_text:
            self._said.arguments('"')
        yield from self._text.until(form.value_close.strip(), say, keep=False)
        text = "".join(whole)
        self._said.arguments('"' if as_text else as_json(text.removesuffix("\n") if lines else text, kinds))

    def _python_call(self) -> Reading:
        form = self._form
        name = yield from self._name("()[]{},='\"")
        if not name or (form.at_start and name not in self._tools):
            raise Broken
        yield from self._text.literal("(")
        self._said.open_call(name)
        said = "{"
        while True:
            if (yield from self._text.peek()) == ")":
                yield from self._text.next()
                break
            if said == ", ":
                yield from self._text.literal(",")
                if (yield from self._text.peek()) == ")":
                    continue
            key = yield from self._text.word("=,()[]{}'\"")
            yield from self._text.literal("=")
            self._said.arguments(said + json.dumps(key, ensure_ascii=False) + ": ")
            said = ", "
            yield from relaxed(self._text, self._said.arguments, ("'", '"'))
        self._said.arguments("{}" if said == "{" else "}")
        self._said.whole = True

    def _object_call(self) -> Reading:
        form = self._form
        self._said.open_call((yield from self._name("{<")))
        yield from self._text.peek()
        if (yield from self._text.peek()) != "{":
            raise Broken
        yield from relaxed(self._text, self._said.arguments, (form.quote, '"'))
        self._said.whole = True

    def _name(self, ends: str) -> Word:
        found = yield from self._text.word(ends)
        if not found:
            raise Broken
        return found

    def _arguments(self) -> Reading:
        """The arguments of the open call: an object, as it is written; some models write a string that holds one."""
        if (yield from self._text.peek()) == "{":
            yield from json_value(self._text, self._said.arguments)
        else:
            self._said.arguments(as_object((yield from json_value(self._text))))
        self._said.whole = True


def _first(text: str) -> str:
    """The first word; "" where there is none."""
    return next(iter(text.split()), "")
