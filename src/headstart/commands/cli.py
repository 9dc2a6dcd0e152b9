"""The command line, a file for each command: from demo, generate, chat and serve to export, launch, watch and adapt."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version as installed
from typing import Annotated

import typer

from headstart.commands.adapt import adapt
from headstart.commands.audit import audit
from headstart.commands.bench import bench
from headstart.commands.chat import chat
from headstart.commands.demo import demo
from headstart.commands.doctor import doctor
from headstart.commands.export import export
from headstart.commands.generate import generate
from headstart.commands.launch import launch
from headstart.commands.learn import learn
from headstart.commands.serve import serve
from headstart.commands.simulate import simulate
from headstart.commands.trace import trace
from headstart.commands.train import train
from headstart.commands.watch import watch

__all__ = ["app", "main"]

app = typer.Typer(
    name="headstart",
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
app.command()(demo)
app.command()(generate)
app.command()(chat)
app.command()(serve)
app.command()(simulate)
app.command()(trace)
app.command()(learn)
app.command()(doctor)
app.add_typer(bench, name="bench")
app.command()(audit)
app.add_typer(train, name="train")
app.command()(adapt)
app.command()(export)
app.command()(launch)
app.command()(watch)


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
    for stream in (sys.stdout, sys.stderr):
        # A model may write any character; a terminal of another encoding shows an escape instead of failing.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app()
