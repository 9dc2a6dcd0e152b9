"""`headstart learn`: the lessons in the browser, and the exercises that are written in Python."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from headstart.base.errors import InvalidOption
from headstart.base.files import cache_directory, write_text
from headstart.base.options import option
from headstart.commands.options import command
from headstart.commands.terminal import messages, note, output, say

if TYPE_CHECKING:
    from headstart.learn.check import Checked

NOT_ALL_PASSED = 1
_PAGE, _PYTHON = "The page", "Exercises in Python"
_STATES = {
    "passed": ("passed", "bold green"),
    "wrong": ("not yet", "bold yellow"),
    "missing": ("missing", "bold yellow"),
    "empty": ("not begun", "dim"),
    "raised": ("raises", "bold red"),
    "endless": ("endless", "bold red"),
    "exited": ("ends the program", "bold red"),
    "unreadable": ("cannot be loaded", "bold red"),
}


@command()
def learn(
    *,
    html: Path | None = option(None, "Write the page to this file, and do not open it.", panel=_PAGE),
    no_open: bool = option(False, "Only print where the page is.", panel=_PAGE),
    start: Path | None = option(None, "Write a Python file with the four exercises to fill in.", panel=_PYTHON),
    check: Path | None = option(None, "Check such a file. It runs as any other program of yours.", panel=_PYTHON),
    solution: int | None = option(None, "Show the solution of this exercise (1 to 4).", panel=_PYTHON),
) -> None:
    """Learn speculative decoding: open the lessons in the browser. They need no network and no model.

    Four exercises are written in Python: expected tokens a round, the corrected distribution, a draft length that
    adapts, and a verifier of your own, which is proved or refuted by exact enumeration. A check that fails prints a
    hint, and another one after the next try. The exit code of --check is 0 if all four pass, and 1 otherwise.

    **Examples**

        headstart learn
        headstart learn --html lessons.html
        headstart learn --start answers.py
        headstart learn --check answers.py
        headstart learn --solution 2
    """
    chosen = [
        name
        for name, value in (("--html", html), ("--start", start), ("--check", check), ("--solution", solution))
        if value is not None
    ]
    if len(chosen) > 1:
        raise InvalidOption(f"{' and '.join(chosen)} do not go together", hint="give one of them")
    if no_open and chosen and html is None:
        raise InvalidOption(f"--no-open and {chosen[0]} do not go together", hint="--no-open is for the page")
    if start is not None:
        _start(start)
    elif check is not None:
        _check(check)
    elif solution is not None:
        _solution(solution)
    else:
        _page(html, opened=not no_open)


def _page(html: Path | None, *, opened: bool) -> None:
    """Write the page where it was asked for, or where it can be found again, and open it."""
    from headstart.learn.pages.lessons import lessons_page

    page = lessons_page()
    if html is not None:
        write_text(html, page)
        say(messages(), f"wrote {html}")
        return
    file = cache_directory("learn") / "lessons.html"  # the same place each time: browsers keep progress by address
    try:
        write_text(file, page)
    except InvalidOption:
        file = Path(tempfile.mkdtemp(prefix="headstart-")) / "lessons.html"
        write_text(file, page)
    shown = opened and webbrowser.open(file.as_uri())
    if shown:
        messages().print("The lessons are open in your browser.")
    elif opened:
        messages().print("No browser could be opened. Open this file in one:")
    print(file)


def _start(file: Path) -> None:
    from headstart.learn.exercises import starter

    if file.suffix != ".py":
        raise InvalidOption(f"{file} is no Python file", hint="give it a name that ends in .py")
    if file.exists():
        raise InvalidOption(f"{file} is there already", hint="name another file, or remove it first")
    write_text(file, starter())
    say(messages(), f"wrote {file}; when you have filled something in: headstart learn --check {file}")


def _check(file: Path) -> None:
    from headstart.learn.check import check

    with note(messages(), "checking …"):
        results = check(file)
    console = output()
    for each in results:
        _show(console, file, each)
    passed = sum(each.passed for each in results)
    if results[-1].report.state != "unreadable":
        console.print(Text(f"{passed} of {len(results)} passed."))
    if passed < len(results):
        raise typer.Exit(NOT_ALL_PASSED)


def _show(console: Console, file: Path, checked: Checked) -> None:
    exercise, report = checked.exercise, checked.report
    words, style = _STATES[report.state]
    if report.state == "unreadable":
        console.print(Text.assemble((f"{file.name}", "bold"), "  ", (words, style)))
    else:
        console.print(Text.assemble((f"{exercise.number}  {exercise.title}", "bold"), "  ", (words, style)))
    if report.line is not None:
        _line(console, f"line {report.line}: {_source(file, report.line)}")
    for line in report.say:
        _line(console, line)
    if not checked.passed and report.printed:
        _line(console, "It printed:")
        for line in report.printed.splitlines()[:12]:
            _line(console, f"  {line}")
    for hint in checked.hints:
        console.print(Text.assemble("   ", ("hint: ", "bold cyan"), hint), soft_wrap=True)
    if checked.failures > len(exercise.hints):
        _line(console, f"headstart learn --solution {exercise.number} shows a solution.")
    console.print()


def _line(console: Console, words: str) -> None:
    say(console, f"   {words}".rstrip())


def _source(file: Path, line: int) -> str:
    """The line as the reader wrote it."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[line - 1].strip() if line <= len(lines) else ""


def _solution(number: int) -> None:
    from headstart.learn.exercises import exercise

    chosen = exercise(number)
    print(f"# Exercise {chosen.number}: {chosen.title}\n#\n# {chosen.why}\n\n{chosen.source}", end="")
