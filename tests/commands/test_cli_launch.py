"""`headstart launch` as a user runs it, with fake engines: it starts, says where, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleets import fake_export, fake_installation, free_port
from typer.testing import CliRunner

from headstart.base.errors import CheckFailed
from headstart.commands.cli import app
from headstart.fleet.http import answers

UNCHECKED = ["--no-parity", "--no-audit"]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """An export, and the folder of an environment."""
    fake_installation(tmp_path / "env")
    return fake_export(tmp_path / "out"), tmp_path / "env"


@pytest.fixture
def running(places: tuple[Path, Path]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command with one engine once it says that it runs, and the port."""
    export, env = places
    port = free_port()
    source = str(Path(__file__).parents[2] / "src")
    words = ["launch", export, "--vllm", env, "--port", port, "--engines", 1, *UNCHECKED]
    with subprocess.Popen(
        [sys.executable, "-m", "headstart", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        said = ""
        while "Ctrl-C ends it" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        assert "answers: one greedy text, the same from engine-0, and through the router" in said
        yield process, port
        process.kill()


def silent(port: int) -> bool:
    """Whether nothing answers at a port any more, a while from now at the latest."""
    return any(not answers(f"http://127.0.0.1:{port}", "/health") or bool(time.sleep(0.05)) for _ in range(200))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_every_signal_ends_every_process(running: tuple[subprocess.Popen[str], int], number: signal.Signals) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("this process was started without this signal, and so are its children")
    process, port = running
    process.send_signal(number)
    assert process.stdout is not None
    text = process.stdout.read()
    process.wait(30)
    assert f"http://127.0.0.1:{port}/v1" in text
    assert f"http://127.0.0.1:{port + 1}" in text
    assert "engine-0.log" in text
    assert silent(port)
    assert silent(port + 1)
    assert process.returncode == (-number if number is signal.SIGKILL else 0)


def test_an_engine_that_dies_is_quoted_without_a_stack_trace(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    export, env = places
    monkeypatch.setenv("FAKE_VLLM", "dies")
    run = CliRunner().invoke(app, ["launch", str(export), "--vllm", str(env), "--port", str(free_port())])
    assert run.exit_code == 2
    assert re.search(r"error: engine-\d ended with exit code 1; the last lines of its log:\n", run.stderr)
    assert "ValueError: planted" in run.stderr
    assert "hint: the whole log is " in run.stderr
    assert "Traceback" not in run.stderr


def test_check_only_stops_with_an_exit_code(places: tuple[Path, Path]) -> None:
    export, env = places
    line = ["launch", str(export), "--vllm", str(env), "--check-only", "--engines", "1", *UNCHECKED]
    port = free_port()
    run = CliRunner().invoke(app, [*line, "--port", str(port)])
    assert run.exit_code == 0, run.stderr
    assert run.stdout == ""
    assert silent(port)


def test_a_failed_check_has_an_exit_code_of_its_own(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise CheckFailed("planted", hint="none")

    monkeypatch.setattr("headstart.fleet.launch.checks.Checks.through_router", refused)
    export, env = places
    port = free_port()
    line = ["launch", str(export), "--vllm", str(env), "--engines", "1", "--port", str(port), *UNCHECKED]
    run = CliRunner().invoke(app, line)
    assert run.exit_code == 1
    assert "error: planted" in run.stderr
    assert silent(port)
