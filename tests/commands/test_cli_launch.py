"""`headstart launch` as a user runs it, with fake engines: it starts, says where, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from support.fleets import fake_export, fake_installation, free_port

UNCHECKED = ["--no-parity", "--no-audit"]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """An export, and the folder of an environment."""
    fake_installation(tmp_path / "env")
    return fake_export(tmp_path / "out"), tmp_path / "env"


def started(*words: object, **environment: str) -> subprocess.Popen[str]:
    source = str(Path(__file__).parents[2] / "src")
    env = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **environment}
    return subprocess.Popen(
        [sys.executable, "-m", "headstart", "launch", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip


@pytest.fixture
def running(places: tuple[Path, Path]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command once its fleet answers, and the port."""
    export, env = places
    port = free_port()
    with started(export, "--vllm", env, "--port", port, *UNCHECKED) as process:
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            try:
                if httpx2.get(f"http://127.0.0.1:{port}/readiness").status_code == 200:
                    break
            except httpx2.HTTPError:
                time.sleep(0.05)
        yield process, port
        process.kill()


def silent(port: int, seconds: float = 20.0) -> bool:
    """Whether nothing answers at a port any more, within so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            httpx2.get(f"http://127.0.0.1:{port}/health")
        except httpx2.HTTPError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_every_signal_ends_every_process(running: tuple[subprocess.Popen[str], int], number: signal.Signals) -> None:
    process, port = running
    assert process.stderr is not None
    said = ""
    while "Ctrl-C ends it" not in said:  # a signal before this line would find it starting
        said += process.stderr.readline()
    process.send_signal(number)
    assert process.stdout is not None
    text = process.stdout.read()
    process.wait(30)
    assert f"http://127.0.0.1:{port}/v1" in text
    assert all(silent(each) for each in (port, port + 1, port + 2))
    if number is not signal.SIGKILL:
        assert process.returncode == 0, said
        assert "answers: one greedy text, the same from engine-0, engine-1, and through the router" in said
        assert f"http://127.0.0.1:{port + 2}" in text
        assert "engine-1.log" in text


def test_an_engine_that_dies_is_quoted_without_a_stack_trace(places: tuple[Path, Path]) -> None:
    export, env = places
    with started(export, "--vllm", env, "--port", free_port(), FAKE_VLLM="dies") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "error: engine-" in said
    assert "ValueError: planted" in said
    assert "hint: the whole log is " in said
    assert "Traceback" not in said


def test_check_only_stops_with_an_exit_code(places: tuple[Path, Path]) -> None:
    export, env = places
    port = free_port()
    with started(export, "--vllm", env, "--port", port, "--check-only", *UNCHECKED) as process:
        text, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert text == ""
    assert silent(port)
