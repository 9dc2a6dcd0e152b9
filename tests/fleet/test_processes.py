"""No process outlives its parent, however either ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.base.errors import InvalidOption, ServerFailed
from headstart.fleet.processes import Children

PYTHON = [sys.executable, "-I", "-S", "-c"]
SLEEPS = "import time; time.sleep(60)"
FAMILY = """
import os, subprocess, sys, time, signal
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeps = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
children = [subprocess.Popen(sleeps, start_new_session=away) for away in (False, True)]
open(sys.argv[1], "w").write(" ".join(str(pid) for pid in [os.getpid(), *(child.pid for child in children)]))
if sys.argv[2] == "dies":
    sys.exit(3)
time.sleep(60)
"""
"""A process with a child in its group and one that has left it; the ids of all three stand in the file."""


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ids(file: Path) -> list[int]:
    until(lambda: file.exists() and len(file.read_text().split()) == 3)
    return [int(word) for word in file.read_text().split()]


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tests look for processes in /proc")


def test_a_child_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        words = "for i in range(30): print('line', i)\nraise SystemExit(3)"
        child = children.start("engine-0", [*PYTHON, words])
        with pytest.raises(ServerFailed, match="engine-0 ended with exit code 3") as failed:
            children.wait([(child, lambda: False)], seconds=30)
        assert "line 29" in failed.value.message
        assert "line 2\n" not in failed.value.message
        assert str(child.log) in failed.value.hint
        with pytest.raises(ServerFailed):
            children.check()


def test_the_first_error_is_quoted_where_the_last_lines_do_not_have_it(tmp_path: Path) -> None:
    """As vLLM ends: the process that failed has said why long before the last line."""
    lines = ["INFO no ValueError: here", "(EngineCore pid=7) ERROR [core.py:9] ValueError: no room", *["..."] * 20]
    words = f"print(*{[*lines, 'RuntimeError: see above']!r}, sep=chr(10)); raise SystemExit(1)"
    with Children(tmp_path) as children:
        child = children.start("engine-0", [*PYTHON, words])
        with pytest.raises(ServerFailed, match=r"see above\nthe first error in its log:\nValueError: no room\n"):
            children.wait([(child, lambda: False)], seconds=30)


def test_a_child_killed_by_a_signal_is_reported_so(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("engine-0", [*PYTHON, "import os; os.kill(os.getpid(), 9)"])
        with pytest.raises(ServerFailed, match="was ended by SIGKILL, and wrote nothing"):
            children.wait([(child, lambda: False)], seconds=30)


def test_a_command_that_does_not_exist_says_so(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("router", ["/no/such/program"])
        with pytest.raises(ServerFailed, match=r"cannot run /no/such/program: No such file"):
            children.wait([(child, lambda: False)], seconds=30)


def test_a_child_that_never_answers_is_stopped(tmp_path: Path) -> None:
    seen: list[str | None] = []
    with Children(tmp_path) as children:
        child = children.start("engine-0", [*PYTHON, f"print('\\x1b[31mloading\\x1b[0m', flush=True); {SLEEPS}"])
        until(lambda: child.tail(1) == "loading")
        with pytest.raises(ServerFailed, match="not ready after 0 seconds; its log ends with:\nloading"):
            children.wait(
                [(child, lambda: False)], seconds=0.2, progress=lambda _child, _seconds, line: seen.append(line)
            )
        assert not child.alive
    assert seen[-1] == "loading"


@pytest.mark.parametrize("how", ["obeys", "stubborn", "dies"])
def test_grandchildren_end_with_their_child(tmp_path: Path, how: str) -> None:
    """Those in its group, and those that have left it; whether it obeys, must be killed, or is dead already."""
    with Children(tmp_path, grace=0.3) as children:
        child = children.start("family", [*PYTHON, FAMILY, str(tmp_path / "pids"), how])
        family = ids(tmp_path / "pids")
        if how == "dies":
            until(lambda: not child.alive)
            assert child.returncode == 3
            assert not any(map(running, family))
    assert not any(map(running, family))


PARENT = """
import signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from headstart.fleet.processes import Children
with Children(Path(sys.argv[2]), grace=0.3) as children:
    children.start("family", [sys.executable, "-I", "-S", "-c", sys.argv[3], sys.argv[2] + "/pids", "stubborn"])
    if sys.argv[4] == "raises":
        while not Path(sys.argv[2] + "/pids").exists():
            time.sleep(0.02)
        time.sleep(0.1)
        raise ValueError("planted")
    time.sleep(60)
"""


@pytest.mark.parametrize("how", ["killed", "terminated", "raises"])
def test_no_process_outlives_the_parent(tmp_path: Path, how: str) -> None:
    """By SIGKILL, which nothing can catch; by SIGTERM, for which no handler is set; by an exception."""
    source = str(Path(__file__).parents[2] / "src")
    command = [sys.executable, "-c", PARENT, source, str(tmp_path), FAMILY, how]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as parent:
        family = ids(tmp_path / "pids")
        if how != "raises":
            assert all(map(running, family))
            parent.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
        parent.wait()
    until(lambda: not any(map(running, family)))


def test_a_guard_that_is_killed_takes_its_group_along(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("engine-0", [*PYTHON, f"import os; print(os.getpid(), flush=True); {SLEEPS}"])
        until(lambda: child.tail(1) != "")
        os.kill(child._guard.pid, signal.SIGKILL)
        until(lambda: not child.alive)
        child.stop()
        until(lambda: not running(int(child.tail(1))))


def test_a_stopped_child_is_no_failure_and_its_name_is_free(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        first = children.start("engine-0", [*PYTHON, f"print('first', flush=True); {SLEEPS}"])
        until(lambda: first.tail() == "first")
        with pytest.raises(InvalidOption, match="runs already"):
            children.start("engine-0", [*PYTHON, SLEEPS])
        first.stop()
        first.stop()
        children.check()
        second = children.start("engine-0", [*PYTHON, "print('second')"])
        until(lambda: not second.alive)
        assert second.tail() == "second", "what an earlier child of that name said is not its own"
        assert (tmp_path / "engine-0.log").read_text() == "first\nsecond\n"


def test_a_name_is_the_name_of_a_file(tmp_path: Path) -> None:
    with Children(tmp_path) as children, pytest.raises(InvalidOption, match="no name"):
        children.start("../engine", [*PYTHON, SLEEPS])


def test_where_there_are_no_process_groups_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "killpg")
    with pytest.raises(InvalidOption, match="Windows") as caught, Children(tmp_path / "logs"):
        pass
    assert "WSL" in caught.value.hint
