"""A client that goes away, at any moment, ends its requests at once; one that stops reading ends them soon."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.http_server import Running, serving

import headstart as hs
from headstart.serve.options import Limits

LONG = {"prompt": "ab", "max_tokens": 3500, "ignore_eos": True}


@pytest.fixture(scope="module")
def slow(models: Path) -> Iterator[Running]:
    """One slot, a large context, and steps of 20 ms, so that a long text is surely under way."""
    engine = hs.load(models / "target", "none", dtype="float32", max_length=512, max_batch_size=1, prefill_chunk=16)
    original = engine.step

    def step() -> Any:
        time.sleep(0.02)
        return original()

    engine.step = step  # type: ignore[method-assign]
    with serving(engine, limits=Limits(max_waiting_requests=8)) as running:
        yield running
        assert running.settled()


@contextmanager
def asking(server: Running, body: dict[str, Any], path: str = "completions") -> Iterator[socket.socket]:
    """A connection on which a request was sent; it is reset at the end, as a killed client's is."""
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    try:
        connection.sendall(head.encode() + data)
        yield connection
    finally:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def running(server: Running) -> list[Any]:
    assert server.engine is not None
    return list(server.engine.scheduler.running)


def cancelled(server: Running, requests: list[Any]) -> None:
    """Assert that the slots are free again, and that these texts did not come to their own end."""
    assert server.settled()
    assert requests
    assert {request.finish_reason for request in requests} == {"cancelled"}


@pytest.mark.parametrize("stream", [True, False])
def test_while_it_is_written(slow: Running, stream: bool) -> None:
    with asking(slow, LONG | {"stream": stream}) as connection:
        assert until(lambda: any(request.generated > 3 for request in running(slow)))
        asked = running(slow)
        if stream:
            assert b"200 OK" in connection.recv(4096)
    cancelled(slow, asked)


@pytest.mark.parametrize("stream", [True, False])
def test_while_its_prompt_is_read(slow: Running, stream: bool) -> None:
    with asking(slow, {"prompt": "x" * 480, "stream": stream, "ignore_eos": True, "max_tokens": 30}):
        assert until(lambda: bool(running(slow)))
        asked = running(slow)
        assert all(request.generated == 0 for request in asked)
    cancelled(slow, asked)


@pytest.mark.parametrize("stream", [True, False])
def test_while_it_waits(slow: Running, stream: bool) -> None:
    assert slow.engine is not None
    with asking(slow, LONG) as _:
        assert until(lambda: bool(running(slow)))
        with asking(slow, LONG | {"stream": stream, "n": 3}):
            assert until(lambda: httpx2.get(f"{slow.url}/slots").json()["queued"] == 3)
        assert until(lambda: httpx2.get(f"{slow.url}/slots").json()["queued"] == 0)
        assert len(running(slow)) == 1, "the other goes on"
        asked = running(slow)
    cancelled(slow, asked)


def test_before_the_body_has_come(slow: Running) -> None:
    connection = socket.create_connection(("127.0.0.1", slow.port), timeout=60)
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
    )
    connection.sendall(head.encode() + b"\r\n{")
    connection.close()
    assert httpx2.get(f"{slow.url}/health").status_code == 200


def test_at_any_moment(slow: Running) -> None:
    for moment in range(12):
        with asking(slow, LONG | {"stream": bool(moment % 2), "n": 1 + moment % 3}):
            time.sleep(0.013 * moment)
    assert slow.settled()
    assert httpx2.post(f"{slow.v1}/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_a_client_that_stops_reading(models: Path) -> None:
    engine = hs.load(models / "target", "none", dtype="float32", max_length=512, max_batch_size=1)
    limits = Limits(max_unread_tokens=8, max_unread_seconds=0.1)
    with serving(engine, {"stall_seconds": 0.3}, limits) as server:
        body = {"prompt": "ab", "max_tokens": 500, "ignore_eos": True, "stream": True, "n": 8, "logprobs": 20}
        with asking(server, body) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            assert server.settled(), "nobody reads, so nothing is written any more"
        assert httpx2.get(f"{server.url}/health").status_code == 200


def test_slots_tell_who_runs(slow: Running) -> None:
    with asking(slow, LONG):
        assert until(lambda: any(request.generated > 2 for request in running(slow)))
        (slot,) = httpx2.get(f"{slow.url}/slots").json()["slots"]
        assert slot["request"] is not None
        assert slot["prompt_tokens"] == 2
        assert slot["generated_tokens"] >= 2
        (request,) = running(slow)
        known = request.speculation
        request.speculation = replace(known, not_guessing=f"not guessing now: {known.drafter} costs too much")
        (slot,) = httpx2.get(f"{slow.url}/slots").json()["slots"]
        assert slot["not_guessing"].startswith("not guessing now: ")
    assert slow.settled()
    (slot,) = httpx2.get(f"{slow.url}/slots").json()["slots"]
    assert slot["request"] is None
