"""`Reply`: what a model writes, read into reasoning, content and calls while it comes.

The reader takes one character after the other, in coroutines that read as the grammar of a format does. So its parts,
joined, cannot depend on how the text was cut into pieces: drafts come several tokens at once, and most faults of
servers that stream calls have been faults of pieces. It never fails: text that breaks the form becomes content, what
had been opened is closed, and `warnings` says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.serve.conversation.detect import Marks
from headstart.serve.conversation.formats import Format, Think, literals
from headstart.serve.conversation.parts import (
    CallArguments,
    CallClosed,
    CallOpened,
    Content,
    Part,
    Reasoning,
    joined,
)
from headstart.serve.conversation.schemas import kinds_of
from headstart.serve.conversation.turns import Tool

_LONGEST_NAME = 4096
"""Characters of a name, a key or a header; what is longer is none."""
_MOST_BROKEN = 16
"""Calls that break their form; text behind them is content, whatever it holds. Reading again what follows a broken
beginning would take time that grows with the square of the text."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "/": "/", "\n": ""}
_WORDS = {"True": "true", "true": "true", "False": "false", "false": "false", "None": "null", "null": "null"}
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>(\w+)")
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")

Reading = Generator[None, str, Any]


class _End(Exception):
    """There is no more text."""


class _Broken(Exception):
    """The text is not of the form."""


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """What is known of replies before they come: the arguments of `Reply`."""

    form: Format | None = None
    think: Think | None = None
    thinking: bool = False
    tools: tuple[Tool, ...] = ()

    def begin(self) -> Reply:
        """A reader of one of them."""
        return Reply(self.form, self.think, thinking=self.thinking, tools=self.tools)

    @property
    def reasons(self) -> bool:
        """Whether they may begin with reasoning."""
        return self.think is not None or (self.form is not None and self.form.body == "channels")

    def shown(self, marks: Marks) -> tuple[int, ...]:
        """The special tokens that belong to the form, and must stay in the text. marks: of the tokenizer."""
        texts = list(self.form.marks) if self.form is not None and (self.tools or self.form.body == "channels") else []
        if self.think is not None:
            texts += [self.think.open, self.think.close]
        return tuple(marks.ids[each] for each in sorted(marks.special) if any(each in text for text in texts))


class Reply:
    """Reads one reply.

    Args:
        form: how its calls are written; None where there are none to read.
        think: the marks of its reasoning, if it may reason.
        thinking: whether the prompt has opened the reasoning already.
        tools: that the reply may call. Without any, what looks like a call is content.
    """

    def __init__(
        self, form: Format | None = None, think: Think | None = None, *, thinking: bool = False,
        tools: Sequence[Tool] = (),
    ) -> None:  # fmt: skip
        self.warnings: list[str] = []
        self.calls = 0
        """Calls opened so far."""
        self.whole_calls = 0
        """Those whose arguments came to their end."""
        self._form, self._think = form, think
        self._tools = {tool.name: tool for tool in tools}
        self._reads_calls = form is not None and bool(tools)
        self._thinking = thinking and think is not None
        self._parts: list[Part] = []
        self._pieces: list[str] = []
        self._kind: type[Reasoning] | type[Content] | int | None = None
        self._back: list[str] = []
        self._taken: list[str] = []
        self._position = self._reasoned = 0
        self._since: int | None = None
        self._ended = False
        self._open: int | None = None
        self._whole = False
        self._written = ""
        self._fresh = False
        self._content_said = False
        self._broken = 0
        self._reader = self._all()
        self._done = False
        self._step(None)

    @property
    def reasoning_characters(self) -> int:
        """Characters read as reasoning so far, its marks included."""
        return self._reasoned + (0 if self._since is None else self._position - self._since)

    def feed(self, text: str) -> list[Part]:
        """The parts that are certain with this text. It still has the special tokens that are marks of the form."""
        for character in text:
            self._step(character)
        return self._drained()

    def finish(self) -> list[Part]:
        """The parts that were held back; the reply has ended."""
        self._step("")
        return self._drained()

    def _step(self, character: str | None) -> None:
        if self._done:
            return
        try:
            if character is None:
                next(self._reader)
            else:
                self._reader.send(character)
        except StopIteration:
            self._done = True

    # -- what is said -----------------------------------------------------------------------------------------------

    def _drained(self) -> list[Part]:
        self._flush()
        found, self._parts = self._parts, []
        return joined(found)

    def _flush(self) -> None:
        text, self._pieces = "".join(self._pieces), []
        if text and self._kind is not None:
            self._parts.append(CallArguments(self._kind, text) if isinstance(self._kind, int) else self._kind(text))

    def _say(self, kind: type[Reasoning] | type[Content] | int, text: str) -> None:
        if kind != self._kind:
            self._flush()
            self._kind = kind
        self._pieces.append(text)
        self._taken.clear()

    def _open_call(self, name: str) -> None:
        self._flush()
        if name not in self._tools:
            self.warnings.append(f"the model called {json.dumps(name[:60])}, which is none of the tools")
        self._open, self._whole, self._written = self.calls, False, ""
        self.calls += 1
        self._parts.append(CallOpened(self._open, name))
        self._taken.clear()

    def _say_arguments(self, text: str) -> None:
        if self._open is not None and text:
            self._written += text
            self._say(self._open, text)

    def _close_call(self) -> None:
        if self._open is None:
            return
        self._flush()
        if self._whole:
            self.whole_calls += 1
            try:
                json.loads(self._written)
            except (ValueError, RecursionError):
                self.warnings.append("the arguments of a call are not JSON")
        self._parts.append(CallClosed(self._open, self._whole))
        self._open, self._kind, self._fresh = None, None, True
        self._taken.clear()

    def _say_content(self, space: str, character: str) -> str:
        """Say a character behind white space. White space itself is returned: what follows decides on it."""
        if character.isspace():
            return space + character
        if self._fresh:
            space, self._fresh = space.lstrip("\n"), False
        self._say(Content, space + character)
        self._content_said = True
        return ""

    def _say_reasoning(self, space: str, character: str) -> str:
        if character.isspace():
            return space + character
        self._say(Reasoning, space + character)
        return ""

    # -- reading characters -----------------------------------------------------------------------------------------

    def _next(self) -> Generator[None, str, str]:
        if self._back:
            character = self._back.pop()
        else:
            character = "" if self._ended else (yield)
            if not character:
                self._ended = True
                raise _End
        self._taken.append(character)
        self._position += 1
        return character

    def _unread(self, text: str) -> None:
        if text:
            self._position -= len(text)
            self._back += reversed(text)
            del self._taken[-len(text) :]

    def _peek(self) -> Generator[None, str, str]:
        """The next character that is no white space, left unread; the white space is read."""
        while True:
            character = yield from self._next()
            if not character.isspace():
                self._unread(character)
                return character

    def _which(self, options: Sequence[str]) -> Generator[None, str, str]:
        """The one of these texts that comes next, behind white space, and is read; "" where none does."""
        yield from self._peek()
        begun = ""
        while True:
            if begun in options:
                return begun
            if not any(each.startswith(begun) for each in options):
                self._unread(begun)
                return ""
            begun += yield from self._next()

    def _literal(self, text: str) -> Reading:
        """Read a text of the form. White space within and before it may be any."""
        for word in text.split():
            if not (yield from self._which((word,))):
                raise _Broken

    def _until(self, mark: str, say: Callable[[str], None], *, keep: bool = True) -> Reading:
        """Read up to a mark, and the mark.

        say: takes each character before it.
        keep: whether a beginning of the mark at which the text ends is said as well.
        """
        held = ""
        try:
            while held != mark:
                held += yield from self._next()
                while not mark.startswith(held):
                    say(held[0])
                    held = held[1:]
        except _End:
            for character in held if keep else "":
                say(character)
            raise

    def _word(self, ends: str) -> Generator[None, str, str]:
        """The characters up to white space or one of these."""
        yield from self._peek()
        found = ""
        while True:
            try:
                character = yield from self._next()
            except _End:
                if found and not ends:
                    return found
                raise
            if character.isspace() or character in ends:
                self._unread(character)
                return found
            found += character
            if len(found) > _LONGEST_NAME:
                raise _Broken

    # -- the whole reply --------------------------------------------------------------------------------------------

    def _all(self) -> Reading:
        try:
            if self._form is not None and self._form.body == "channels":
                yield from self._channels()
            if self._thinking:
                yield from self._reasoning()
            yield from self._free()
        except _End:
            pass

    def _reasoning(self) -> Reading:
        assert self._think is not None
        space, mark = "", self._think.close

        def say(character: str) -> None:
            nonlocal space
            space = self._say_reasoning(space, character)
            if self._kind is not Reasoning:
                space = space.lstrip("\n")

        yield from self._counted(self._until(mark, say))
        self._flush()
        self._fresh, self._kind = True, None

    def _counted(self, reading: Reading) -> Reading:
        """The same reading, whose characters count as reasoning."""
        self._since = self._position
        try:
            yield from reading
        finally:
            self._reasoned, self._since = self.reasoning_characters, None

    def _marks(self) -> Mapping[str, bool]:
        """What may begin in free text: whether it is the beginning of a call, by the mark."""
        found: dict[str, bool] = {}
        if self._reads_calls and self._form is not None and self._broken < _MOST_BROKEN:
            found |= dict.fromkeys((each for each in (self._form.trigger, *self._form.also) if each), True)
        if self._think is not None and not self._content_said and not self.calls and not self._fresh:
            found[self._think.open.rstrip()] = False
        return found

    def _free(self) -> Reading:
        space, begun = "", ""
        try:
            while True:
                begun += yield from self._next()
                marks = self._marks()
                while begun:
                    if begun in marks:
                        mark, begun = begun, ""
                        before, space = space, ""
                        if marks[mark]:
                            space = yield from self._calls_behind(mark, before)
                        else:
                            self._reasoned += len(mark)
                            yield from self._reasoning()
                        marks = self._marks()
                        break
                    if any(mark.startswith(begun) for mark in marks):
                        break
                    if self._begins_unmarked(begun[0]):
                        self._unread(begun)
                        begun, before, space = "", space, ""
                        space = yield from self._calls_behind("", before)
                        break
                    first, begun = begun[0], begun[1:]
                    if marks or self._fresh:
                        space = self._say_content(space, first)
                    else:
                        self._say(Content, space + first)
                        space, self._content_said = "", True
        except _End:
            for character in begun:
                space = self._say_content(space, character)
            if space and not self._fresh:
                self._say(Content, space)
            raise

    def _begins_unmarked(self, character: str) -> bool:
        form = self._form
        if form is None or not (form.at_start and self._reads_calls) or self._content_said or self._broken:
            return False
        return character == (form.begin or "{") and not (self.calls and not form.parallel)

    def _calls_behind(self, mark: str, space: str) -> Generator[None, str, str]:
        """Read calls behind their mark. Returns white space to be said with what follows."""
        calls = self.calls
        self._flush()
        self._taken.clear()
        try:
            yield from self._calls(mark)
            return ""
        except _Broken:
            rest = "".join(self._taken)
            self._unread(rest)
            self._note_broken()
        except _End:
            rest = "".join(self._taken)
            if self.calls == calls:
                self._note_broken()
                for character in mark + rest:
                    space = self._say_content(space, character)
                if space:
                    self._say(Content, space)
            self._close_call()
            raise
        if self.calls > calls:
            self._close_call()
            return ""
        for character in mark or (yield from self._next()):
            space = self._say_content(space, character)
        return space

    def _note_broken(self) -> None:
        self._broken += 1
        form = self._form
        if form is not None and not form.at_start and self._broken == 1:
            self.warnings.append("the model began a call and did not keep to its form")

    # -- calls ------------------------------------------------------------------------------------------------------

    def _calls(self, mark: str) -> Reading:
        form = self._form
        assert form is not None
        if mark in form.also:
            yield from self._one("")
            return
        if not form.begin:
            yield from self._one(form.open.removeprefix(mark))
            return
        bracket = form.begin.removeprefix(mark).strip()
        if bracket and not (yield from self._which((bracket,))) and bracket != "[":
            raise _Broken
        opened = form.open
        while True:
            yield from self._one(opened)
            follows = form.between.strip()
            ends = [each for each in (_first(form.end), _first(form.end).lstrip("]")) if each]
            begins = follows or _first(form.open)
            found = yield from self._which([*ends, *([begins] if begins else [])])
            if not found:
                raise _Broken
            if found in ends:
                rest = form.end.split()[1:]
                for word in rest:
                    yield from self._which((word,))
                return
            opened = form.open if follows else " ".join(form.open.split()[1:])

    def _one(self, opened: str) -> Reading:
        form = self._form
        assert form is not None
        yield from self._literal(opened)
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
        self._close_call()
        for word in words[1:] if form.body == "xml" else words:
            if not (yield from self._which((word,))):
                raise _Broken

    def _json_call(self) -> Reading:
        """An object with a name and arguments, in whatever order. The arguments go through as they are written."""
        form = self._form
        assert form is not None
        meanings = {key: meaning for meaning, key in form.keys} | {"arguments": "arguments", "parameters": "arguments"}
        yield from self._literal("{")
        held, first = "", True
        while True:
            character = yield from self._peek()
            if character == "}":
                yield from self._next()
                break
            if not first:
                yield from self._literal(",")
            first = False
            key = yield from self._string()
            yield from self._literal(":")
            meaning = meanings.get(key, "")
            if meaning == "name":
                name = yield from self._string()
                if form.at_start and name not in self._tools:
                    raise _Broken
                if self._open is None:
                    self._open_call(name)
            elif meaning == "arguments" and self._open is not None:
                yield from self._arguments()
            elif meaning == "arguments":
                held = yield from self._json_value(say=False)
            elif form.at_start and not meaning and key != "type":
                raise _Broken  # an answer in JSON that is no call
            else:
                yield from self._json_value(say=False)
        if self._open is None:
            raise _Broken
        if not self._whole:
            self._say_arguments(_as_object(held))
            self._whole = True

    def _text_call(self) -> Reading:
        form = self._form
        assert form is not None
        first, *others = literals(form.after_name)
        name = yield from self._name(first.strip()[:1] + "{")
        yield from self._literal(first)
        for each in others:
            yield from self._until(each.strip(), lambda _: None)
        self._open_call(name)
        yield from self._arguments()

    def _xml_call(self) -> Reading:
        form = self._form
        assert form is not None
        begin, close = _first(form.key[0]), _first(form.close)
        name = yield from self._name(form.after_name.strip()[:1] + begin[:1] + close[:1])
        self._open_call(name)
        yield from self._literal(form.after_name)
        tool, said = self._tools.get(name), "{"
        if tool is None:
            properties: Mapping[str, Any] = {}
        else:
            found = tool.parameters.get("properties")
            properties = found if isinstance(found, Mapping) else {}
        while True:
            found = yield from self._which((begin, close))
            if not found:
                raise _Broken
            if found == close:
                break
            rest = form.key[0].removeprefix(begin)
            if rest.strip():
                yield from self._literal(rest)
            key = yield from self._key()
            self._say_arguments(said + json.dumps(key, ensure_ascii=False) + ": ")
            said = ", "
            yield from self._xml_value(kinds_of(properties.get(key)))
        self._say_arguments("{}" if said == "{" else "}")
        self._whole = True

    def _key(self) -> Generator[None, str, str]:
        form = self._form
        assert form is not None
        key: list[str] = []
        for number, word in enumerate(form.key[1].split()):
            if number:
                yield from self._literal(word)
            else:
                yield from self._until(word, key.append)
        return "".join(key).strip()

    def _xml_value(self, kinds: frozenset[str]) -> Reading:
        """A value: a string is said while it comes, another once it is whole."""
        form = self._form
        assert form is not None
        if form.typed:
            kind: list[str] = []
            yield from self._until('">', kind.append)
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
            self._say_arguments(_escaped(text))

        if as_text:
            self._say_arguments('"')
        yield from self._until(form.value_close.strip(), say, keep=False)
        text = "".join(whole)
        self._say_arguments('"' if as_text else _as_json(text.removesuffix("\n") if lines else text, kinds))

    def _python_call(self) -> Reading:
        form = self._form
        assert form is not None
        name = yield from self._name("()[]{},='\"")
        if not name or (form.at_start and name not in self._tools):
            raise _Broken
        yield from self._literal("(")
        self._open_call(name)
        said = "{"
        while True:
            if (yield from self._peek()) == ")":
                yield from self._next()
                break
            if said == ", ":
                yield from self._literal(",")
                if (yield from self._peek()) == ")":
                    continue
            key = yield from self._word("=,()[]{}'\"")
            yield from self._literal("=")
            self._say_arguments(said + json.dumps(key, ensure_ascii=False) + ": ")
            said = ", "
            yield from self._relaxed(("'", '"'))
        self._say_arguments("{}" if said == "{" else "}")
        self._whole = True

    def _object_call(self) -> Reading:
        form = self._form
        assert form is not None
        self._open_call((yield from self._name("{<")))
        yield from self._peek()
        if (yield from self._peek()) != "{":
            raise _Broken
        yield from self._relaxed((form.quote, '"'))
        self._whole = True

    def _name(self, ends: str) -> Generator[None, str, str]:
        found = yield from self._word(ends)
        if not found:
            raise _Broken
        return found

    # -- values -----------------------------------------------------------------------------------------------------

    def _string(self) -> Generator[None, str, str]:
        """A string of JSON."""
        if (yield from self._peek()) != '"':
            raise _Broken
        raw = yield from self._json_value(say=False, most=_LONGEST_NAME)
        return _loaded_string(raw)

    def _arguments(self) -> Reading:
        """The arguments of the open call: an object, as it is written; some models write a string that holds one."""
        if (yield from self._peek()) == "{":
            yield from self._json_value(say=True)
        else:
            self._say_arguments(_as_object((yield from self._json_value(say=False))))
        self._whole = True

    def _json_value(self, *, say: bool, most: int | None = None) -> Generator[None, str, str]:
        """Read a value of JSON. say: as arguments, while it comes; else it is returned as it is written."""
        depth, quoted, escaped = 0, False, False
        found: list[str] = []
        yield from self._peek()
        while True:
            character = yield from self._next()
            if not quoted and not depth and found and (character in ",}]" or character.isspace()):
                self._unread(character)  # behind a number or a word
                break
            if say:
                self._say_arguments(character)
            else:
                found.append(character)
                if most is not None and len(found) > most:
                    raise _Broken
            if escaped:
                escaped = False
            elif quoted:
                escaped, quoted = character == "\\", character != '"'
                if not quoted and not depth:
                    break
            elif character == '"':
                quoted = True
            elif character in "{[":
                depth += 1
            elif character in "}]":
                depth -= 1
                if depth <= 0:
                    break
        return "".join(found)

    def _relaxed(self, quotes: Sequence[str]) -> Reading:
        """Say a value as JSON that is written as Python or Gemma write it."""
        character = yield from self._peek()
        quote = yield from self._which(quotes)
        if quote:
            yield from self._quoted(quote)
        elif character == "{":
            yield from self._members(quotes, "{", "}")
        elif character in "[(":
            yield from self._members(quotes, character, "]" if character == "[" else ")")
        else:
            word = yield from self._word(",}])")
            if not word:
                raise _Broken
            self._say_arguments(_as_word(word))

    def _members(self, quotes: Sequence[str], begin: str, end: str) -> Reading:
        yield from self._literal(begin)
        keyed, said = begin == "{", ""
        self._say_arguments("{" if keyed else "[")
        while True:
            if (yield from self._peek()) == end:
                yield from self._next()
                break
            if said:
                yield from self._literal(",")
                if (yield from self._peek()) == end:
                    continue
            self._say_arguments(said)
            said = ", "
            if keyed:
                quote = yield from self._which(quotes)
                if quote:
                    yield from self._quoted(quote)
                else:
                    key = yield from self._word(":,{}[]")
                    self._say_arguments(json.dumps(key, ensure_ascii=False))
                yield from self._literal(":")
                self._say_arguments(": ")
            yield from self._relaxed(quotes)
        self._say_arguments("}" if keyed else "]")

    def _quoted(self, quote: str) -> Reading:
        """Say a string behind its opening quote. Quotes of one character have Python's escapes, others none."""
        self._say_arguments('"')
        if len(quote) > 1:
            yield from self._until(quote, lambda character: self._say_arguments(_escaped(character)), keep=False)
        while len(quote) == 1:
            character = yield from self._next()
            if character == quote:
                break
            self._say_arguments((yield from self._escape()) if character == "\\" else _escaped(character))
        self._say_arguments('"')

    def _escape(self) -> Generator[None, str, str]:
        """What stands behind a backslash, as JSON."""
        character = yield from self._next()
        digits = {"x": 2, "u": 4, "U": 8}.get(character)
        if digits is None:
            return _escaped(_ESCAPES.get(character, "\\" + character))
        code = ""
        for _ in range(digits):
            code += yield from self._next()
        try:
            number = int(code, 16)
            if 0xD800 <= number <= 0xDFFF:
                return f"\\u{number:04x}"  # half of a character, whose other half may follow
            return _escaped(chr(number))
        except (ValueError, OverflowError):
            return _escaped("\\" + character + code)

    # -- gpt-oss ----------------------------------------------------------------------------------------------------

    def _channels(self) -> Reading:
        """Messages, each with a header: to whom it goes, and in which channel."""
        while True:
            header: list[str] = []
            try:
                yield from self._until("<|message|>", header.append)
            except _End:
                text = "".join(header)
                if text and not text.lstrip().startswith(("<|", "assistant", "to=")):
                    self._say(Content, text)  # a reply without any header
                raise
            text = "".join(header)
            channel, recipient = _CHANNEL.search(text), _RECIPIENT.search(text)
            self._taken.clear()
            if recipient is not None and self._tools:
                yield from self._channel_call(recipient[1])
            elif channel is not None and channel[1] == "analysis":
                yield from self._counted(self._body(self._say_thought))
            else:
                yield from self._body(lambda character: self._say(Content, character))

    def _say_thought(self, character: str) -> None:
        self._say(Reasoning, character)

    def _channel_call(self, name: str) -> Reading:
        self._open_call(name)
        try:
            yield from self._body(self._say_arguments, keep=False)
        finally:
            if not self._written.strip():
                self._say_arguments("{}")
            self._whole = _is_object(self._written)
            self._close_call()

    def _body(self, say: Callable[[str], None], *, keep: bool = True) -> Reading:
        """Read a message up to the mark of its end; see `_until`."""
        held = ""
        try:
            while held not in _ENDS:
                held += yield from self._next()
                while not any(mark.startswith(held) for mark in _ENDS):
                    say(held[0])
                    held = held[1:]
        except _End:
            for character in held if keep else "":
                say(character)
            raise
        if held == "<|start|>":
            self._unread(held)


def _first(text: str) -> str:
    """The first word; "" where there is none."""
    return next(iter(text.split()), "")


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _loaded_string(raw: str) -> str:
    try:
        found = json.loads(raw, strict=False)
    except ValueError:
        raise _Broken from None
    if not isinstance(found, str):
        raise _Broken
    return found


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _as_object(raw: str) -> str:
    """Arguments that are no object in JSON, as far as they can be one: a string may hold an object."""
    if not raw or raw == "null":
        return "{}"
    if raw.startswith('"'):
        try:
            return str(json.loads(raw, strict=False)).strip() or "{}"
        except ValueError:
            return raw
    return raw


def _as_word(word: str) -> str:
    if word in _WORDS:
        return _WORDS[word]
    try:
        json.loads(word)
    except ValueError:
        return json.dumps(word, ensure_ascii=False)
    return word


def _as_json(text: str, kinds: frozenset[str]) -> str:
    """A value that stands in a reply as text, as JSON. kinds: that its schema allows; empty where it does not say."""
    found = text.strip()
    if "boolean" in kinds and found in ("True", "False"):
        return found.lower()
    if found == "None" and "null" in kinds:
        return "null"
    try:
        value = json.loads(found)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    if isinstance(value, str) or (kinds and _kind(value) not in kinds and "string" in kinds):
        return json.dumps(text, ensure_ascii=False)
    return found


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case int():
            return "integer"
        case float():
            return "number"
        case list():
            return "array"
        case dict():
            return "object"
    return "string"
