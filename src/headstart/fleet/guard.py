"""The guard of one child: runs its command in a process group of its own, and ends that group when the parent is gone.

Run as a script by `processes`, in a fresh Python without site-packages: ``python -I -S guard.py GRACE COMMAND...``.
Standard input is a socket that the parent holds open. It is written to once (the id of the group) and never read for
content: when the other end closes, because the parent asked for the end or because it died (even by SIGKILL, which no
parent can act upon), the group gets SIGTERM, and killed after GRACE seconds. The same happens when the command ends
and leaves processes behind. The guard ends last, with the command's exit status.

On Linux the guard also adopts orphans among its descendants, so that those which left the group are ended too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_PARENT = 0
"""The file descriptor of the socket to the parent."""
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    grace, command = float(sys.argv[1]), sys.argv[2:]
    _adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _pass)  # a handler, unlike SIG_IGN, is not inherited by the command
    wake = _wakes_at_a_childs_end()
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    with contextlib.suppress(OSError):  # a parent that is gone already
        os.write(_PARENT, f"{child.pid}\n".encode())
    while child.poll() is None:
        readable, _, _ = select.select([_PARENT, wake], [], [])
        if wake in readable:
            os.read(wake, 64)
        if _PARENT in readable:
            break
    _end(child, grace)
    status = child.wait()
    return status if status >= 0 else 128 - status


def _end(child: subprocess.Popen[bytes], grace: float) -> None:
    """Ask the group to end, wait up to `grace` seconds, and kill whoever is left of it, or left it."""
    _signal(child.pid, signal.SIGTERM)
    until = time.monotonic() + grace
    while time.monotonic() < until and _members(child):
        time.sleep(0.02)
    if _members(child):
        _signal(child.pid, signal.SIGKILL)
    child.wait()
    while adopted := _children():
        for pid in adopted:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.01)


def _members(child: subprocess.Popen[bytes]) -> bool:
    """Whether the group still has a process. The dead are reaped first: until then they count as members."""
    if child.poll() is not None:
        _reap()
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so where only zombies are left
        return child.returncode is None
    return True


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _reap() -> None:
    """Forget adopted processes that have ended; only called once the command itself has been waited for."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _children() -> list[int]:
    """The guard's own children, adopted ones too; none where the system does not list them."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8").split()]
    except OSError:
        return []


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wakes_at_a_childs_end() -> int:
    """A file descriptor that becomes readable when a child ends."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _pass)
    return read


def _pass(_number: int, _frame: object) -> None:
    """Do nothing; the wakeup descriptor has been written to."""


if __name__ == "__main__":
    sys.exit(main())
