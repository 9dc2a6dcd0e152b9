"""The command line, a file for each command: from demo, generate, chat and serve to export, launch, watch and adapt."""

from __future__ import annotations

import atexit
import gc
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import version as installed
from typing import Annotated, Any

import typer
import typer.main
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]  # of the Click within typer

from headstart.base.errors import HeadstartError
from headstart.base.extras import missing
from headstart.commands.help import Explained, Group, overview
from headstart.commands.terminal import reported

__all__ = ["app", "main"]

GROUPS = {
    "Run a model": {
        "generate": "Continue a prompt, or answer one.",
        "chat": "Talk to a model in the terminal.",
        "serve": "Serve a model to OpenAI and Anthropic clients.",
        "demo": "Watch a model write with and without speculation.",
    },
    "Choose and check": {
        "info": "What a model is, what runs it here, and the drafters that fit.",
        "doctor": "Will speculation help here, and with which drafter?",
        "bench": "Measure the speedup on your prompts.",
        "simulate": "Predict the speedup from figures, without a model.",
    },
    "Prove": {
        "audit": "Test that text with speculation is what the model alone would write.",
    },
    "Make it faster": {
        "train": "Train a drafter for a model.",
        "adapt": "Train a deployed drafter further on what was served.",
        "index": "Index files from which drafters copy.",
    },
    "Operate": {
        "export": "Write a folder that runs a model and its drafter in vLLM, SGLang or llama.cpp.",
        "launch": "Start vLLM engines and a router from an export.",
        "watch": "Watch servers that speculate, and notice when acceptance falls.",
    },
    "Look inside": {
        "trace": "Look into a recorded run, step by step.",
        "learn": "Open the lessons on speculative decoding.",
    },
}
"""The commands as the help shows them; each is the function or the `Typer` of this name in the file of its name. Their
lines stand here, so that a list of commands imports none of them."""

COMMANDS = tuple(name for commands in GROUPS.values() for name in commands)


_YOUNG = 50_000
"""New objects after which Python looks for garbage among them."""


class _Commands(Mapping[str, Any]):
    """The commands by name. A command's file, and the wing that it needs, is imported when the command is asked for."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache
def _command(name: str) -> Any:
    alone = typer.Typer(rich_markup_mode="markdown", add_completion=False, pretty_exceptions_enable=False)
    alone.callback()(lambda: None)  # makes it a group
    try:
        found = getattr(import_module(f"headstart.commands.{name}"), name)
    except ImportError as error:
        if (absent := missing(error)) is None:
            raise
        alone.command(name, help=f"Not installed: {absent.message}.", context_settings=_ANYTHING)(_refuses(absent))
    else:
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=name)
        else:
            alone.command(name, cls=Explained)(found)
    return typer.main.get_group(alone).commands[name]


_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


def _refuses(absent: HeadstartError) -> Callable[[], None]:
    """In place of a command whose packages are not installed: the help shows it, and running it says what to do."""

    def refuse() -> None:
        with reported(show_traceback=False):
            raise absent

    return refuse


class _Root(Group):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]  # no command is added later

    def format_help(self, ctx: Any, formatter: Any) -> None:
        del formatter  # what is printed has colours
        overview(ctx.command_path, self.help or "", GROUPS)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        words = {name: line for commands in GROUPS.values() for name, line in commands.items()}
        found = [CompletionItem(name, help=line) for name, line in words.items() if name.startswith(incomplete)]
        return found + super(TyperGroup, self).shell_complete(ctx, incomplete)  # the options; no look at commands


app = typer.Typer(
    name="headstart",
    cls=_Root,
    help="Make a language model write faster without changing what it writes.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    # An unexpected error is a bug: a plain traceback is what a report needs.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        beside = ", ".join(f"{name} {installed(name)}" for name in ("torch", "transformers"))
        typer.echo(f"headstart {installed('headstart')} ({beside}, Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions and exit.")
    ] = False,
) -> None:
    del version  # its callback has acted


def main() -> None:
    """The console script."""
    # Libraries make a million objects while they are imported, which Python would look through again and again for
    # garbage, and all of them once more at the end.
    gc.set_threshold(_YOUNG, 10, 10)
    atexit.register(gc.freeze)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if not hasattr(stream, "reconfigure"):
            continue
        if sys.platform == "win32":  # where files and pipes have the encoding of the country
            stream.reconfigure(encoding="utf-8")
        if stream is not sys.stdin:
            # A model may write any character; a terminal of another encoding shows an escape instead of failing.
            stream.reconfigure(errors="backslashreplace")
    app()
