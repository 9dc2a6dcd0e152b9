"""Records as JSON takes them: dataclasses as objects, or some of their fields; null for what is no finite number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from headstart.base.errors import HeadstartError

if TYPE_CHECKING:
    from pydantic import ValidationError


def as_json(value: Any, unknown: Callable[[float], str | None] = lambda _: None) -> Any:
    """The value with its dataclasses, named tuples, arrays and errors as values of JSON.

    unknown: what is written for a number that JSON does not know.
    """
    if isinstance(value, HeadstartError):
        return {"type": type(value).__name__, "message": value.message, "hint": value.hint}
    if is_dataclass(value):
        return {each.name: as_json(getattr(value, each.name), unknown) for each in fields(value)}
    if hasattr(value, "_asdict"):
        return as_json(value._asdict(), unknown)
    if isinstance(value, Mapping):
        return {str(name): as_json(each, unknown) for name, each in value.items()}
    if hasattr(value, "tolist"):
        return as_json(value.tolist(), unknown)
    if isinstance(value, list | tuple):
        return [as_json(each, unknown) for each in value]
    return unknown(value) if isinstance(value, float) and not math.isfinite(value) else value


def first_problem(error: ValidationError, whole: str = "") -> str:
    """Where a record is wrong, and what is wrong there: the first of the things found. whole: names the record."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"


def picked(value: Any, *names: str, **renamed: str) -> dict[str, Any]:
    """Some attributes of an object as a record: those of these names, and `key="attribute"` under another key."""
    return {key: getattr(value, name) for key, name in [*zip(names, names, strict=True), *renamed.items()]}
