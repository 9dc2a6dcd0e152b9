"""Values within calls: JSON as it is written, and what Python and Gemma write, which is said as JSON while it comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from headstart.serve.conversation.characters import LONGEST_NAME, Broken, Characters, Reading, Word

Say = Callable[[str], None]
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "/": "/", "\n": ""}
_WORDS = {"True": "true", "true": "true", "False": "false", "false": "false", "None": "null", "null": "null"}


def string(text: Characters) -> Word:
    """A string of JSON; it may be a name.

    Raises:
        Broken: it is none, or too long.
    """
    if (yield from text.peek()) != '"':
        raise Broken
    raw = yield from json_value(text, most=LONGEST_NAME)
    try:
        found = json.loads(raw, strict=False)
    except ValueError:
        raise Broken from None
    if not isinstance(found, str):
        raise Broken
    return found


def json_value(text: Characters, say: Say | None = None, *, most: int | None = None) -> Word:
    """Read a value of JSON as it is written. say: takes it while it comes; else it is returned.

    Raises:
        Broken: it has more than `most` characters.
    """
    depth, quoted, backslash = 0, False, False
    found: list[str] = []
    yield from text.peek()
    while True:
        character = yield from text.next()
        if not quoted and not depth and found and (character in ",}]" or character.isspace()):
            text.unread(character)  # behind a number or a word
            break
        if say is not None:
            say(character)
        else:
            found.append(character)
            if most is not None and len(found) > most:
                raise Broken
        if backslash:
            backslash = False
        elif quoted:
            backslash, quoted = character == "\\", character != '"'
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


def relaxed(text: Characters, say: Say, quotes: Sequence[str]) -> Reading:
    """Say a value as JSON that is written as Python or Gemma write it."""
    character = yield from text.peek()
    quote = yield from text.which(quotes)
    if quote:
        yield from _quoted(text, say, quote)
    elif character == "{":
        yield from _members(text, say, quotes, "{", "}")
    elif character in "[(":
        yield from _members(text, say, quotes, character, "]" if character == "[" else ")")
    else:
        word = yield from text.word(",}])")
        if not word:
            raise Broken
        say(_as_word(word))


def _members(text: Characters, say: Say, quotes: Sequence[str], begin: str, end: str) -> Reading:
    yield from text.literal(begin)
    keyed, said = begin == "{", ""
    say("{" if keyed else "[")
    while True:
        if (yield from text.peek()) == end:
            yield from text.next()
            break
        if said:
            yield from text.literal(",")
            if (yield from text.peek()) == end:
                continue
        say(said)
        said = ", "
        if keyed:
            quote = yield from text.which(quotes)
            if quote:
                yield from _quoted(text, say, quote)
            else:
                key = yield from text.word(":,{}[]")
                say(json.dumps(key, ensure_ascii=False))
            yield from text.literal(":")
            say(": ")
        yield from relaxed(text, say, quotes)
    say("}" if keyed else "]")


def _quoted(text: Characters, say: Say, quote: str) -> Reading:
    """Say a string behind its opening quote. Quotes of one character have Python's escapes, others none."""
    say('"')
    if len(quote) > 1:
        yield from text.until(quote, lambda character: say(escaped(character)), keep=False)
    while len(quote) == 1:
        character = yield from text.next()
        if character == quote:
            break
        say((yield from _escape(text)) if character == "\\" else escaped(character))
    say('"')


def _escape(text: Characters) -> Word:
    """What stands behind a backslash, as JSON."""
    character = yield from text.next()
    digits = {"x": 2, "u": 4, "U": 8}.get(character)
    if digits is None:
        return escaped(_ESCAPES.get(character, "\\" + character))
    code = ""
    for _ in range(digits):
        code += yield from text.next()
    try:
        number = int(code, 16)
        if 0xD800 <= number <= 0xDFFF:
            return f"\\u{number:04x}"  # half of a character, whose other half may follow
        return escaped(chr(number))
    except (ValueError, OverflowError):
        return escaped("\\" + character + code)


def escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def as_object(raw: str) -> str:
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


def as_json(text: str, kinds: frozenset[str]) -> str:
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
