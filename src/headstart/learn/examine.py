"""One answer, checked in a process of its own: `python -m headstart.learn.examine ANSWERS NUMBER REPORT SECONDS`.

The file of answers is anybody's program: it may be wrong, raise, never end, or end the process. What happened is
written to REPORT as JSON; where nothing was written, the process was ended from within.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import os
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from headstart.learn.exercises import exercise
from headstart.learn.exercises.findings import WrongAnswer

_MOST_PRINTED = 2_000
_MOST_MEMORY = 8 << 30


@dataclass(frozen=True, slots=True)
class Report:
    """What became of an answer."""

    state: str
    """passed, wrong, missing (no such function), empty (not begun), raised, endless, exited, unreadable (the file),
    broken (the check itself)."""
    say: tuple[str, ...] = ()
    """What to tell the reader."""
    line: int | None = None
    """Where in the file it happened."""
    printed: str = ""
    """What the answer printed, cut off."""


def examine(answers: Path, number: int, printed: _Kept) -> Report:
    """Load the file and check one function of it. What is not the answer's fault passes through."""
    asked = exercise(number)
    report = _load(answers)
    if isinstance(report, Report):
        return report
    answer = getattr(report, asked.name, None)
    if answer is None:
        return Report("missing", (f"there is no function {asked.name} in {answers.name}.",))
    if _is_empty(answers, asked.name):
        return Report("empty")
    try:
        findings = asked.check(answer)
    except WrongAnswer as wrong:
        return Report("wrong", (f"{wrong.message}: {wrong.hint}.",), printed=printed.getvalue())
    except (Exception, SystemExit) as error:
        line = _line(error, answers)
        if line is None:
            raise
        return Report(
            "exited" if isinstance(error, SystemExit) else "raised", (_words(error),), line, printed.getvalue()
        )
    return Report("passed" if findings.passed else "wrong", findings.say, printed=printed.getvalue())


def _load(answers: Path) -> Any:
    """The file as a module, or a report of why it cannot be one."""
    spec = importlib.util.spec_from_file_location("answers", answers)
    assert spec is not None, "the file has a name"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules["answers"] = module
    sys.path.insert(0, str(answers.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        mine = error.filename is None or Path(error.filename) == answers
        return Report("unreadable", (f"Python cannot read it: {error.msg}.",), error.lineno if mine else None)
    except (Exception, SystemExit) as error:
        say = "it ends the program while it is loaded" if isinstance(error, SystemExit) else _words(error)
        return Report("unreadable", (say,), _line(error, answers))
    return module


def _is_empty(answers: Path, name: str) -> bool:
    """Whether the function is as in the starter: a docstring and `...`, or `pass`."""
    for node in ast.parse(answers.read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return all(
                isinstance(each, ast.Pass) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
                for each in node.body
            )
    return False


def _words(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "it ends the program"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def _line(error: BaseException, answers: Path) -> int | None:
    """The innermost line of the file that the error came through."""
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if Path(each.filename) == answers]
    return lines[-1] if lines else None


class _Kept(io.TextIOBase):
    """Standard output that keeps the beginning and drops the rest."""

    def __init__(self) -> None:
        self._text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if len(self._text) < _MOST_PRINTED:
            self._text += text[: _MOST_PRINTED - len(self._text)]
        return len(text)

    def getvalue(self) -> str:
        return self._text


def _watch(seconds: float, answers: Path, report: Path, printed: _Kept) -> threading.Event:
    """End the process after so many seconds with the line it was at; unless the event is set before."""
    done, main = threading.Event(), threading.main_thread().ident

    def wait() -> None:
        if done.wait(seconds):
            return
        frame: FrameType | None = sys._current_frames().get(main or 0)
        while frame is not None and Path(frame.f_code.co_filename) != answers:
            frame = frame.f_back
        say = (f"it had not ended after {seconds:g} seconds.",)
        _write(Report("endless", say, frame.f_lineno if frame else None, printed.getvalue()), report)
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
    return done


def _limit_memory() -> None:
    """So that an answer which grows without end fails by itself, and not with the machine."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = _MOST_MEMORY if hard == resource.RLIM_INFINITY else min(_MOST_MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _write(report: Report, file: Path) -> None:
    file.write_text(json.dumps(asdict(report)), encoding="utf-8")


def main(arguments: list[str]) -> None:
    """The process."""
    answers, number, report, seconds = Path(arguments[0]), int(arguments[1]), Path(arguments[2]), float(arguments[3])
    _limit_memory()
    printed = _Kept()
    done = _watch(seconds, answers, report, printed)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            found = examine(answers, number, printed)
        except Exception:
            found = Report("broken", (traceback.format_exc(),))
    done.set()
    _write(found, report)
    sys.stdout.flush()
    os._exit(0)  # threads that the answer has left behind must not hold the process


if __name__ == "__main__":
    main(sys.argv[1:])
