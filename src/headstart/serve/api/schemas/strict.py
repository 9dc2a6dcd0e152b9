"""Reading a JSON body into a schema: unknown fields refused with the nearest name, harmless ones accepted and named.

A field may be null wherever it may be left out: many clients write out every field that they know.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator

from headstart.serve.api.errors import Refused, unsupported

M = TypeVar("M", bound="Strict")


class Strict(BaseModel):
    """A JSON object without room for fields that it does not know."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, serialize_by_alias=True)

    place: ClassVar[str] = ""
    """Where in a request such an object stands, with a dot behind it; "" for the request itself."""
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Fields of other interfaces that are accepted and do nothing, each with the values that may stand there; none
    means any value."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Fields of other interfaces that would change the answer, each with what to do instead."""
    lenient: ClassVar[bool] = False
    """Whether fields that no list has are accepted and named, as `harmless` ones are. Agents send fields of their own,
    and a refusal would end their work."""
    any_model: ClassVar[bool] = False
    """Whether a request may name any model: clients have the names of Anthropic's models built in."""

    @classmethod
    def names(cls) -> list[str]:
        """The fields, as a request writes them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        known = frozenset(cls.names())
        others = data.keys() - known
        if not others:
            return data
        for name in sorted(others):
            if cls._matters(name, data[name]) and info.context is not None:
                info.context.append(f"{cls.place}{name}")
        return {name: value for name, value in data.items() if name in known}

    @classmethod
    def _matters(cls, name: str, value: Any) -> bool:
        """Whether to tell the client that this field does nothing.

        Raises:
            Refused: the field would change the answer, or no list has it and the schema is not lenient.
        """
        if name not in cls.harmless and name not in cls.refused:
            if cls.lenient:
                return value is not None
            raise _unknown(cls, name)
        if value is None:
            return False
        allowed = cls.harmless.get(name)
        if allowed is not None and (not allowed or value in allowed):
            return not allowed
        param, instead = f"{cls.place}{name}", f"leave it out, or give {' or '.join(map(repr, allowed or ()))}"
        raise unsupported(param, f"{param} is not served here", cls.refused.get(name, instead))


def read(schema: type[M], body: bytes) -> tuple[M, tuple[str, ...]]:
    """The request in a body, and the names of its fields that do nothing here.

    Raises:
        Refused: it is not JSON, has a field that is not known, or a value that cannot be; the first of them.
    """
    ignored: list[str] = []
    try:
        return schema.model_validate_json(body, context=ignored), tuple(ignored)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
    first = max(problems, key=lambda each: len(each["loc"]))  # of a union, the member that fits furthest
    if first["type"] == "json_invalid":
        words = _lower(first["msg"].removeprefix("Invalid JSON: "))
        raise Refused(f"the body is not JSON: {words}", hint="send one JSON object, in UTF-8", code="invalid_json")
    param = _param(first["loc"])
    raise Refused(
        f"{param or 'the body'}: {_lower(first['msg'])}",
        hint="/openapi.json has the fields and their types",
        code="missing_field" if first["type"] == "missing" else "invalid_value",
        param=param,
    )


def _unknown(schema: type[Strict], name: str) -> Refused:
    names = [*schema.names(), *schema.harmless]
    close = difflib.get_close_matches(name, names, n=1)
    name = name if len(name) <= 60 else f"{name[:60]}…"
    problem = f"there is no field {schema.place}{name}"
    hint = f"did you mean {schema.place}{close[0]}?" if close else f"the fields are {', '.join(schema.names())}"
    return Refused(problem, hint=hint, code="unknown_field", param=f"{schema.place}{name}")


def _param(place: Sequence[int | str]) -> str | None:
    """The field, as a client would write it; pydantic names the members of unions too ("list[str]", "Text")."""
    parts = [str(part) for part in place if isinstance(part, int) or part.replace("_", "").replace(".", "").islower()]
    return ".".join(part for part in parts if part not in ("str", "int", "float", "bool")) or None


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]
