"""Commands whose options are dataclasses: `command` makes typer's options from the fields that declare an `Option`.

How a command explains itself is in `commands.help`, and the file that sets options in `commands.settings`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from headstart.base.errors import InvalidOption
from headstart.base.options import Option, options_of, types_of
from headstart.commands.help import explain_all
from headstart.commands.settings import print_settings, read_settings, was_typed
from headstart.commands.terminal import reported

GENERAL = "Help and settings"
"""The group of the options that every command has."""
_METAVARS = {int: "N", float: "X", str: "NAME", Path: "FILE"}
_UNITS = {unit: unit.upper() for unit in ("seconds", "minutes", "days", "bytes")}
"""What an option takes whose name ends with its unit, or whose help begins with it."""
_EVERYWHERE: dict[str, tuple[Any, Any, Any]] = {
    "help_all": (
        bool,
        False,
        typer.Option(
            "--help-all",
            is_eager=True,
            callback=explain_all,
            help="Show every option, by subject.",
            rich_help_panel=GENERAL,
        ),
    ),
    "config": (
        Path | None,
        None,
        typer.Option(
            "--config",
            is_eager=True,
            callback=read_settings,
            metavar="FILE",
            help="Read options from this file. Default: headstart.toml in the current folder, if there is one.",
            rich_help_panel=GENERAL,
        ),
    ),
    "show_config": (
        bool,
        False,
        typer.Option(
            "--show-config",
            help="Print every option with its value and where the value comes from, and do nothing else.",
            rich_help_panel=GENERAL,
        ),
    ),
    "traceback": (
        bool,
        False,
        typer.Option(
            "--traceback",
            help="On an error, also show where in the code it was raised.",
            rich_help_panel=GENERAL,
        ),
    ),
}


Offered = Callable[[str], bool]
"""Which fields of a dataclass a command offers: ``Annotated[Sampling, only("max_tokens", "seed")]``."""


def only(*names: str) -> Offered:
    """The fields of these names."""
    return lambda name: name in names


def but(*names: str) -> Offered:
    """All fields but those of these names."""
    return lambda name: name not in names


def command(basic: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function a command, for `typer.Typer.command`. basic: the options that --help shows, by their long names
    without dashes, in this order; without any it shows all.

    A parameter annotated with a dataclass becomes the options of its fields, with the defaults of the parameter's own
    default if it has one; the body receives an instance. A parameter whose default is an `option(...)` is declared as a
    field is. Every command gets the options of `_EVERYWHERE`, and its errors are reported.

    Where words given by position have `Option.others`, the first of them is the model, unless --model is given too or
    no more words are there than must follow; the body receives the model as `target`, and the other words.
    """

    def made(body: Callable[..., None]) -> Callable[..., None]:
        parameters, groups, words = _parameters(body)
        flags = {name: flag for group in groups.values() for name, flag in group.flags()}

        @functools.wraps(body)
        def run(__context: typer.Context, **given: Any) -> None:
            with reported(given.pop("traceback"), flags):
                del given["config"], given["help_all"]  # their callbacks have acted
                if given.pop("show_config"):
                    print_settings(__context)
                    return
                if words is not None:
                    words.sort(given, typed=was_typed(__context, words.target))
                made = {name: group.make(given) for name, group in groups.items()}
                body(**given, **made)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}
        run.basic = tuple(basic.split())  # type: ignore[attr-defined]
        return run

    return made


def _parameters(body: Callable[..., None]) -> tuple[list[inspect.Parameter], dict[str, _Group], _Words | None]:
    """The parameters of a command, those that are dataclasses, and the words that may begin with the model."""
    hints = get_type_hints(body, include_extras=True)
    parameters = [_parameter("__context", typer.Context, inspect.Parameter.empty)]
    groups: dict[str, _Group] = {}
    words: _Words | None = None
    for name, parameter in inspect.signature(body).parameters.items():
        cls, *extras = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name],)
        if dataclasses.is_dataclass(cls) and isinstance(cls, type):
            group = groups[name] = _Group(name, cls, parameter.default, next(iter(extras), but()))
            parameters += group.parameters()
            for field, each in group.options.items():
                if each.others is not None:
                    words = _Words(f"{name}_{field}", f"{name}_target", each, required=True)
        elif isinstance(parameter.default, dataclasses.Field):
            declared = parameter.default
            each = declared.metadata["option"]
            parameters.append(_declared(name, name, hints[name], declared.default, each))
            if each.others is not None:
                words = _Words(name, "target", each)
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY))
    for name, (kind, default, info) in _EVERYWHERE.items():
        parameters.append(_parameter(name, Annotated[kind, info], default))
    return parameters, groups, words


@dataclasses.dataclass(frozen=True)
class _Words:
    """Words given by position, of which the first may name the model."""

    name: str
    target: str
    """The parameter that --model gives."""
    option: Option
    required: bool = False

    def sort(self, given: dict[str, Any], *, typed: bool) -> None:
        """Let the model be the first word, where it is; `typed` says that --model was on the command line."""
        assert self.option.others is not None
        least, most = self.option.others
        if given.get("prompts") is not None:
            least = 0  # with a file of prompts no text is due
        words = list(given[self.name] or ())
        if not typed and len(words) > least:
            given[self.target] = str(words.pop(0))
        if len(words) > most:
            hint = f"the command takes {self.option.metavar}; put quotes around a text of several words"
            raise InvalidOption(f"{str(words[-1])!r} is one word too many", hint=hint)
        if self.required and given[self.target] is None:
            raise InvalidOption("the model is not named", hint="name it first, or with --model")
        given[self.name] = words


class _Group:
    """The options of one dataclass."""

    def __init__(self, name: str, cls: type[Any], default: Any, offered: Offered) -> None:
        self.name, self.cls = name, cls
        self.default = None if default is inspect.Parameter.empty else default
        self.options = {name: each for name, each in options_of(cls).items() if offered(name)}
        self.words = any(each.others is not None for each in self.options.values())
        self.kinds = types_of(cls) | {name: each.kind for name, each in self.options.items() if each.kind is not None}

    def parameters(self) -> list[inspect.Parameter]:
        """One parameter for each field, as typer wants them."""
        fields = {field.name: field for field in dataclasses.fields(self.cls)}
        return [self._parameter(fields[name], each) for name, each in self.options.items()]

    def flags(self) -> list[tuple[str, str]]:
        """The name of each field, and the flag that the help names first."""
        long = {
            name: [flag for flag in _flags(name, each) if flag.startswith("--")] for name, each in self.options.items()
        }
        return [(name, flags[0]) for name, flags in long.items() if not self.options[name].positional]

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
        if default is dataclasses.MISSING and field.name == "target" and self.words:
            return None
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
        "metavar": option.metavar or _unit(name, option.help) or _METAVARS.get(kind),
        "rich_help_panel": option.panel or None,
        "show_default": False,  # what to show is for `commands.help`
    }
    info = typer.Argument(**words) if option.positional else typer.Option(*_flags(name, option), **words)
    annotation: Any = Annotated[(list[kind] if many else kind, info)]  # type: ignore[valid-type]
    return _parameter(key, annotation, default)


def _unit(name: str, help: str) -> str | None:
    return _UNITS.get(name.rpartition("_")[2]) or _UNITS.get(help.partition(" ")[0].lower())


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
