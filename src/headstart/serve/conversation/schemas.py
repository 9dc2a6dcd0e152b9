"""What a JSON schema says of values, as far as reading a reply needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", list: "array"}


def kinds_of(schema: Any, depth: int = 0) -> frozenset[str]:
    """The kinds of values that a schema allows, in JSON schema's words; empty where it does not say."""
    if not isinstance(schema, Mapping) or depth > 8:
        return frozenset()
    declared = schema.get("type")
    found = {declared} if isinstance(declared, str) else set()
    if isinstance(declared, list):
        found |= {each for each in declared if isinstance(each, str)}
    for union in ("anyOf", "oneOf"):
        choices = schema.get(union)
        for choice in choices if isinstance(choices, list) else []:
            found |= kinds_of(choice, depth + 1)
    values = schema.get("enum")
    if not found and isinstance(values, list):
        found = {_KINDS.get(type(value), "object") for value in values}
    if not found and "const" in schema:
        found = {_KINDS.get(type(schema["const"]), "object")}
    if "number" in found:
        found.add("integer")
    if schema.get("nullable") is True:
        found.add("null")
    return frozenset(found)


_WORDS = ("description", "title", "examples", "example", "default", "$comment", "deprecated", "readOnly", "writeOnly")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_DATA = ("enum", "const")


def without_words(schema: Any, depth: int = 0) -> Any:
    """A schema without what is said to people: a grammar does not need it, and tools say much."""
    if depth > 100:
        return schema
    if isinstance(schema, list):
        return [without_words(each, depth + 1) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            found[key] = {name: without_words(each, depth + 1) for name, each in value.items()}
        elif key in _DATA:
            found[key] = value
        elif key not in _WORDS:
            found[key] = without_words(value, depth + 1)
    return found
