"""`check`: a file of answers, each exercise in a process of its own with a limit of time, and how often each failed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import TypeAdapter

from headstart.base.errors import InvalidOption
from headstart.base.files import cache_directory, replacing
from headstart.learn.examine import Report
from headstart.learn.exercises import EXERCISES, Exercise

SECONDS = 10.0
_TRIED = ("wrong", "raised", "endless", "exited")
_TO_END = 5.0  # seconds beyond the limit that a process gets to write its report; starting takes the most of them


@dataclass(frozen=True, slots=True)
class Checked:
    """An exercise, and what became of the answer to it."""

    exercise: Exercise
    report: Report
    failures: int
    """Runs in a row, with this one, in which the answer was there and did not pass."""

    @property
    def passed(self) -> bool:
        return self.report.state == "passed"

    @property
    def hints(self) -> tuple[str, ...]:
        """As many as the reader has earned by trying."""
        return self.exercise.hints[: self.failures] if self.report.state in _TRIED else ()


def check(answers: Path, *, seconds: float = SECONDS) -> list[Checked]:
    """Check every exercise of a file, which is run as a program of the user's own.

    Where the file itself cannot be loaded the first exercise alone is reported.

    Raises:
        InvalidOption: there is no such file, or it is no Python file.
    """
    if answers.suffix != ".py":
        raise InvalidOption(f"{answers} is no Python file", hint="headstart learn --start answers.py makes one")
    if not answers.is_file():
        raise InvalidOption(f"there is no file {answers}", hint=f"headstart learn --start {answers} makes one")
    attempts = _Attempts(answers.resolve())
    results = []
    for exercise in EXERCISES:
        report = _examined(answers.resolve(), exercise, seconds)
        results.append(Checked(exercise, report, attempts.note(exercise.number, report.state)))
        if report.state == "unreadable":
            break
    attempts.keep()
    return results


def _examined(answers: Path, exercise: Exercise, seconds: float) -> Report:
    """The report of a process of its own; one is made for it where it wrote none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        arguments = map(str, (answers, exercise.number, file, seconds))
        command = [sys.executable, "-P", "-m", "headstart.learn.examine", *arguments]
        # one thread: the sums are small, and each thread of a numeric library takes memory that is limited
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=environment, start_new_session=True,
        )  # fmt: skip
        errors, ended = b"", False
        try:
            _, errors = process.communicate(timeout=seconds + _TO_END)
            ended = True
        except subprocess.TimeoutExpired:
            pass  # said below
        finally:
            _end(process)
        if file.is_file():
            report = TypeAdapter(Report).validate_json(file.read_bytes())
            if report.state == "broken":
                raise RuntimeError(f"the check itself failed, which no answer should bring about:\n{report.say[0]}")
            return report
    if not ended:
        return Report("endless", (f"it had not ended after {seconds:g} seconds.",))
    last = errors.decode(errors="replace").strip().splitlines()[-1:]
    return Report("exited", (f"it ended the program, with exit code {process.returncode}.", *last))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started, and read the rest of what it wrote."""
    with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:  # Windows, which has no process groups
            for each in psutil.Process(process.pid).children(recursive=True):
                each.kill()
            process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


class _Attempts:
    """How often in a row each exercise of a file failed, kept between runs if anything can be kept."""

    def __init__(self, answers: Path) -> None:
        self._file = cache_directory("learn") / "attempts.json"
        self._key = str(answers)
        self._all: dict[str, dict[str, int]] = {}
        with contextlib.suppress(OSError, ValueError):
            self._all = TypeAdapter(dict[str, dict[str, int]]).validate_json(self._file.read_bytes())
        self._mine = self._all.get(self._key, {})

    def note(self, number: int, state: str) -> int:
        """Count a run; returns the number of failures in a row."""
        key = str(number)
        if state == "passed":
            self._mine.pop(key, None)
        elif state in _TRIED:
            self._mine[key] = self._mine.get(key, 0) + 1
        return self._mine.get(key, 0)

    def keep(self) -> None:
        self._all[self._key] = self._mine
        with contextlib.suppress(OSError), replacing(self._file) as new:
            new.write_text(json.dumps(self._all), encoding="utf-8")
