"""Commands whose options are dataclasses: `command` makes typer's options from the fields that declare an `Option`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from headstart.base.options import Option, options_of, types_of
from headstart.commands.terminal import reported

_METAVARS = {int: "N", float: "X", str: "NAME", Path: "FILE"}
_TRACEBACK = typer.Option("--traceback", help="On an error, also show where in the code it was raised.")


Offered = Callable[[str], bool]
"""Which fields of a dataclass a command offers: ``Annotated[Sampling, only("max_tokens", "seed")]``."""


def only(*names: str) -> Offered:
    """The fields of these names."""
    return lambda name: name in names


def but(*names: str) -> Offered:
    """All fields but those of these names."""
    return lambda name: name not in names


def command(body: Callable[..., None]) -> Callable[..., None]:
    """A function as a command, for `typer.Typer.command`.

    A parameter annotated with a dataclass becomes the options of its fields, with the defaults of the parameter's own
    default if it has one; the body receives an instance. A parameter whose default is an `option(...)` is declared as a
    field is. Every command gets --traceback, and its errors are reported.
    """
    hints = get_type_hints(body, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, _Group] = {}
    for name, parameter in inspect.signature(body).parameters.items():
        cls, *extras = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name],)
        if dataclasses.is_dataclass(cls) and isinstance(cls, type):
            groups[name] = _Group(name, cls, parameter.default, next(iter(extras), but()))
            parameters += groups[name].parameters()
        elif isinstance(parameter.default, dataclasses.Field):
            declared = parameter.default
            parameters.append(_declared(name, name, hints[name], declared.default, declared.metadata["option"]))
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY))
    parameters.append(_parameter("traceback", Annotated[bool, _TRACEBACK], False))

    @functools.wraps(body)
    def run(**given: Any) -> None:
        with reported(given.pop("traceback")):
            made = {name: group.make(given) for name, group in groups.items()}
            body(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


class _Group:
    """The options of one dataclass."""

    def __init__(self, name: str, cls: type[Any], default: Any, offered: Offered) -> None:
        self.name, self.cls = name, cls
        self.default = None if default is inspect.Parameter.empty else default
        self.options = {name: each for name, each in options_of(cls).items() if offered(name)}
        self.kinds = types_of(cls) | {name: each.kind for name, each in self.options.items() if each.kind is not None}

    def parameters(self) -> list[inspect.Parameter]:
        """One parameter for each field, as typer wants them."""
        fields = {field.name: field for field in dataclasses.fields(self.cls)}
        return [self._parameter(fields[name], each) for name, each in self.options.items()]

    def make(self, given: dict[str, Any]) -> Any:
        """The instance, from the values that typer found; they are taken out of `given`."""
        values: dict[str, Any] = {}
        for name, option in self.options.items():
            value = given.pop(f"{self.name}_{name}")
            if value is not None and value != []:
                values[name] = value if option.parse is None else option.parse(value)
        return self.cls(**values) if self.default is None else dataclasses.replace(self.default, **values)

    def _parameter(self, field: dataclasses.Field[Any], option: Option) -> inspect.Parameter:
        kind = self.kinds[field.name]
        shown = self._shown(field, option, many=_kind(kind)[1])
        return _declared(f"{self.name}_{field.name}", field.name, kind, shown, option)

    def _shown(self, field: dataclasses.Field[Any], option: Option, *, many: bool) -> Any:
        """The default of the command line; None where it is not shown, and `make` leaves it to the dataclass."""
        default = field.default if self.default is None else getattr(self.default, field.name)
        if default is dataclasses.MISSING:
            return inspect.Parameter.empty if field.default_factory is dataclasses.MISSING else None
        if many:
            return list(default or ()) or None
        return None if option.parse is not None and not isinstance(default, str) else default


def _declared(key: str, name: str, hint: Any, default: Any, option: Option) -> inspect.Parameter:
    """The parameter `key` of a command: an option with the flag of `name`."""
    kind, many = _kind(hint)
    words: dict[str, Any] = {
        "help": f"{option.help} Repeat for more." if many and not option.positional else option.help,
        "metavar": option.metavar or _METAVARS.get(kind),
        "rich_help_panel": option.panel or None,
    }
    info = typer.Argument(**words) if option.positional else typer.Option(*_flags(name, option), **words)
    annotation: Any = Annotated[(list[kind] if many else kind, info)]  # type: ignore[valid-type]
    return _parameter(key, annotation, default)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flags(name: str, option: Option) -> tuple[str, ...]:
    replaced = any(flag.startswith("--") for flag in option.flags)
    return option.flags if replaced else (f"--{name.replace('_', '-')}", *option.flags)


def _kind(hint: Any) -> tuple[Any, bool]:
    """The type of one value on the command line, and whether the option can be repeated."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(kind for kind in get_args(hint) if kind is not type(None))  # "str | Path" is text
    if get_origin(hint) in (list, tuple, Sequence):
        return _kind(get_args(hint)[0])[0], True
    return hint, False
