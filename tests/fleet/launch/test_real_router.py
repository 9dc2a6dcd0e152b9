"""The real vllm-router before fake engines: what the fleet relies on. Slow, and only where it is installed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.fleets import fake_export, fake_installation, free_port
from support.vllm import VARIABLE

from headstart.base.errors import EngineNotFound
from headstart.fleet.http import ask
from headstart.fleet.launch.fleet import Fleet
from headstart.fleet.launch.router import find_router
from headstart.fleet.vllm import find

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    given = os.environ.get(VARIABLE)
    fake = fake_installation(tmp_path / "env", router=False)
    try:
        program = find_router(fake if given is None else find(Path(given)))
    except EngineNotFound as error:
        pytest.skip(error.message)
    monkeypatch.setattr("headstart.fleet.launch.fleet.find_router", lambda _: program)
    monkeypatch.setenv("FAKE_VLLM", "slow=0.02")
    with Fleet.start(fake_export(tmp_path / "out"), fake, engines=2, port=free_port(), timeout=30) as fleet:
        yield fleet


def complete(url: str, tokens: int = 2, *, stream: bool = False) -> Any:
    body = {"model": "fake", "prompt": "a", "max_tokens": tokens, "stream": stream}
    answer = ask("POST", f"{url}/v1/completions", json=body, seconds=30)
    answer.raise_for_status()
    return answer.text if stream else answer.json()


def test_requests_alternate_and_streams_stream(fleet: Fleet) -> None:
    assert fleet.router is not None
    assert set(fleet.router.engines()) == {engine.url for engine in fleet.engines}
    pids = [complete(fleet.url)["engine"] for _ in range(4)]
    assert pids[0] == pids[2] != pids[1] == pids[3]
    assert complete(fleet.url, 3, stream=True).count("data: ") == 4
    assert "vllm_router" in httpx2.get(fleet.router.metrics).text


def test_a_request_that_runs_ends_on_the_engine_that_leaves(fleet: Fleet) -> None:
    old, texts = fleet.engines[0], []
    long = [threading.Thread(target=lambda: texts.append(complete(fleet.url, 80, stream=True))) for _ in range(4)]
    for thread in long:
        thread.start()
    while old.idle():
        pass
    fleet.replace(0, old.served.folder)
    for thread in long:
        thread.join()
    assert [text.count("data: ") for text in texts] == [81] * 4
    assert {complete(fleet.url)["engine"] for _ in range(4)} == {complete(each.url)["engine"] for each in fleet.engines}


def test_a_dead_engine_fails_no_later_request(fleet: Fleet) -> None:
    """Not even before the fleet has noticed: the router asks the other one."""
    os.kill(complete(fleet.engines[0].url)["engine"], signal.SIGKILL)
    assert len({complete(fleet.url)["engine"] for _ in range(6)}) == 1
    assert any("engine-0 was ended by SIGKILL" in line for line in fleet.tend())
    assert fleet.router is not None
    assert fleet.router.engines() == (fleet.engines[1].url,)


def test_a_page_elsewhere_may_not_read_what_it_answers(fleet: Fleet) -> None:
    """Without this, any web page that its user looks at could."""
    asked = {"Origin": "http://elsewhere.example", "Access-Control-Request-Method": "POST"}
    answer = httpx2.options(f"{fleet.url}/v1/completions", headers=asked)
    assert answer.headers.get("access-control-allow-origin") in (None, fleet.url)
