"""Requests are read off the event loop: what is long, or never ends, holds up nobody but its own kind."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.byte_models import save_model
from support.http_server import PATIENCE, serving
from support.tiny import byte_tokenizer

import headstart as hs
from headstart.base.errors import Overloaded
from headstart.serve.api import service as service_module
from headstart.serve.api.errors import Refused
from headstart.serve.api.service import Lane
from headstart.serve.options import Limits

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}" + "{% endfor %}" * 3
"""Each of these loops is short enough for jinja's sandbox; together they take years."""


def forever() -> None:
    while True:
        pass


def test_work_that_does_not_end_is_broken_off_and_the_next_is_done() -> None:
    async def play() -> None:
        lane = Lane("test", 4)
        try:
            for _ in range(3):
                with pytest.raises(Refused, match="could not be read"):
                    await lane.do(forever, 0.05)
                assert await lane.do(lambda: 5, PATIENCE) == 5
        finally:
            lane.close()

    asyncio.run(play())


def test_only_so_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        lane, go = Lane("test", 2), threading.Event()
        try:
            first = asyncio.create_task(lane.do(lambda: go.wait(PATIENCE), PATIENCE))
            second = asyncio.create_task(lane.do(lambda: "second", PATIENCE))
            await asyncio.sleep(0)
            with pytest.raises(Overloaded) as raised:
                await lane.do(lambda: "third", PATIENCE)
            assert raised.value.retry_after >= 1
            go.set()
            assert [await first, await second] == [True, "second"]
            assert await lane.do(lambda: "fourth", PATIENCE) == "fourth"
        finally:
            go.set()
            lane.close()

    asyncio.run(play())


def test_who_waited_too_long_is_told_to_come_back() -> None:
    async def play() -> None:
        lane, go = Lane("test", 2), threading.Event()
        done: list[int] = []
        try:
            first = asyncio.create_task(lane.do(lambda: go.wait(PATIENCE), PATIENCE))
            await asyncio.sleep(0)
            with pytest.raises(Overloaded):
                await lane.do(lambda: done.append(1), 0.01)
            go.set()
            await first
            assert await lane.do(lambda: len(done), PATIENCE) == 0, "what nobody waits for is not done"
        finally:
            go.set()
            lane.close()

    asyncio.run(play())


def test_errors_of_the_work_are_its_own() -> None:
    async def play() -> None:
        lane = Lane("test", 2)
        try:
            with pytest.raises(ZeroDivisionError):
                await lane.do(lambda: 1 // 0, PATIENCE)
        finally:
            lane.close()

    asyncio.run(play())


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hs.Engine:
    """A model whose chat template never ends. A server gives up on it after half a second, when it starts and later."""
    save_model(tmp_path)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = ENDLESS
    tokenizer.save_pretrained(tmp_path)
    monkeypatch.setattr(service_module, "_READ_SECONDS", 0.5)
    return hs.load(tmp_path, "none", dtype="float32")


def test_a_chat_template_that_never_ends_stops_nobody(hostile: hs.Engine) -> None:
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    found: list[httpx2.Response] = []
    with serving(hostile) as running:

        def ask(path: str, body: Any) -> None:
            found.append(httpx2.post(f"{running.url}{path}", json=body, timeout=PATIENCE))

        bodies = {"/v1/chat/completions": chat, "/tokenize": {"messages": chat["messages"]}}
        asking = [threading.Thread(target=ask, args=each) for each in bodies.items()]
        for thread in asking:
            thread.start()
        while any(thread.is_alive() for thread in asking):  # the event loop answers meanwhile
            assert httpx2.get(f"{running.url}/health", timeout=PATIENCE).status_code == 200
        assert sorted(response.status_code for response in found) in ([400, 400], [400, 429])
        assert "reading_timeout" in {response.json()["error"]["code"] for response in found}
        written = httpx2.post(f"{running.v1}/completions", json={"prompt": "a", "max_tokens": 2}, timeout=PATIENCE)
        assert written.status_code == 200


def test_the_deadline_of_a_request_holds_while_it_is_read(hostile: hs.Engine) -> None:
    with serving(hostile, limits=Limits(max_request_seconds=0.2)) as running:
        body = {"messages": [{"role": "user", "content": "a"}]}
        response = httpx2.post(f"{running.v1}/chat/completions", json=body, timeout=PATIENCE)
    assert response.json()["error"]["code"] == "reading_timeout"
    assert "0.2 seconds" in response.json()["error"]["message"]


def test_long_requests_keep_no_short_one_waiting(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a long one is being read, short ones are answered; too many long ones are told to come back."""
    monkeypatch.setattr(service_module, "_MOST_READ_LONG", 1)
    go, begun = threading.Event(), threading.Event()
    engine = hs.load(models / "target", "none", dtype="float32", max_length=512)
    encode = engine.encode

    def slowly(prompt: Any) -> tuple[int, ...]:
        if len(prompt) > 20_000:
            begun.set()
            go.wait(PATIENCE)
        return encode(prompt)

    monkeypatch.setattr(engine, "encode", slowly)
    long: dict[str, Any] = {"prompt": "x" * 30_000}
    with serving(engine) as running:
        found: list[int] = []

        def ask() -> None:
            found.append(httpx2.post(f"{running.v1}/completions", json=long, timeout=PATIENCE).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            assert begun.wait(PATIENCE)
            body = {"prompt": "a", "max_tokens": 2}
            assert httpx2.post(f"{running.v1}/completions", json=body, timeout=PATIENCE).status_code == 200
            busy = httpx2.post(f"{running.v1}/completions", json=long, timeout=PATIENCE)
            assert busy.status_code == 429
            assert busy.headers["retry-after"]
        finally:
            go.set()
            asking.join(PATIENCE)
        assert found == [400], "too long for the context"


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_a_lane_that_yields_has_a_lower_priority_and_leaves_that_of_others_alone() -> None:
    """A step of the engine waits for all of its threads: what shares a core with one of them must not stop it."""

    async def priorities() -> list[int]:
        lanes = [Lane("first", 1), Lane("second", 1, yields=True), Lane("third", 1)]
        try:
            return [await lane.do(own, 60) for lane in lanes]
        finally:
            for lane in lanes:
                lane.close()

    def own() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = own()
    assert asyncio.run(priorities()) == [before, max(before, 10), before]
