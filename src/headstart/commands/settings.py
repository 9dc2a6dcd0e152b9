"""`headstart.toml`: options in a file, by command. The command line wins over the file, and the file over the defaults.

    [common]                  # of every command that has the option
    model = "my-model"

    [serve]
    port = 8080

    [train.eagle3]
    minutes = 60

Keys are the long names of options without their dashes. The file is the one after --config, or headstart.toml in the
current folder.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.base.options import reject_unknown
from headstart.commands.help import groups_of, names_of
from headstart.commands.terminal import reported

NAME = "headstart.toml"
COMMON = "common"
_SECRET = {"api-key"}
"""Options whose values are not printed."""
_TRUSTED = {
    "trust-remote-code", "vllm", "check", "set",  # run code that is not headstart's
    "endpoint", "against", "webhook", "api-key-env",  # send something to others
    "host", "allowed-host", "cors-origin", "api-key", "api-key-file",  # let others in
}  # fmt: skip
"""Options that only a file which was named may set: one that lies in the current folder may have come with something
that was downloaded."""
_WRITTEN = {
    "output", "html", "markdown", "trace", "suffix-store", "traffic", "ledger", "responses", "slot-save-path", "json",
    "state", "index", "logs", "cache-hidden", "prometheus", "matrix",
}  # fmt: skip
"""Options that name files to write. A file that was only found may name those below its own folder."""
_NEVER = {"help", "help-all", "config", "show-config", "version", "install-completion", "show-completion"}


def read_settings(ctx: typer.Context, named: Path | None) -> Path | None:
    """The callback of --config: what the file says of this command becomes its defaults.

    Raises:
        InvalidFile: the file cannot be read, or is no TOML.
        InvalidOption: a section or a key is not known, or a value is of the wrong kind.
    """
    if ctx.resilient_parsing:
        return named
    with reported(show_traceback=False):
        path = named if named is not None else Path(NAME)
        if named is None and not path.is_file():
            return None
        ctx.default_map = settings_for(path, names_of(ctx), ctx, trusted=named is not None)
    return path


def settings_for(path: Path, words: list[str], ctx: typer.Context, *, trusted: bool) -> dict[str, Any]:
    """What a file says of the command that is called with these words, by the names of its parameters."""
    options, found = _options(ctx.command), dict[str, Any]()
    for name, values, known in _sections(_read(path), path, words, ctx.find_root().command):
        reject_unknown(values, known, f"{path}: [{name}]")
        for key, value in values.items():
            if key not in options:
                continue  # it is another command's
            if key in _TRUSTED and value and not trusted:
                hint = f"name the file: --config {path}; only then may it set this"
                raise InvalidOption(f"{path} sets {key!r}, and was only found in this folder", hint=hint)
            if key in _WRITTEN and isinstance(value, str) and not trusted and _leaves(value):
                hint = f"name the file: --config {path}; only then may it have files written outside of its folder"
                raise InvalidOption(f"{path} sets {key!r} to {value}, and was only found in this folder", hint=hint)
            found[options[key].name] = _value(value, options[key], f"{path}: {key}")
    return found


def _leaves(value: str) -> bool:
    """Whether a path leads out of the folder from which it is read."""
    path = Path(value)
    return path.is_absolute() or bool(path.anchor) or value.startswith("~") or ".." in path.parts


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path} cannot be read: {error}", hint="give a TOML file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidFile(f"{path} is no TOML: {error}", hint="a line reads: port = 8080") from None


def _sections(
    given: Mapping[str, Any], path: Path, words: list[str], root: Any
) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """The sections that are of a command, the most general first: name, values, and the keys that there are."""
    for key, value in given.items():
        if not isinstance(value, Mapping):
            hint = f"put it below the name of a section: [{COMMON}], or a command's such as [serve]"
            raise InvalidOption(f"{path}: {key!r} is outside of the sections", hint=hint)
    reject_unknown(given, [COMMON, *root.commands], str(path))
    if given.get(COMMON):
        yield COMMON, given[COMMON], _known(root)
    values, group = given, root
    for count, word in enumerate(words, start=1):
        values, group = values.get(word, {}), group.commands[word]
        below = [each for each in getattr(group, "commands", {}) if isinstance(values.get(each), Mapping)]
        own = {key: value for key, value in values.items() if key not in below}
        yield ".".join(words[:count]), own, _known(group)
    if default := getattr(group, "default", ""):  # the command that is meant where none of the group's is named
        name = ".".join([*words, default])
        if isinstance(values.get(default), Mapping):
            yield name, values[default], _known(group.commands[default])


def _known(command: Any) -> list[str]:
    """The keys of a command, or of all commands of a group."""
    below = getattr(command, "commands", {})
    return sorted({key for name in below for key in _known(below[name])} | set(_options(command)))


def _options(command: Any) -> dict[str, Any]:
    """The options of a command by each of their long names; the switch --no-x has none of its own."""
    return {
        flag[2:]: each
        for each in command.params
        if each.param_type_name == "option"
        for flag in each.opts
        if flag.startswith("--") and flag[2:] not in _NEVER
    }


def _value(value: Any, option: Any, owner: str) -> Any:
    """A value of the file as the parser of the command line takes it."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise InvalidOption(f"{owner} is {value!r}", hint="it is a switch: write true or false")
        return value
    if option.multiple:
        each = value if isinstance(value, list) else [value]
        return [_word(one, owner) for one in each]
    return _word(value, owner)


def _word(value: Any, owner: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidOption(f"{owner} is {value!r}", hint="write a text in quotes, or a number")
    return repr(value) if isinstance(value, float) else str(value)


def was_typed(ctx: typer.Context, name: str) -> bool:
    """Whether a parameter was on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def print_settings(ctx: typer.Context) -> None:
    """Every option of a command with its value, as a file for --config, and where the value comes from."""
    section = ".".join(names_of(ctx))
    print(f"[{section}]")
    path = ctx.params.get("config") or NAME
    origins = {"COMMANDLINE": "command line", "DEFAULT_MAP": str(path), "ENVIRONMENT": "environment"}
    for group, options in groups_of(ctx.command).items():
        lines = []
        for each in options:
            key = next(flag for flag in each.opts if flag.startswith("--"))[2:]
            if key in _NEVER or each.name == "traceback":
                continue
            source = ctx.get_parameter_source(each.name)
            origin = origins.get(source.name if source is not None else "", "default")
            value = _toml(ctx.params.get(each.name))
            if key in _SECRET and value:
                lines.append(f"# {key} is set, and not shown  # {origin}")
            else:
                lines.append(f"{key} = {value}  # {origin}" if value else f"# {key} is not set")
        if lines:
            print(f"\n# {group}")
            print("\n".join(lines))


def _toml(value: Any) -> str:
    """A value in TOML; empty for one that is not set."""
    if value is None or value in ((), []):
        return ""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) and math.isfinite(value):
        return repr(value)
    return json.dumps(str(getattr(value, "value", value)), ensure_ascii=False)
