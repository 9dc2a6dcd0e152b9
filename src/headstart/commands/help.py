"""How commands explain themselves: `--help` in one screen, `--help-all` with every option by subject.

`--help` shows the options that a command calls basic, each with the first sentence of its help and its default.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

WIDEST = 100
"""Columns that help takes at most, and where it is not written to a terminal."""
_LEFT = 32
"""Columns of the flags; where they need more, their help begins on the next line."""
_EXAMPLES = 3
"""Examples that --help shows."""
_FLAG, _HEAD, _VALUE = "bold cyan", "bold", "yellow"


class Explained(TyperCommand):
    """A command with this help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        del formatter  # what is printed has colours
        explain(self, ctx, whole=False)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        del ctx
        return _pieces(self)


class Group(TyperGroup):
    """A group of commands with this help. default: the command that is meant where none of the group's is named."""

    default = ""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        del formatter
        if self.default:
            explain(self.commands[self.default], ctx, whole=False)
            return
        console = _console()
        _usage(console, ctx.command_path, ["COMMAND", "..."])
        _paragraphs(console, self.help or "")
        console.print("\nCommands:", style=_HEAD)
        rows = [(name, each.get_short_help_str(WIDEST)) for name, each in self.commands.items()]
        table(console, rows, left=2 + max(len(name) for name, _ in rows))
        _line(console, f"\n{ctx.command_path} COMMAND --help explains one of them.")

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        found = super().shell_complete(ctx, incomplete)
        return found + (self.commands[self.default].shell_complete(ctx, incomplete) if self.default else [])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.default and not (args[0] in self.commands if args else ctx.resilient_parsing):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def overview(path: str, text: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Print the commands by group, each with its line."""
    console = _console()
    _usage(console, path, ["COMMAND", "..."])
    _paragraphs(console, text)
    widest = max(len(name) for commands in groups.values() for name in commands)
    for title, commands in groups.items():
        console.print(f"\n{title}:", style=_HEAD)
        table(console, list(commands.items()), left=widest)
    _line(console, f"\nBegin with {path} demo. Each command explains itself: {path} generate --help")
    _line(console, f"Options may be in a file, headstart.toml. Completion: {path} --install-completion; --version")


def explain_all(ctx: typer.Context, wanted: bool) -> None:
    """The callback of --help-all."""
    if wanted:
        explain(ctx.command, ctx, whole=True)
        ctx.exit()


def explain(command: Any, ctx: Any, *, whole: bool) -> None:
    """Print the help of a command: all of it, or its basic options alone."""
    console = _console()
    path = path_of(ctx)
    words = [each for each in command.params if each.param_type_name == "argument"]
    _usage(console, path, _pieces(command))
    text, examples = _parted(command.help or "")
    _paragraphs(console, text if whole else text.split("\n\n")[0])
    shown = examples if whole else [each for each in examples if len(each) < WIDEST - 2][:_EXAMPLES]
    if shown:
        console.print("\nExamples:", style=_HEAD)
        for line in shown:
            _line(console, f"  {line}")
    if words and (whole or not basic_of(command)):
        _titled(console, "Arguments", words, whole=whole)
    if whole:
        for group, options in groups_of(command).items():
            _titled(console, group, options, whole=True)
        return
    basic = basic_of(command)
    options = [each for each in command.params if each.param_type_name == "option" and not _general(each)]
    chosen = [each for name in basic for each in options if name in _names(each)] if basic else options
    _titled(console, "Options", chosen, whole=False)
    around: Any = ctx.parent.command if ctx.parent is not None else None
    if getattr(around, "default", "") == ctx.info_name:
        for name in around.commands:
            if name != ctx.info_name:
                _line(console, f"\nSee also: {path} {name} --help")
    left = len(options) - len(chosen)
    more = f"{left} more options, by subject" if left else "The whole text"
    _line(console, f"\n{more}: {path} --help-all")


def path_of(ctx: Any) -> str:
    """How a command is called."""
    return " ".join([str(ctx.find_root().info_name), *names_of(ctx)])


def names_of(ctx: Any) -> list[str]:
    """The names of a command below the program; one that is meant where none is named has none of its own."""
    if ctx.parent is None:
        return []
    hidden = getattr(ctx.parent.command, "default", "") == ctx.info_name
    return names_of(ctx.parent) + ([] if hidden else [str(ctx.info_name)])


def basic_of(command: Any) -> tuple[str, ...]:
    """The long names of the options that --help shows; none where it shows all."""
    return tuple(getattr(command.callback, "basic", ()))


def groups_of(command: Any) -> dict[str, list[Any]]:
    """The options of a command by the subject that they belong to, as they come; those of every command last."""
    groups: dict[str, list[Any]] = {}
    for each in command.params:
        if each.param_type_name == "option":
            groups.setdefault(each.rich_help_panel or "", []).append(each)
    general = {name: groups.pop(name) for name in list(groups) if all(map(_general, groups[name]))}
    return groups | general


def flags_of(option: Any) -> str:
    """An option's flags as help shows them: a short one and the first long one, with what it takes."""
    short = [flag for flag in option.opts if not flag.startswith("--")]
    long = [flag for flag in option.opts if flag.startswith("--")][:1]
    if option.secondary_opts and long:
        long = [f"--[no-]{long[0][2:]}"]
    takes = "" if option.is_flag else f" {takes_of(option)}"
    return (f"{short[0]}, " if short else "    ") + f"{''.join(long)}{takes}"


def takes_of(option: Any) -> str:
    """What an option takes: the word in place of its value, or the values that there are."""
    choices = option.type_descriptor.choices
    if choices is None:
        return option.metavar or "TEXT"
    return "|".join(str(getattr(each, "value", each)) for each in choices)


def default_of(option: Any) -> str:
    """The default as it is written on the command line; empty where there is none to show."""
    default = option.default
    if option.secondary_opts:
        return "on" if default else "off"
    if default is None or isinstance(default, bool) or callable(default) or default in ((), [], ""):
        return ""
    if isinstance(default, list | tuple):
        return ", ".join(map(str, default))
    return str(getattr(default, "value", default))


def _general(option: Any) -> bool:
    """Whether it is one of those that every command has."""
    return bool(option.name in ("help", "help_all", "config", "show_config", "traceback"))


def _names(option: Any) -> list[str]:
    return [flag.lstrip("-") for flag in option.opts if flag.startswith("--")]


def _titled(console: Console, title: str, parameters: Sequence[Any], *, whole: bool) -> None:
    console.print(f"\n{title}:", style=_HEAD)
    rows = []
    for each in parameters:
        word = each.param_type_name == "argument"
        flags = f"{each.metavar or each.name.upper()}" if word else flags_of(each)
        rows.append((flags, _said(each, whole=whole) if not word else each.help or ""))
    widest = max((len(flags) for flags, _ in rows if len(flags) <= _LEFT), default=_LEFT)
    table(console, rows, left=2 + widest)


def _said(option: Any, *, whole: bool) -> str:
    """The help of an option and its default; else its first sentence and what says the default."""
    sentences = re.split(r"(?<=[.)])\s+(?=[A-Z0-9'\"-])", (option.help or "").strip())
    default = default_of(option)
    of_all = [each for each in sentences if each.startswith("Default:")]
    of_this = [each for each in sentences[1:] if each.startswith(f"'{default}' ")]
    if of_all and of_this:  # the option is of several commands, and this one has another default than most
        sentences = [each for each in sentences if each not in of_all]
        kept = of_this
    else:
        kept = of_all
    if not whole:
        sentences = [sentences[0], *(each for each in kept if each != sentences[0])]
    words = " ".join(sentences)
    others = [flag for flag in option.opts if flag.startswith("--")][1:]
    if whole and others:
        words += f" Also {' and '.join(others)}."
    return f"{words} [default: {default}]" if default and "Default:" not in words else words


def _parted(text: str) -> tuple[str, list[str]]:
    """A command's help without its examples, and these."""
    text, _, examples = text.partition("**Examples**")
    return text.strip(), [line.strip() for line in examples.strip().splitlines() if line.strip()]


def _paragraphs(console: Console, text: str) -> None:
    for paragraph in text.split("\n\n"):
        words = " ".join(paragraph.split()).replace("**", "").replace("`", "'")
        if words:
            _line(console, "\n" + textwrap.fill(words, _width(), break_on_hyphens=False, break_long_words=False))


def _pieces(command: Any) -> list[str]:
    """What follows the command's name."""
    words = [each for each in command.params if each.param_type_name == "argument"]
    return [*(str(each.metavar or each.name.upper()) for each in words), "[OPTIONS]"]


def _usage(console: Console, path: str, pieces: Sequence[str]) -> None:
    console.print(Text.assemble(("Usage: ", _HEAD), f"{path} {' '.join(pieces)}"), soft_wrap=True)


def table(console: Console, rows: Sequence[tuple[str, str]], left: int) -> None:
    """Flags or names at the left, and beside them what they mean."""
    for name, words in rows:
        room = _width() - left - 4
        lines = list(_wrapped(words, room)) or [""]
        if len(name) > left:
            _line(console, f"  {name}", _FLAG)
        else:
            first = lines.pop(0)
            console.print(Text.assemble(("  " + name.ljust(left), _FLAG), "  ", first), soft_wrap=True)
        for line in lines:
            _line(console, " " * (left + 4) + line)


def _wrapped(words: str, room: int) -> Iterator[str]:
    yield from textwrap.wrap(words, max(room, 24), break_on_hyphens=False, break_long_words=False)


def _line(console: Console, words: str, style: str = "") -> None:
    console.print(Text(words, style), soft_wrap=True)


def _console() -> Console:
    return Console(highlight=False)


def _width() -> int:
    return max(40, min(shutil.get_terminal_size((WIDEST, 40)).columns, WIDEST))
