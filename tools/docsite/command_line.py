"""The reference of the command line, as Markdown, from the commands themselves: what each says under --help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from headstart.commands.cli import app

_HEAD = """# The command line

Every command explains itself with `--help`; this page is made from the same words.
"""


def command_line() -> str:
    """The page."""
    return "\n".join([_HEAD, *_command(typer.main.get_command(app), "headstart", 2)])


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    if level > 2:
        yield f"{'#' * (level - 1)} {path}\n"
    usage = [path, *(_name(each) for each in command.params if _positional(each))]
    yield f"```\n{' '.join(usage)}{' [OPTIONS]' if command.params else ''}\n```\n"
    yield _text(command.help or "")
    for panel, parameters in _panels(command).items():
        yield f"\n**{panel}**\n\n| | | default |\n|---|---|---|"
        yield from (_row(each) for each in parameters)
    for name, each in getattr(command, "commands", {}).items():
        yield ""
        yield from _command(each, f"{path} {name}", level + 1)


def _panels(command: Any) -> dict[str, list[Any]]:
    """The parameters by the panel of the help in which they stand, as they come."""
    panels: dict[str, list[Any]] = {}
    for each in command.params:
        if not each.hidden and each.name not in ("help", "install_completion", "show_completion"):
            panel = each.rich_help_panel or ("Arguments" if _positional(each) else "Options")
            panels.setdefault(panel, []).append(each)
    return panels


def _row(parameter: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
    if _positional(parameter):
        flags = f"`{_name(parameter)}`"
    elif parameter.metavar:
        flags += f" `{parameter.metavar}`"
    default = parameter.default
    unsaid = default is None or default is False or default in ((), [], "") or callable(default)
    shown = "" if unsaid else f"`{getattr(default, 'value', default)}`"
    return "| " + " | ".join(each.replace("|", "\\|") for each in (flags, _inline(parameter.help or ""), shown)) + " |"


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
