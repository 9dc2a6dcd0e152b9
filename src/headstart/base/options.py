"""Options as fields of dataclasses: each field declares, once, its default and the words that explain it.

The library takes the dataclass, and the command line makes its options from the same fields (`commands.options`), so
that the two cannot differ. `strict` rejects options that do not exist, and `check_fields` values that cannot be.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from types import SimpleNamespace, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headstart.base.errors import InvalidOption

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """What the documentation and the command line say about one field of a dataclass."""

    help: str
    """What the field does. The command line adds the default, and that an option may be repeated."""
    flags: tuple[str, ...] = ()
    """Short flags beside ``--name-of-the-field``; a flag that begins with two dashes replaces that one."""
    metavar: str = ""
    """What the help shows in place of the value; if empty, it follows from the type."""
    panel: str = ""
    """Title of the group of options in which the help shows it."""
    kind: Any = None
    """The type on the command line, where it differs from the field's."""
    parse: Callable[[Any], Any] | None = None
    """Makes the field's value from that of the command line, where they differ. It raises `InvalidOption`."""
    positional: bool = False
    """Given by position instead of by a flag."""
    others: tuple[int, float] | None = None
    """For words given by position of which the first may name the model: the others are this many at least and most."""
    low: float = -math.inf
    """The least number it may be (inclusive), here and below of each element where the field is a sequence."""
    high: float = math.inf
    """The greatest number it may be (inclusive)."""
    above: float | None = None
    """The number that it must exceed."""


def described(help: str, *flags: str, **details: Any) -> dict[str, Option]:
    """The metadata of a field with this `Option`: for ``dataclasses.field(metadata=described(...))``."""
    return {"option": Option(help, flags, **details)}


def option(default: Any, help: str, *flags: str, **details: Any) -> Any:
    """A field of a dataclass with this default and this `Option`."""
    return dataclasses.field(default=default, metadata=described(help, *flags, **details))


def options_of(cls: type[Any]) -> dict[str, Option]:
    """The options of a dataclass by field. A subclass that only changes a field's default keeps its option."""
    found: dict[str, Option] = {}
    for base in reversed(cls.__mro__):
        for field in getattr(base, "__dataclass_fields__", {}).values():
            if "option" in field.metadata:
                found[field.name] = field.metadata["option"]
    return {field.name: found[field.name] for field in dataclasses.fields(cls) if field.name in found}


def types_of(cls: type[Any]) -> dict[str, Any]:
    """The types of the fields that have an option.

    A field may be annotated with a name that only a type checker imports, if its option has a `kind`; it is left out.
    """
    options = options_of(cls)
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        scope = vars(sys.modules[base.__module__])
        for name, hint in inspect.get_annotations(base).items():
            if name in options:
                alone = SimpleNamespace(__annotations__={name: hint})
                try:
                    found |= get_type_hints(alone, scope)
                except NameError:
                    if options[name].kind is None:
                        raise
    return found


def reject_unknown(given: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Raise `InvalidOption` for the first name in `given` that `known` lacks, with the nearest name as a hint."""
    names = list(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the options are: {', '.join(names)}"
            raise InvalidOption(f"{owner} has no option {name!r}", hint=hint)


def strict(cls: type[T]) -> type[T]:
    """Make a dataclass raise `InvalidOption`, not `TypeError`, for an option it does not have, and document its fields.

    The help text of every field with an `Option` is appended to the docstring of the class.
    """
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    lines = [f"    {name}: {each.help}" for name, each in options_of(cls).items()]
    if lines:
        cls.__doc__ = "\n".join([textwrap.dedent(f"    {cls.__doc__}").strip(), "", "Fields:", *lines])
    original = cls.__init__

    @functools.wraps(original)
    def init(self: T, *args: Any, **kwargs: Any) -> None:
        reject_unknown(kwargs, names, cls.__name__)
        original(self, *args, **kwargs)

    cls.__init__ = init  # type: ignore[method-assign, assignment]
    return cls


def values_of(options: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as they are: `dataclasses.asdict` would copy what they hold."""
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}


def check_fields(self: Any) -> None:
    """Check the fields of a dataclass that have an `Option`, by their types and the bounds declared.

    Numbers must lie within their bounds, words be among those of a Literal, flags be True or False. A sequence of
    numbers becomes a tuple. None passes where the type allows it.

    Raises:
        InvalidOption: the first field whose value cannot be, and what it may be.
    """
    cls: Any = type(self)  # hashable, which mypy does not see
    for name, optional, check in _checks(cls):
        value = getattr(self, name)
        if not (value is None and optional):
            check(self, name, value)


Check = Callable[[Any, str, Any], None]
"""Checks (and normalises) a value: the instance, the name of the field, its value."""


@functools.cache
def _checks(cls: type[Any]) -> list[tuple[str, bool, Check]]:
    """For each field that can be checked by its type: whether it may be None, and how to check it."""
    options = options_of(cls)
    found: list[tuple[str, bool, Check]] = []
    for name, hint in types_of(cls).items():
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        checks = [(kind, check) for kind in kinds if (check := _check(kind, options[name]))]
        literals = [kind for kind, _ in checks if get_origin(kind) is Literal] if len(checks) > 1 else []
        words = [word for kind in literals for word in get_args(kind)]
        for kind, check in checks:
            if kind not in literals:
                found.append((name, type(None) in kinds, _or_word(words, check) if words else check))
    return found


def _or_word(words: Sequence[str], check: Check) -> Check:
    """A check of a number that also takes these words in its place."""

    def either(self: Any, name: str, value: Any) -> None:
        if not isinstance(value, str):
            check(self, name, value)
        elif value not in words:
            check_choice(name, value, words)

    return either


def _check(kind: Any, of: Option) -> Check | None:
    bounds: dict[str, Any] = {"low": of.low, "high": of.high, "above": of.above}
    origin, inner = get_origin(kind), get_args(kind)
    if kind is bool:
        return lambda _, name, value: check_flag(name, value)
    if kind in (int, float):
        return lambda _, name, value: check_number(name, value, integer=kind is int, **bounds)
    if origin is Literal:
        return lambda _, name, value: check_choice(name, value, inner)
    if origin in (Sequence, tuple) and inner[0] in (int, float):
        bounds["integer"] = inner[0] is int
        return lambda self, name, value: object.__setattr__(self, name, _numbers(name, value, bounds))
    return None


def _numbers(name: str, values: object, bounds: dict[str, Any]) -> tuple[Any, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str):
        kind = "whole numbers" if bounds["integer"] else "numbers"
        raise InvalidOption(f"{name}={values!r} is not a list of {kind}", hint=f"give a list of {kind}")
    for value in values:
        check_number(name, value, **bounds)
    return tuple(values)


def check_number(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float | None = None,
    integer: bool = False,
) -> None:
    """Check that `value` is a finite number with low <= value <= high (and value > above), or raise."""
    kind = Integral if integer else Real  # NumPy's scalars are registered as these
    if isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value):
        number = int(value) if isinstance(value, Integral) else float(value)  # 2**63 - 1 is no float
        if low <= number <= high and (above is None or number > above):
            return
    wanted = "a whole number" if integer else "a number"
    if above is not None:
        wanted += f" above {above:g}"
    elif low > -math.inf:
        wanted += f" of at least {low:g}"
    if high < math.inf:
        wanted += f" and at most {high:g}"
    raise InvalidOption(f"{name}={value!r} is out of range", hint=f"{name} must be {wanted}")


def token_ids(name: str, value: object) -> tuple[int, ...]:
    """A sequence of token ids, checked.

    Raises:
        InvalidOption: it is no sequence, or something in it is no whole number of at least 0.
    """
    try:
        ids: tuple[Any, ...] = tuple(value)  # type: ignore[arg-type]  # what cannot be iterated over is the error
    except TypeError:
        raise InvalidOption(f"{name}={value!r} is not a list of token ids"[:200], hint="give a list") from None
    if all(type(token) is int and token >= 0 for token in ids):  # forty times as fast as what follows
        return ids
    for token in ids:
        check_number(f"{name} token", token, low=0, integer=True)
    return tuple(map(int, ids))


def check_flag(name: str, value: object) -> None:
    """Check that `value` is True or False, or raise."""
    if not isinstance(value, bool):
        raise InvalidOption(f"{name}={value!r} is not a truth value", hint="use True or False")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Check that `value` is one of these words (usually `typing.get_args` of a Literal), or raise."""
    known = [repr(choice) for choice in choices]
    if repr(value) not in known:
        words = f"{', '.join(known[:-1])} or {known[-1]}" if known[1:] else known[0]
        raise InvalidOption(f"{name}={value!r} does not exist", hint=f"{name} is {words}")
