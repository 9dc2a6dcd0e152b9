r"""Regular expressions of a JSON schema, so that their classes of characters hold between the quotes of JSON.

Between quotes ``"`` and ``\\`` are written with a backslash. llguidance 1.9 computes which escapes a class of
characters allows. Of a class that holds all characters below U+0020, but for the line feed at most, it takes the quote
and the backslash to be among them: ``[^"]`` lets a quote come, ``[^\\]`` a backslash, ``\p{C}`` both. A class that
lacks another one of these characters is read as it is. So each class that may be such a one is left without U+0010. So
is the character outside of classes, since alternatives become one class. Nothing else of a pattern changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_CUT = r"&&[^\x10]]"
_NAMED = re.compile(r"\\[pP](\{[^}]*\}|.)")
_ALONE = re.compile(r"\x10|\\(?:x10|u0010|U00000010|[xuU]\{0*10\})")
_PLAIN = re.compile(r"\[(?!\^)(?:[^\\\[\]\x00-\x1f]|\\[wdsnrtfv\W])+\]")
"""A class that has not all of them: it is not negated, and nothing in it names many of them at once."""


_WORDS = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|#[^\n]*|/(?:[^/\\\n]|\\.)+/|%json\b')
"""Of a grammar in Lark: what may hold the letters %json without being it, and itself."""
_SPACE = re.compile(r"\s*")
_JSON = json.JSONDecoder()


def guarded(schema: Any) -> Any:
    """The schema, in which the classes of all its regular expressions hold. What is data in it stays as it is."""
    if isinstance(schema, list):
        return [guarded(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "pattern" and isinstance(value, str):
            found[key] = guarded_pattern(value)
        elif key == "patternProperties" and isinstance(value, Mapping):
            found[key] = {guarded_pattern(name): guarded(each) for name, each in value.items()}
        elif key in ("properties", "$defs", "definitions", "dependentSchemas") and isinstance(value, Mapping):
            found[key] = {name: guarded(each) for name, each in value.items()}  # names, whatever they are
        else:
            found[key] = value if key in ("enum", "const", "x-guidance") else guarded(value)
    return found


def guarded_lark(grammar: str) -> str:
    """A grammar in Lark, in which the schemas behind %json are guarded."""
    parts: list[str] = []
    at = 0
    for found in _WORDS.finditer(grammar):
        if found[0] != "%json" or found.start() < at:
            continue
        begin = _SPACE.match(grammar, found.end()).end()  # type: ignore[union-attr]  # which matches everywhere
        try:
            schema, end = _JSON.raw_decode(grammar, begin)
        except (ValueError, RecursionError):
            continue  # llguidance says what is wrong with it
        parts += grammar[at:begin], json.dumps(guarded(schema))
        at = end
    return "".join((*parts, grammar[at:]))


def guarded_pattern(pattern: str) -> str:
    """A regular expression whose classes hold between the quotes of JSON."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        if (named := _NAMED.match(pattern, at)) is not None:
            parts.append(f"[{named[0]}{_CUT}")
            at = named.end()
        elif pattern[at] == "[":
            end = _end_of_class(pattern, at)
            found = pattern[at:end]
            parts.append(found if _PLAIN.fullmatch(found) or not found.endswith("]") else f"[{found}{_CUT}")
            at = end
        elif (alone := _ALONE.match(pattern, at)) is not None:
            parts.append(f"[[{alone[0]}]{_CUT}")
            at = alone.end()
        else:
            length = 2 if pattern[at] == "\\" else 1
            parts.append(pattern[at : at + length])
            at += length
    return "".join(parts)


def _end_of_class(pattern: str, at: int) -> int:
    """The place behind a class [...], with those that are within it; the end where it is not closed."""
    depth = 0
    while at < len(pattern):
        if pattern[at] == "[":
            depth += 1
            at += 1 + pattern.startswith("^", at + 1)
            at += pattern.startswith("]", at)  # as the first of a class it is itself
            continue
        if pattern[at] == "]":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 2 if pattern[at] == "\\" else 1
    return len(pattern)
