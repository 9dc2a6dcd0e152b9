"""A fleet of fake engines: it starts, serves, loses an engine, is given others, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.fleets import fake_export, fake_installation, free_port

from headstart.base.errors import EngineNotFound, InvalidOption, ServerFailed
from headstart.fleet.http import ask
from headstart.fleet.launch.checks import CheckOptions, Checks
from headstart.fleet.launch.fleet import Fleet
from headstart.fleet.processes import Child, Children
from headstart.fleet.vllm import PLUGIN, Installation


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return fake_installation(tmp_path / "env")


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return fake_export(tmp_path / "out")


@pytest.fixture
def start(installation: Installation, export: Path) -> Iterator[Callable[..., Fleet]]:
    """A fleet; after the test no server of it answers."""
    fleets: list[Fleet] = []

    def make(**options: Any) -> Fleet:
        fleets.append(Fleet.start(export, installation, **{"port": free_port(), "timeout": 30, **options}))
        return fleets[-1]

    yield make
    for fleet in fleets:
        urls = [fleet.url, *(engine.url for engine in fleet.engines)]
        fleet.stop()
        for url in urls:
            with pytest.raises(httpx2.ConnectError):
                ask("GET", url, seconds=5)


def complete(url: str, tokens: int = 2, *, stream: bool = False) -> dict[str, Any]:
    body = {"model": "fake", "prompt": "a", "max_tokens": tokens, "stream": stream}
    answer = ask("POST", f"{url}/v1/completions", json=body, seconds=30)
    answer.raise_for_status()
    return {} if stream else answer.json()


def tended(fleet: Fleet, words: str, seconds: float = 60.0) -> list[str]:
    """What was said until `words` was."""
    said: list[str] = []
    until = time.monotonic() + seconds
    while not any(words in line for line in said):
        assert time.monotonic() < until, said
        said += fleet.tend()
        time.sleep(0.02)
    return said


def test_engines_and_router_start_and_share_requests(start: Callable[..., Fleet], export: Path) -> None:
    seen: list[tuple[str, str | None]] = []
    fleet = start(engines=2, progress=lambda name, seconds, line: seen.append((name, line)))
    assert [engine.name for engine in fleet.engines] == ["engine-0", "engine-1"]
    assert fleet.engines[0].log == export / "logs" / "engine-0.log"
    assert len({complete(fleet.url)["engine"] for _ in range(4)}) == 2
    assert {name for name, line in seen if line is None} == {"engine-0", "engine-1", "router"}
    assert fleet.tend() == []
    command = fleet.engines[1].child.command
    assert command[command.index("--config") + 1] == str(export / "vllm.yaml")
    assert "--speculative-config" not in command, "the export's own stands"


def test_without_a_router_the_first_engine_has_the_port(start: Callable[..., Fleet]) -> None:
    port = free_port()
    fleet = start(engines=2, router="none", port=port)
    assert fleet.router is None
    assert fleet.url == f"http://127.0.0.1:{port}"
    assert complete(fleet.url)["choices"][0]["text"] == complete(fleet.engines[1].url)["choices"][0]["text"]
    with pytest.raises(InvalidOption, match="without a router"):
        fleet.replace(0, Path("out"))


def test_an_engine_that_dies_at_the_start_is_quoted(
    start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "dies")
    with pytest.raises(ServerFailed, match=r"(?s)engine-\d ended with exit code 1; .*ValueError: planted"):
        start()


def test_an_engine_that_never_answers_is_given_up(start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "silent")
    with pytest.raises(ServerFailed, match=r"(?s)engine-0 was not ready after .*log ends with"):
        start(timeout=0.5)


def test_a_dead_engine_leaves_and_the_other_goes_on(start: Callable[..., Fleet]) -> None:
    fleet = start(engines=2)
    os.kill(_pid(fleet, 0), signal.SIGKILL)
    said = tended(fleet, "engine-0 was ended by SIGKILL; the last lines of its log")
    assert "starting a fake vLLM" in said[0]
    assert fleet.router is not None
    assert fleet.router.engines() == (fleet.engines[1].url,)
    assert {complete(fleet.url)["engine"] for _ in range(3)} == {_pid(fleet, 1)}
    os.kill(_pid(fleet, 1), signal.SIGKILL)
    with pytest.raises(ServerFailed, match="engine-1 was ended by SIGKILL"):
        tended(fleet, "never said")


def test_a_dead_engine_is_started_again_if_asked(start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.fleet.launch.fleet._FIRST_PAUSE", 0.05)
    fleet = start(engines=1, restart=True)
    first = _pid(fleet, 0)
    os.kill(first, signal.SIGKILL)
    said = tended(fleet, "engine-0 is ready again")
    assert said[1:] == ["engine-0 is started again in 0.05 s", "engine-0 is started again", "engine-0 is ready again"]
    assert complete(fleet.url)["engine"] == _pid(fleet, 0) != first
    monkeypatch.setenv("FAKE_VLLM", "dies")
    monkeypatch.setattr("headstart.fleet.launch.fleet.MOST_RESTARTS", 2)
    os.kill(_pid(fleet, 0), signal.SIGKILL)
    with pytest.raises(ServerFailed, match=r"(?s)engine-0 ended with exit code 1.*planted"):
        tended(fleet, "never said")


def test_an_engine_that_is_started_again_is_checked_before_it_has_requests(
    start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.fleet.launch.fleet._FIRST_PAUSE", 0.05)
    checks = Checks(CheckOptions(parity=False, audit=False))
    fleet = start(engines=2, restart=True, admit=checks.admit)
    checks.through_router(fleet)
    other = _pid(fleet, 1)
    monkeypatch.setenv("FAKE_VLLM", "text=other")
    os.kill(_pid(fleet, 0), signal.SIGKILL)
    tended(fleet, "engine-0 failed its check: engine-0 writes other greedy text than the engine before it")
    assert {complete(fleet.url)["engine"] for _ in range(3)} == {other}
    monkeypatch.delenv("FAKE_VLLM")
    tended(fleet, "engine-0 is ready again")
    assert {complete(fleet.url)["engine"] for _ in range(3)} == {other, _pid(fleet, 0)}


def test_another_server_at_the_port_is_no_engine(start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be taken for one that is ready, if it took the port while the engine was still loading."""
    fleet = start(engines=1)
    engine = fleet.engines[0]
    assert engine.ready()
    monkeypatch.setattr(engine, "served", replace(engine.served, name="another"))
    assert not engine.ready()


def test_a_dead_router_ends_the_fleet(start: Callable[..., Fleet]) -> None:
    fleet = start(engines=1)
    assert fleet.router is not None
    fleet.router.child.request_stop()
    with pytest.raises(ServerFailed, match="router"):
        tended(fleet, "never said")


def test_an_engine_is_replaced_while_requests_run(
    start: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None fails: not those that begin meanwhile, and not the long one that the old engine has begun."""
    monkeypatch.setenv("FAKE_VLLM", "slow=0.02")
    fleet = start(engines=2)
    old = fleet.engines[0]
    failed: list[Exception] = []
    engines: set[int] = set()
    stop = threading.Event()

    def ask(url: str, tokens: int, *, stream: bool) -> None:
        while True:
            try:
                engines.add(complete(url, tokens, stream=stream).get("engine", 0))
            except Exception as error:
                failed.append(error)
            if stream or stop.wait(0.01):
                return

    threads = [threading.Thread(target=ask, args=(fleet.url, 3), kwargs={"stream": False}) for _ in range(2)]
    threads.append(threading.Thread(target=ask, args=(old.url, 60), kwargs={"stream": True}))
    for thread in threads:
        thread.start()
    new = fleet.replace(0, fake_export(tmp_path / "other"))
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert not old.child.alive
    assert fleet.engines[0] is new
    assert new.name == "engine-0-2"
    assert {complete(fleet.url)["engine"] for _ in range(4)} == {_pid(fleet, 0), _pid(fleet, 1)}
    assert fleet.tend() == []


def test_a_replacement_that_dies_leaves_the_old_engine(
    start: Callable[..., Fleet], export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = start(engines=1)
    monkeypatch.setenv("FAKE_VLLM", "dies")
    with pytest.raises(ServerFailed, match="engine-0-2 ended"):
        fleet.replace(0, export)
    assert complete(fleet.url)["engine"] == _pid(fleet, 0)
    assert fleet.tend() == []
    with pytest.raises(InvalidOption, match="no engine 1"):
        fleet.replace(1, export)


def test_what_is_missing_is_said_before_anything_starts(
    tmp_path: Path, export: Path, start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(EngineNotFound, match="vllm-router is not installed") as missing:
        Fleet.start(export, fake_installation(tmp_path / "bare", router=False))
    assert "--router none" in missing.value.hint
    monkeypatch.undo()
    fleet = start(engines=1)
    with pytest.raises(InvalidOption, match="cannot listen on"):
        start(port=int(fleet.url.rpartition(":")[2]))


def _pid(fleet: Fleet, place: int) -> int:
    """The process of an engine, as it says itself."""
    return int(complete(fleet.engines[place].url)["engine"])


@pytest.mark.parametrize("repair", [True, False])
def test_engines_on_a_processor_load_the_repair(
    start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repair: bool
) -> None:
    given: list[str | None] = []
    real = Children.start

    def noted(self: Children, name: str, command: list[str], **more: Any) -> Child:
        if name.startswith("engine"):
            given.append(more["env"].get("PYTHONPATH"))
        return real(self, name, command, **more)

    monkeypatch.setattr(Children, "start", noted)
    start(engines=1, logs=tmp_path / "logs", repair=repair)
    assert given == [str(tmp_path / "logs" / "repair") if repair else None]
    if given[0] is not None:
        (plugin,) = (each for part in distributions(path=[given[0]]) for each in part.entry_points)
        assert (plugin.group, plugin.name) == ("vllm.general_plugins", PLUGIN)
