"""The command line, a file for each command: from demo, generate, chat and serve to export, launch, watch and adapt."""

from __future__ import annotations

import atexit
import copy
import gc
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import version as installed
from importlib.util import find_spec
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from headstart.base.errors import HeadstartError
from headstart.base.extras import missing
from headstart.commands.terminal import reported

__all__ = ["app", "main"]

COMMANDS = {
    "demo": "Watch a model write faster, with the same text as without speculation.",
    "generate": "Continue a prompt. Streams the text, and nothing but the text, to standard output.",
    "chat": "Talk to a model. It answers as it would alone, only sooner.",
    "serve": "Serve a model to OpenAI clients: chat and completions, streaming, with speculation that changes no "
    "answer.",
    "index": "Index files, so that drafters copy from them: your code, your documents, past answers.",
    "simulate": "Predict what speculation would gain, before there is a draft model or a machine. No model is run.",
    "trace": "Look into a recorded run: how many tokens each pass gave, what was accepted, and where rounds were lost.",
    "learn": "Learn speculative decoding: open the lessons in the browser. They need no network and no model.",
    "info": "What is true of a model: its layers, what would run it here, memory, and the drafters that fit; or, "
    "without one, what headstart's kernels run on here.",
    "doctor": "Will speculation help here, with which drafter, and how long should drafts be?",
    "bench": "Measure how much faster speculation is, on your prompts, on this machine.",
    "audit": "Does this engine write what the model would write? Tests sampled and greedy text, stops, ends and "
    "limits.",
    "train": "Train a drafter for a target.",
    "adapt": "Adapt the drafter to what is served, and say whether to deploy it.",
    "export": "Write a folder that runs a target and its drafter in vLLM, SGLang or llama.cpp, with what was measured "
    "of it.",
    "launch": "Start vLLM engines from an export and a router before them, prove that they are right, and keep watch "
    "over them.",
    "watch": "Watch servers that speculate: true tokens per forward, acceptance, latency, drift, one replica against "
    "the rest.",
}
"""The commands, in the order of the help, and how each one's own help begins: the help of all imports none of them.
Each is the function or the `Typer` of this name in the file of its name."""

PLAIN_NEEDS = {"export": ("yaml",), "launch": ("httpx2", "yaml")}
"""Optional packages without which a command's file cannot be imported."""

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
        alone.command(name, help=_not_installed(absent), context_settings=_ANYTHING)(_refuses(absent))
    else:
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=name)
        else:
            alone.command(name)(found)
    return typer.main.get_group(alone).commands[name]


def _listed(name: str) -> TyperCommand:
    """A command as the help of all shows it."""
    absent = next((each for each in PLAIN_NEEDS.get(name, ()) if find_spec(each) is None), None)
    if absent is not None and (error := missing(ImportError(name=absent))) is not None:
        return TyperCommand(name, help=_not_installed(error))
    return TyperCommand(name, help=COMMANDS[name])


def _not_installed(absent: HeadstartError) -> str:
    return f"Not installed: {absent.message}."


_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


def _refuses(absent: HeadstartError) -> Callable[[], None]:
    """In place of a command whose packages are not installed: the help shows it, and running it says what to do."""

    def refuse() -> None:
        with reported(show_traceback=False):
            raise absent

    return refuse


class _Group(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]  # no command is added later

    def format_help(self, ctx: Any, formatter: Any) -> None:
        listed = copy.copy(self)
        listed.commands = {name: _listed(name) for name in COMMANDS}
        TyperGroup.format_help(listed, ctx, formatter)


app = typer.Typer(
    name="headstart",
    cls=_Group,
    help="Make a language model write faster without changing what it writes.\n\n"
    "A small drafter proposes the next tokens, the model checks them all in one forward pass, and an exact rule "
    "decides which are kept: the text stays the same (greedy), or its distribution does (sampled).",
    epilog="Start with **headstart demo**. Each command explains itself: **headstart generate --help**.",
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
