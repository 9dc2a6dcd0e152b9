"""How a command talks to the terminal: two consoles, and errors as messages instead of tracebacks."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.control import Control
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from headstart.base.compiling import SHOWN
from headstart.base.errors import HeadstartError
from headstart.base.extras import missing

# Exit codes that shells know: 2 for bad input, 128 + the signal for an interrupt and for a reader that has gone.
BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 2, 130, 141

# C0 controls, DEL and C1 controls except tab and newline: on a terminal they could move the cursor or recolour it.
_CONTROLS = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)

_NAME = re.compile(r"(?<![\w./-])([a-z][a-z_]*)(?![\w/]|\.\w)(=?)")
"""A word that may be the name of an option in Python: no part of a path."""
_FLAGS: ContextVar[Mapping[str, str]] = ContextVar("_FLAGS", default=MappingProxyType({}))
"""The flags of the command that runs, by the names that Python has for its options."""


def output() -> Console:
    """Standard output. Made again for each command, so that it writes to the stream that is there now."""
    return Console(highlight=False)


def messages() -> Console:
    """Standard error: progress, statistics and errors, so that standard output holds the text alone."""
    return Console(stderr=True, highlight=False)


def harmless(text: str) -> str:
    """`text` with control characters made visible: what a model writes must not steer the user's terminal."""
    return text.translate(_CONTROLS)


def say(console: Console, words: str, style: str = "") -> None:
    """A line for the user, which wraps nowhere but at the edge; what is not the user's own in it is made harmless."""
    console.print(Text(harmless(words), style), soft_wrap=True)


@contextlib.contextmanager
def note(console: Console, words: str) -> Iterator[None]:
    """Show `words` on a terminal while something runs, and nothing elsewhere.

    It does not move: a spinner would take processor time from what runs, and break the progress bars that a
    download may print meanwhile.
    """
    if not console.is_terminal:
        yield
        return
    console.print(Text(words, style="dim"), end="\r", overflow="ellipsis", no_wrap=True)
    try:
        yield
    finally:
        console.control(Control((ControlType.ERASE_IN_LINE, 2), ControlType.CARRIAGE_RETURN))


def progress_bar(console: Console, *columns: ProgressColumn, **options: Any) -> Progress:
    """A bar on a terminal, gone when it ends, and nothing elsewhere. columns: what comes after the bar."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), *columns, console=console, transient=True,
        redirect_stdout=False,  # else standard output would be wrapped, and written to standard error
        **{"disable": not console.is_terminal, **options},
    )  # fmt: skip


@contextlib.contextmanager
def stages(console: Console, first: str) -> Iterator[Callable[[str, float], None]]:
    """A bar for work in stages: it is called with what is being done, and with the share of it that is done."""
    with progress_bar(console, TimeElapsedColumn(), refresh_per_second=2) as bar:
        task = bar.add_task(first, total=1.0)
        yield lambda what, share: bar.update(task, description=harmless(what), completed=share)


def table_of(
    *columns: str, left: Collection[str] = ("",), whole: Collection[str] = (), rows: Iterable[Sequence[object]] = ()
) -> Table:
    """A table with a line under its head; columns not in `left` are set at the right, those in `whole` never wrap.

    rows: of cells; what is no `Text` is shown as the text it is, without markup and control characters.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=name in whole)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(harmless(str(cell))) for cell in row))
    return table


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Names and values, side by side."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in facts:
        table.add_row(harmless(name), Text(harmless(value)))
    return table


def for_stdout(text: str) -> str:
    """`text` as it is, or harmless if standard output is a terminal."""
    return harmless(text) if sys.stdout.isatty() else text


def print_error(error: HeadstartError) -> None:
    """Two lines on standard error, in colour on a terminal: what is wrong, and what to do about it."""
    console = messages()
    console.print(Text.assemble(("error: ", "bold red"), harmless(_as_flags(error.message))), soft_wrap=True)
    console.print(Text.assemble(("hint: ", "bold cyan"), harmless(_as_flags(error.hint))), soft_wrap=True)


def _as_flags(text: str) -> str:
    """`text` with the options that Python knows as `max_length` named as the running command does: `--max-model-len`.

    A field whose name is one word, such as `layers`, is an option only where a value follows it.
    """
    flags = _FLAGS.get()

    def flag(found: re.Match[str]) -> str:
        name, equals = found.groups()
        return flags[name] + equals if name in flags and ("_" in name or equals) else found[0]

    return _NAME.sub(flag, text)


@contextlib.contextmanager
def _compiling(what: str) -> Iterator[None]:
    """A bar while something is compiled, with the time it has taken; on a terminal alone."""
    with progress_bar(messages(), TimeElapsedColumn(), refresh_per_second=2) as bar:
        bar.add_task(what, total=None)
        yield


@contextlib.contextmanager
def unechoed() -> Iterator[None]:
    """What is typed meanwhile does not write over a bar; it is kept for who reads next. The input is a terminal."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = termios.tcgetattr(descriptor)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


@contextlib.contextmanager
def reported(show_traceback: bool, flags: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Run a command's body; turn the errors a user can cause into messages and exit codes. flags: how the command names
    the options of the library, which messages then do too.

    Any other exception passes: it is a bug, and its traceback is the report.
    """
    shown, named = SHOWN.set(_compiling), _FLAGS.set(flags)
    try:
        yield
        sys.stdout.flush()  # a reader that has gone shows here at the latest
    except (HeadstartError, ImportError) as error:
        told = error if isinstance(error, HeadstartError) else missing(error)
        if told is None:
            raise
        if show_traceback:
            traceback.print_exc()
        print_error(told)
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # The interpreter flushes once more when it ends, and would complain then.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(PIPE_CLOSED) from None
    finally:
        SHOWN.reset(shown)
        _FLAGS.reset(named)
