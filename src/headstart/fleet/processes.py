"""Child processes that never outlive their parent: servers of other projects, started, waited for and ended.

Each child runs under a `guard` in a process group of its own, and writes to a log of its own. Leaving the ``with`` ends
every group; if the parent dies first, by whatever signal, the guards end the groups by themselves.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from headstart.base.errors import InvalidOption, ServerFailed

GRACE = 15.0
"""Seconds between the request to end and the kill. A vLLM server takes a few to finish what it has begun."""
POLL = 0.1
"""Seconds between two looks at a server that starts."""

_GUARD = Path(__file__).with_name("guard.py")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ERROR = re.compile(r"^(?!.*\b(?:WARNING|INFO)\b).*?\b([A-Z]\w*(?:Error|Exception): .*)$", re.MULTILINE)
_LONGEST_TAIL, _LONGEST_LOG = 1 << 16, 1 << 24
"""Bytes of a log that are read for its last lines, and to find an error in it."""


@dataclass
class Child:
    """One process with all that it starts. `log` is what they write, standard output and errors together."""

    name: str
    command: tuple[str, ...]
    log: Path
    _guard: subprocess.Popen[bytes] = field(repr=False)
    _lifeline: socket.socket = field(repr=False)
    _grace: float = field(repr=False)
    _log_start: int = field(repr=False)
    stopping: bool = field(default=False, init=False)
    """Whether it was asked to end."""

    @property
    def alive(self) -> bool:
        """Whether the process, or something that it left behind, still runs."""
        return self._guard.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit status of the command: None while it runs, 128 + n if signal n ended it, as shells count."""
        return self._guard.poll()

    def tail(self, lines: int = 20) -> str:
        """The last lines of the log, from this start on, without colours and without empty lines at the end."""
        return "\n".join(self._log_text(_LONGEST_TAIL).split("\n")[-lines:])

    def first_error(self) -> str:
        """The first line of the log that names an error, from the error's name on; empty if none does.

        A server of several processes ends with "see above" where one of them has failed.
        """
        found = _ERROR.search(self._log_text(_LONGEST_LOG))
        return "" if found is None else found[1]

    def _log_text(self, most: int) -> str:
        """The log's last `most` bytes as text, from this start on."""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, size - most))
            text = file.read().decode("utf-8", "replace")
        return _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n").rstrip()

    def ending(self) -> str:
        """How the command ended, in words."""
        status = self.returncode
        if status is None:
            return "runs"
        if status > 128:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(status - 128).name}"
        return f"ended with exit code {status}"

    def failure(self) -> ServerFailed:
        """The error that says how it ended, and the last lines of its log."""
        lines, error = self.tail(12), self.first_error()
        last = f"; the last lines of its log:\n{lines}" if lines else ", and wrote nothing"
        if error and error not in lines:
            last += f"\nthe first error in its log:\n{error}"
        return ServerFailed(f"{self.name} {self.ending()}{last}", hint=f"the whole log is {self.log}")

    def stop(self) -> None:
        """End the process and all that it started: asked first, killed after the grace. May be called again."""
        self.request_stop()
        try:
            self._guard.wait(self._grace + 10.0)
        except subprocess.TimeoutExpired:  # a guard that was itself stopped or starved
            self._guard.kill()
            self._guard.wait()
        self._bury()

    def request_stop(self) -> None:
        """Ask for the end and do not wait for it; `stop` waits."""
        self.stopping = True
        with contextlib.suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)

    def _bury(self) -> None:
        """Kill the group if its guard was killed and could not, and close what was open."""
        if self._lifeline.fileno() < 0:
            return
        if self._guard.returncode < 0:
            with contextlib.suppress(OSError, ValueError):
                self._lifeline.settimeout(0.0)
                os.killpg(int(self._lifeline.recv(32)), signal.SIGKILL)
        self._lifeline.close()


class Children:
    """The children of one ``with``: ``with Children(logs) as children: child = children.start("engine-0", [...])``.

    logs: the folder of the logs, NAME.log each; it is made. grace: seconds between the request to end and the kill.
    """

    def __init__(self, logs: Path, *, grace: float = GRACE) -> None:
        self.logs = logs
        self._grace = grace
        self._children: list[Child] = []

    def __enter__(self) -> Children:
        if not hasattr(os, "killpg"):
            raise InvalidOption(
                "servers are started and ended as process groups, which Windows does not have",
                hint="run this command in WSL; the servers, vLLM's for example, run on Linux only",
            )
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> Child:
        """Start a command. env: its whole environment; without it, that of this process.

        A log of that name goes on where it ended, so that what a child wrote before it was started again is kept.

        Raises:
            InvalidOption: a name that makes no file name, or one that a running child has.
        """
        if not _NAME.fullmatch(name):
            raise InvalidOption(f"{name!r} is no name for a child", hint="use letters, digits, '.', '_' and '-'")
        if any(child.name == name and child.alive for child in self._children):
            raise InvalidOption(f"a child named {name!r} runs already", hint="stop it first, or use another name")
        words = tuple(str(word) for word in command)
        log = self.logs / f"{name}.log"
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as output:
            guard = _started(words, output, theirs, env, self._grace)
            child = Child(name, words, log, guard, ours, self._grace, _log_start=output.tell())
        self._children = [each for each in self._children if each.alive] + [child]
        return child

    def wait(
        self,
        several: Sequence[tuple[Child, Callable[[], bool]]],
        *,
        seconds: float,
        progress: Callable[[Child, float, str | None], object] = lambda *_: None,
    ) -> None:
        """Wait until each child is ready, which the function beside it tells.

        progress: called for each that is still waited for with the seconds so far and the last line of its log, and
            once with None in place of a line when it is ready.

        Raises:
            ServerFailed: a child ended first, or was not ready within so many seconds (it is stopped then).
        """
        begun = time.monotonic()
        waiting = list(several)
        while waiting:
            passed = time.monotonic() - begun
            for child, ready in list(waiting):
                if ready():
                    waiting.remove((child, ready))
                    progress(child, passed, None)
                    continue
                if not child.alive:
                    raise child.failure()
                if passed > seconds:
                    raise _late(child, passed)
                progress(child, passed, child.tail(1))
            time.sleep(POLL if waiting else 0.0)

    def check(self) -> None:
        """Raise `ServerFailed` for the first child that ended without having been asked to."""
        for child in self._children:
            if not (child.alive or child.stopping):
                raise child.failure()

    def stop(self) -> None:
        """End all of them: every one is asked before the first is waited for."""
        for child in self._children:
            child.request_stop()
        for child in self._children:
            child.stop()
        self._children.clear()


def _late(child: Child, seconds: float) -> ServerFailed:
    """The error for a child that was not ready in time; it is stopped."""
    last = child.tail(12) or "nothing"
    child.stop()
    return ServerFailed(
        f"{child.name} was not ready after {seconds:.0f} seconds; its log ends with:\n{last}",
        hint=f"allow it more time, or look into {child.log}",
    )


def _started(
    command: tuple[str, ...], output: IO[bytes], lifeline: socket.socket, env: Mapping[str, str] | None, grace: float
) -> subprocess.Popen[bytes]:
    """The guard, away from the terminal's group: Ctrl-C reaches the parent alone, which then ends its children."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_GUARD), str(grace), *command],
        stdin=lifeline.fileno(), stdout=output, stderr=subprocess.STDOUT, env=env, process_group=0,
    )  # fmt: skip
