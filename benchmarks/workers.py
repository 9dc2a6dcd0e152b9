"""A worker is one engine in a process of its own, in its own environment, that waits stopped until it is its turn."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configurations import WITH_DRAFT, WITH_HEAD, Absent, Configuration, Places, last_line

PATIENCE = 1800.0
"""Seconds for one answer: some engines compile at their first call."""


@dataclass(frozen=True)
class Sample:
    """One call: the new tokens of each prompt, seconds, and target forwards where the engine tells."""

    tokens: tuple[tuple[int, ...], ...]
    seconds: float
    forwards: int | None = None

    @property
    def new_tokens(self) -> int:
        return sum(map(len, self.tokens))


class Worker:
    """A started engine. It runs only inside `turn`; otherwise its whole process group is stopped.

    Raises Absent where the engine does not start, fails, or gives another number of tokens than was asked for.
    """

    def __init__(self, command: Sequence[str], options: dict[str, Any], environment: dict[str, str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._process = subprocess.Popen(
            [*command, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,  # a process group of its own, children included
        )
        self._rest = b""
        try:
            self.facts: dict[str, Any] = self._answer()["ready"]
        except BaseException:
            self.stop()
            raise
        self._signal(signal.SIGSTOP)

    def complete(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Sample:
        with self.turn():
            self._send({"prompts": [list(p) for p in prompts], "new_tokens": new_tokens})
            answer = self._answer()
        tokens = tuple(map(tuple, answer["tokens"]))
        if [len(t) for t in tokens] != [new_tokens] * len(prompts):
            raise Absent(f"gave {[len(t) for t in tokens]} tokens where {new_tokens} for each prompt were asked for")
        return Sample(tokens, answer["seconds"], answer.get("forwards"))

    def forward(self, rows: int, context: int, kept: int = 0) -> float:
        """Seconds of one forward of so many rows after so many cached tokens. kept: rows that are cached after it."""
        with self.turn():
            self._send({"rows": rows, "context": context, "kept": kept})
            return float(self._answer()["seconds"])

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def memory(self) -> int:
        """Bytes of memory that its processes use, mapped files included: weights may be read from these."""
        return sum(map(resident_bytes, self._members()))

    def stop(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _members(self) -> list[int]:
        numbers = [int(p.name) for p in Path("/proc").glob("[0-9]*")]
        found = []
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(number) == self._process.pid:
                    found.append(number)
        return found

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Absent(self._ending()) from None

    def _answer(self) -> dict[str, Any]:
        line = self._line()
        try:
            answer = json.loads(line)
        except ValueError:
            raise Absent(f"answered {line[:80]!r}, which is not JSON") from None
        if "error" in answer:
            raise Absent(str(answer["error"]))
        return dict(answer)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(PATIENCE):
                    raise Absent(f"no answer in {PATIENCE:.0f} s")
                piece = os.read(self._process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise Absent(self._ending())
                self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ending(self) -> str:
        code = self._process.wait()
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        self._log.seek(0)
        return f"{how}: {last_line(self._log.read().decode(errors='replace'))}"


def resident_bytes(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def available_bytes() -> int:
    """Memory that can be had now."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


@dataclass(frozen=True)
class Starter:
    """Starts the worker of a configuration. context: tokens that a prompt and its completion may have."""

    places: Places
    threads: int
    context: int
    batch: int

    def start(self, configuration: Configuration) -> Worker:
        engine, places = configuration.engine, self.places
        python = places.python(engine)
        settings = dict(configuration.settings)
        draft_precision = settings.pop("draft_precision", configuration.precision)
        draft = places.drafter if configuration.mode in WITH_DRAFT else None
        eagle = places.eagle if configuration.mode in WITH_HEAD else None
        if draft is None and configuration.mode in WITH_DRAFT:
            raise Absent("no draft LM under --drafter")
        if eagle is None and configuration.mode in WITH_HEAD:
            raise Absent("no EAGLE-3 head under --eagle")
        options = {
            "target": str(places.checkpoint(engine, places.target, configuration.precision)),
            "drafter": None if draft is None else str(places.checkpoint(engine, draft, draft_precision)),
            "eagle": None if eagle is None else str(places.checkpoint(engine, eagle, draft_precision, head=True)),
            "precision": configuration.precision,
            "mode": configuration.mode,
            "threads": self.threads,
            "context": self.context,
            "batch": self.batch if configuration.batched else 1,
            **settings,
        }
        # No hub: the checkpoints are here. The thread count is the same on all sides.
        more = {"OMP_NUM_THREADS": str(self.threads), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        return Worker([str(python), str(places.script(engine))], options, {**os.environ, **more})
