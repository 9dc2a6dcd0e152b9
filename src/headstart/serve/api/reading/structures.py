"""The form of an answer's text, of all the fields that may ask for one, as a `Structure`."""

from __future__ import annotations

import json
from typing import Any, Literal

from headstart.base.errors import InvalidGrammar
from headstart.rule import grammar_limits
from headstart.serve.api.errors import Refused, invalid_value
from headstart.serve.api.schemas.common import Common
from headstart.serve.api.schemas.structures import ResponseFormatField, StructuredField
from headstart.types import Structure


def structure_of(request: Common) -> Structure | None:
    """What the text must be; None where the request does not say.

    Raises:
        Refused: more than one field says it, or a field cannot be.
    """
    found: dict[str, Structure] = {}
    for name in ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
                 "guided_grammar", "json_schema", "grammar"):  # fmt: skip
        value = getattr(request, name)
        if value is None:
            continue
        try:
            structure = _structure(name, value)
            if structure is not None:  # before it becomes a part of the grammar of a reply
                grammar_limits.check(structure)
        except InvalidGrammar as error:
            raise Refused(
                error.message, hint=error.hint, code="invalid_json_schema" if "json" in name else "invalid_value",
                param=name,
            ) from error  # fmt: skip
        if structure is not None:
            found[name] = structure
    if len(found) > 1:
        first, second = list(found)[:2]
        raise invalid_value(second, f"{first} and {second} both say what the text must be", "give one of them")
    return next(iter(found.values()), None)


def _structure(name: str, value: Any) -> Structure | None:
    match name:
        case "response_format":
            return _response_format(value)
        case "structured_outputs":
            return _structured(value)
        case "guided_json" | "json_schema":
            return _schema(value)
        case "guided_regex":
            return Structure("regex", value)
        case "guided_choice":
            return Structure.choice(value)
        case "guided_grammar":
            return Structure(_syntax(value), value)
    return Structure("gbnf", value)


def _response_format(field: ResponseFormatField) -> Structure | None:
    if field.type == "text":
        return None
    if field.json_schema is not None and field.json_schema.schema_ is not None:
        return Structure.schema(field.json_schema.schema_, lenient=not field.json_schema.strict)
    if field.schema_ is not None:
        return Structure.schema(field.schema_, lenient=True)
    if field.type == "json_schema":
        hint = 'give {"type": "json_schema", "json_schema": {"name": "...", "schema": {...}}}'
        raise invalid_value("response_format", "response_format has no schema", hint)
    return Structure("json")


def _structured(field: StructuredField) -> Structure | None:
    more: dict[str, Any] = {"spelling": field.spelling or "canonical"}
    spaced: dict[str, Any] = {"whitespace": "compact"} if field.disable_any_whitespace else {}
    found: list[Structure] = []
    if field.json_ is not None:
        found.append(_schema(field.json_, **more, **spaced))
    if field.regex is not None:
        found.append(Structure("regex", field.regex, **more))
    if field.choice is not None:
        found.append(Structure.choice(field.choice, **more))
    if field.grammar is not None:
        found.append(Structure(_syntax(field.grammar), field.grammar, **more))
    if field.json_object:
        found.append(Structure("json", **more, **spaced))
    if len(found) > 1:
        words = "structured_outputs has more than one of json, regex, choice, grammar and json_object"
        raise invalid_value("structured_outputs", words, "give one of them")
    return found[0] if found else None


def _schema(given: Any, **more: Any) -> Structure:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidGrammar("the schema is not JSON", hint="give it as an object") from error
    return Structure.schema(given, lenient=True, **more)


def _syntax(grammar: str) -> Literal["gbnf", "lark"]:
    return "gbnf" if "::=" in grammar else "lark"
