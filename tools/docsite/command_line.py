"""The reference of the command line, as Markdown, from the commands themselves: what each says under --help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from headstart.commands.cli import GROUPS, app
from headstart.commands.help import default_of, groups_of, takes_of
from headstart.commands.options import GENERAL
from headstart.commands.settings import COMMON, NAME

_HEAD = f"""# The command line

`headstart --help` lists the commands. `headstart COMMAND --help` shows a command's basic options on one screen, and
`--help-all` shows every option by subject; this page is made from the same words.

The model may come first or after `--model`: `headstart serve my-model` is `headstart serve --model my-model`.
`--target` is another name for it, as `--draft-model` is for `--drafter`.

## Options in a file

A file `{NAME}` in the current folder, or the file named with `--config`, sets options. The command line
wins over the file, and the file over the defaults. A section is for the command of its name, and `[{COMMON}]` for every
command that has the option. Keys are the long names of options without their dashes.

```toml
[{COMMON}]
model = "HuggingFaceTB/SmolLM2-135M-Instruct"
threads = 4

[serve]
port = 8080
api-key-file = "keys.txt"

[train.eagle3]
minutes = 60
```

`headstart serve --show-config` prints every option with its value and says where each value comes from; what it prints
can be used as such a file. A key that does not exist is an error that names the nearest one. Options that run other
people's code, such as `trust-remote-code`, are taken from a file only if it is named with `--config`.

This file is about commands. A file `headstart.json` beside a model's `config.json` is something else: it names the
drafter that is recommended for that model, which `--drafter auto` then takes.

## Completion

`headstart --install-completion` lets bash, zsh, fish and PowerShell complete commands, options and their values;
`headstart --show-completion` prints the script instead.

## Options of every command

{{general}}
"""


def command_line() -> str:
    """The page."""
    root = typer.main.get_command(app)
    general = [each for each in root.commands["demo"].params if each.rich_help_panel == GENERAL]
    parts = [_HEAD.format(general="\n".join([_TABLE, *map(_row, general)]))]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += [*_command(root.commands[name], f"headstart {name}", 3), ""]
    return "\n".join(parts)


_TABLE = "| option | meaning | default |\n|---|---|---|"


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    below = dict(getattr(command, "commands", {}))
    text = command.help or ""
    yield f"{'#' * level} {path}\n"
    if meant := below.pop(getattr(command, "default", ""), None):
        command, text = meant, meant.help or ""
    usage = [path, *(_name(each) for each in command.params if _positional(each))]
    yield f"```\n{' '.join(usage)}{' [OPTIONS]' if command.params else ' COMMAND'}\n```\n"
    yield _text(text)
    for panel, parameters in _panels(command).items():
        yield f"\n**{panel}**\n\n{_TABLE}"
        yield from (_row(each) for each in parameters)
    for name, each in below.items():
        yield ""
        yield from _command(each, f"{path} {name}", level + 1)


def _panels(command: Any) -> dict[str, list[Any]]:
    """The parameters by the group of the help in which they stand."""
    words = [each for each in command.params if _positional(each)]
    groups = {name: options for name, options in groups_of(command).items() if name != GENERAL}
    return ({"Arguments": words} if words else {}) | groups


def _row(parameter: Any) -> str:
    if _positional(parameter):
        flags, default = f"`{_name(parameter)}`", ""
    else:
        flags = ", ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
        flags += "" if parameter.is_flag else f" `{takes_of(parameter)}`"
        default = default_of(parameter)
    cells = (flags, _inline(parameter.help or ""), default and f"`{default}`")
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"


def _text(help_text: str) -> str:
    """Help as Markdown: flags are code, and examples are a block of code that says its language."""
    parts = re.split(r"\n\n((?:    .*\n?)+)", help_text)
    code = [f"\n```sh\n{re.sub('^    ', '', part, flags=re.MULTILINE).rstrip()}\n```\n" for part in parts[1::2]]
    words = [_inline(part) for part in parts[::2]]
    return "\n".join(each for pair in zip(words, [*code, ""], strict=True) for each in pair)


def _inline(words: str) -> str:
    return re.sub(r"(?<![`\w*-])(--?[a-z][\w-]*)(?![\w*`])", r"`\1`", words).replace("<", "&lt;")


def _name(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def _positional(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"
