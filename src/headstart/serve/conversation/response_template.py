"""`tokenizer.response_template`: what a checkpoint itself says of how its replies are written, as marks and a form of
our table.

It is the declaration that transformers parses replies by (5.13 and later, `utils/chat_parsing`). Its patterns are
regular expressions; those that the table has no words for leave the form to detection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.base.errors import InvalidFile
from headstart.serve.conversation.formats import BY_NAME, Format, Think

_KEYS = frozenset({"version", "defaults", "fields", "start_anchor", "start_anchor_pattern"})
_FIELD_KEYS = frozenset(
    {"open", "open_pattern", "close", "close_pattern", "content", "content_args", "repeats", "join", "optional",
     "transform", "transform_each"}
)  # fmt: skip
_CONTENTS = frozenset({"text", "int", "float", "bool", "json", "xml-inline", "kv-lines"})
_REASONING = ("reasoning_content", "reasoning", "thinking")
_PLACE = re.compile(r"\{(?:content\.)?(\w+)\}")
_SPACE = re.compile(r"(?:\\s|\\n| )[*?]|\\s\+?")
_ESCAPE = re.compile(r"\\([n_\W])")
_GROUP = re.compile(r"\(\?P<(\w+)>")


@dataclass(frozen=True, slots=True)
class Declared:
    """What a template says. format, think: None where it does not say, or says it in a way that the table has no words
    for."""

    format: Format | None = None
    think: Think | None = None


def declared(template: Any) -> Declared:
    """Raises:
    InvalidFile: it is of a later version, or has keys that are not known.
    """
    if not isinstance(template, Mapping) or not isinstance(template.get("fields"), Mapping):
        raise _invalid("has no fields")
    if template.get("version", 1) != 1:
        raise _invalid(f"is of the version {str(template['version'])[:20]}, and 1 is known")
    _only(template, _KEYS, "")
    for name, field in template["fields"].items():
        if not isinstance(field, Mapping):
            raise _invalid(f"has the field {str(name)[:40]!r}, which is no object")
        _only(field, _FIELD_KEYS, f"{str(name)[:40]}.")
        if field.get("content", "text") not in _CONTENTS:
            raise _invalid(f"has content of the kind {str(field['content'])[:40]!r} in {str(name)[:40]!r}")
    calls = template["fields"].get("tool_calls")
    thought = next((template["fields"][name] for name in _REASONING if name in template["fields"]), None)
    return Declared(None if calls is None else _format(calls), None if thought is None else _think(thought))


def _only(found: Mapping[str, Any], known: frozenset[str], place: str) -> None:
    unknown = sorted(str(key)[:40] for key in found if key not in known)
    if unknown:
        raise _invalid(f"has the unknown key {place + unknown[0]!r}")


def _invalid(words: str) -> InvalidFile:
    return InvalidFile(
        f"the tokenizer's response_template {words}", hint="--chat-format NAME says how calls are written"
    )


def _think(field: Mapping[str, Any]) -> Think | None:
    opened, closed = _anchor(field, "open"), _anchor(field, "close")
    if opened is None or closed is None or len(opened) != 1 or len(closed) != 1 or "<|channel|>" in opened[0]:
        return None
    return Think(opened[0], closed[0])


def _format(field: Mapping[str, Any]) -> Format | None:
    opened, closed = _anchor(field, "open"), _anchor(field, "close")
    if not {"close", "close_pattern"} & field.keys():
        closed = [""]
    if opened is None:
        return None
    if any("to=functions." in each or "<|channel|>" in each for each in opened):
        return BY_NAME["harmony"]
    if closed is None or len(closed) != 1:
        return None
    keys = _keys(field.get("transform"))
    args = field.get("content_args") or {}
    around: dict[str, Any] = {"open": opened[0], "close": closed[0]}
    match field.get("content", "text"):
        case "json" if len(opened) == 1 and keys:
            if not field.get("transform_each"):
                return Format("declared", "json", keys=keys, **around)
            return Format("declared", "json", begin=f"{opened[0]}[", end=f"]{closed[0]}", between=", ", keys=keys)
        case "json" if len(opened) == 3:
            delimiters = args.get("string_delims")
            if not delimiters:
                return Format("declared", "text", after_name=opened[2], **around)
            (quote, *others), *more = delimiters
            return None if others != [quote] or more else Format("declared", "object", quote=quote, **around)
        case "xml-inline" if len(opened) == 3:
            pair = _pieces(str(args.get("tag_pattern")))
            if pair is None or pair[1::2] != ["key", "value"]:
                return None
            return Format(
                "declared", "xml", after_name=opened[2], key=(pair[0], pair[2]), value_close=pair[4], **around
            )
    return None


def _keys(transform: Any) -> tuple[tuple[str, str], ...]:
    """What the members of a call in JSON are called; () where a transform takes the name from elsewhere."""
    function = transform.get("function", transform) if isinstance(transform, Mapping) else transform
    if function in (None, "{content}"):
        return (("name", "name"), ("arguments", "arguments"))
    if not isinstance(function, Mapping):
        return ()
    found = {meaning: _PLACE.fullmatch(str(function.get(meaning))) for meaning in ("name", "arguments")}
    return tuple((meaning, each[1]) for meaning, each in found.items() if each is not None and each[1] != "content")


def _anchor(field: Mapping[str, Any], name: str) -> list[str] | None:
    """The beginning or the end of a field, as `_pieces`; None where there is none, or it cannot be said."""
    if (pattern := field.get(f"{name}_pattern")) is not None:
        return _pieces(str(pattern))
    found = field.get(name)
    if isinstance(found, list) and found:
        found = found[0]
    return [found] if isinstance(found, str) and found else None


def _pieces(pattern: str) -> list[str] | None:
    """A regular expression as texts, between which the names of its groups stand. White space that may be left out is.

    None where it has more than characters, white space and named groups.
    """
    found, at = [""], 0
    while at < len(pattern):
        if space := _SPACE.match(pattern, at):
            at = space.end()
        elif group := _GROUP.match(pattern, at):
            found += [group[1], ""]
            at = _behind_group(pattern, at)
        elif escape := _ESCAPE.match(pattern, at):
            found[-1] += "\n" if escape[1] == "n" else escape[1]
            at = escape.end()
        elif pattern[at] in "\\.^$*+?()[]{}|":
            return None
        else:
            found[-1] += pattern[at]
            at += 1
    return found


def _behind_group(pattern: str, at: int) -> int:
    """The place behind the group that begins here."""
    depth, within = 0, False
    while at < len(pattern):
        character = pattern[at]
        at += 2 if character == "\\" else 1
        if within:
            within = character != "]"
        elif character == "[":
            within = True
        elif character in "()":
            depth += 1 if character == "(" else -1
            if not depth:
                break
    return at
