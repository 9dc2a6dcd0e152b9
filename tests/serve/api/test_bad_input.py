"""Everything that can be wrong with a request: the proper status, OpenAI's error object, and a server unharmed."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.http_server import MODEL, Running, serving

import headstart as hs
from headstart.serve.options import Limits

HELLO = [{"role": "user", "content": "Hello"}]
JSON = {"content-type": "application/json"}


def refused(response: httpx2.Response, status: int, code: str | None = None) -> dict[str, Any]:
    """The error object of an answer, which must have this status and say nothing of this machine."""
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert code is None or error["code"] == code, error
    assert response.headers["x-request-id"]
    for secret in ("Traceback", "site-packages", "/tmp/", "pydantic"):
        assert secret not in response.text
    return error


BODIES: list[tuple[bytes, str]] = [
    (b"", "invalid_json"),
    (b"{", "invalid_json"),
    (b"{'prompt': 1}", "invalid_json"),
    (b'{"prompt": "a"} x', "invalid_json"),
    (b"\xff\xfe", "invalid_json"),
    (b'{"prompt": "\xff"}', "invalid_json"),
    (b'{"prompt": "\\ud800"}', "invalid_json"),
    (b"[" * 100_000, "invalid_json"),
    (b'{"prompt":' * 5000, "invalid_json"),
    (b'"a"', "invalid_value"),
    (b"[]", "invalid_value"),
    (b"null", "invalid_value"),
    (b"{}", "missing_field"),
    (b'{"prompt": null}', "invalid_value"),
    (b'{"prompt": 7}', "invalid_value"),
    (b'{"prompt": []}', "invalid_prompt"),
    (b'{"prompt": ""}', "invalid_prompt"),
    (b'{"prompt": [""]}', "invalid_prompt"),
    (b'{"prompt": [[]]}', "invalid_prompt"),
    (b'{"prompt": [1, "a"]}', "invalid_value"),
    (b'{"prompt": [1.5]}', "invalid_value"),
    (b'{"prompt": [true]}', "invalid_value"),
    (b'{"prompt": "a", "temperature": NaN}', "invalid_value"),
    (b'{"prompt": "a", "temperature": 1e999}', "invalid_value"),
    (b'{"prompt": "a", "temperature": "warm"}', "invalid_value"),
    (b'{"prompt": "a", "temperature": "0.5"}', "invalid_value"),
    (b'{"prompt": "a", "temperature": -1}', "invalid_value"),
    (b'{"prompt": "a", "top_p": 0}', "invalid_value"),
    (b'{"prompt": "a", "top_k": -2}', "invalid_value"),
    (b'{"prompt": "a", "n": 0}', "invalid_value"),
    (b'{"prompt": "a", "n": 129}', "invalid_value"),
    (b'{"prompt": "a", "n": true}', "invalid_value"),
    (b'{"prompt": "a", "max_tokens": 0}', "invalid_value"),
    (b'{"prompt": "a", "max_tokens": 1.5}', "invalid_value"),
    (b'{"prompt": "a", "max_tokens": 4, "min_tokens": 5}', "invalid_value"),
    (b'{"prompt": "a", "seed": 1' + b"0" * 400 + b"}", "invalid_value"),
    (b'{"prompt": "a", "seed": 1' + b"0" * 5000 + b"}", None),
    (b'{"prompt": "a", "logprobs": 21}', "invalid_value"),
    (b'{"prompt": "a", "logprobs": true}', "invalid_value"),
    (b'{"prompt": "a", "logit_bias": {"x": 1}}', "invalid_value"),
    (b'{"prompt": "a", "logit_bias": {"9999": 1}}', "invalid_value"),
    (b'{"prompt": "a", "logit_bias": {"-1": 1}}', "invalid_value"),
    (b'{"prompt": "a", "logit_bias": [1]}', "invalid_value"),
    (b'{"prompt": "a", "stop": ""}', "invalid_value"),
    (b'{"prompt": "a", "stop": [1]}', "invalid_value"),
    (b'{"prompt": "a", "stop_token_ids": [9999]}', "invalid_value"),
    (b'{"prompt": "a", "stream": "yes"}', "invalid_value"),
    (b'{"prompt": "a", "stream_interval": 0}', "invalid_value"),
    (b'{"prompt": "a", "speculation": {"max_draft_tokens": -1}}', "invalid_value"),
    (b'{"prompt": "a", "speculation": 3}', "invalid_value"),
    (b'{"prompt": "a", "prediction": 3}', "invalid_value"),
    (b'{"prompt": "a", "constructor": 3}', "unknown_field"),
    (b'{"prompt": "a", "\\u0000": 3}', "unknown_field"),
    (b'{"prompt": "a", "model": 3}', "invalid_value"),
    (b'{"prompt": "a", "model": "other"}', "model_not_found"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "code"), BODIES, ids=lambda value: str(value)[:40])
def test_bodies(server: Running, body: bytes, code: str | None) -> None:
    response = httpx2.post(f"{server.v1}/completions", content=body, headers=JSON, timeout=60)
    refused(response, 404 if code == "model_not_found" else 400, code)


MESSAGES: list[Any] = [
    None, [], "hi", {}, [3], [{}], [{"role": "user"}], [{"role": "function", "content": "x"}],
    [{"role": "user", "content": 3}], [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
    [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}],
]  # fmt: skip


@pytest.mark.parametrize("messages", MESSAGES, ids=str)
def test_messages(server: Running, messages: Any) -> None:
    response = httpx2.post(f"{server.v1}/chat/completions", json={"messages": messages}, timeout=60)
    if messages == [{"role": "user"}]:
        assert response.status_code == 200, "a message may be empty"
    else:
        refused(response, 400)


def test_a_prompt_that_is_too_long(server: Running) -> None:
    for prompt in ("x" * 600, "x" * 100_000, [7] * 600):
        response = httpx2.post(f"{server.v1}/completions", json={"prompt": prompt}, timeout=60)
        error = refused(response, 400, "context_length_exceeded")
        assert "512" in error["message"]
    long = [{"role": "user", "content": "x" * 600}]
    refused(httpx2.post(f"{server.v1}/chat/completions", json={"messages": long}), 400, "context_length_exceeded")


def test_a_text_that_is_too_long_to_be_counted(server: Running) -> None:
    counted = httpx2.post(f"{server.url}/tokenize", json={"prompt": "x" * 5000}, timeout=60)
    assert counted.json()["count"] == 5000, "a client may want to know by how much it is too long"
    long = "x" * 2_000_000
    for body in ({"prompt": long}, {"messages": [{"role": "user", "content": long}]}):
        error = refused(httpx2.post(f"{server.url}/tokenize", json=body, timeout=60), 400, "too_many_tokens")
        assert "65536" in error["message"]
    many = httpx2.post(f"{server.url}/detokenize", json={"tokens": [7] * 100_000}, timeout=60)
    refused(many, 400, "too_many_tokens")


@pytest.mark.parametrize("stop", ["x" * 5000, ["x" * 4000] * 5], ids=["one", "many"])
def test_stop_strings_that_are_too_long(server: Running, stop: Any) -> None:
    response = httpx2.post(f"{server.v1}/completions", json={"prompt": "a", "stop": stop}, timeout=60)
    assert refused(response, 400, "invalid_value")["param"] == "stop"


def test_paths_and_methods(server: Running) -> None:
    error = refused(httpx2.post(f"{server.v1}/embeddings", json={}), 404, "not_found")
    assert "writes text" in error["message"]
    refused(httpx2.get(f"{server.v1}/completions"), 405, "method_not_allowed")
    refused(httpx2.get(f"{server.url}/../etc/passwd"), 404)
    refused(httpx2.post(f"{server.url}/health", json={}), 405)


def test_a_model_without_a_template(pair: Running) -> None:
    for body in ({"messages": HELLO}, {"messages": HELLO, "stream": True}):
        error = refused(httpx2.post(f"{pair.v1}/chat/completions", json=body), 400, "no_chat_template")
        assert "/v1/completions" in error["message"]


def test_a_template_that_refuses(tmp_path: Path) -> None:
    from support.byte_models import save_model

    save_model(tmp_path, chat=True)
    with serving(hs.load(tmp_path, "none", dtype="float32")) as running:
        messages = [{"role": "system", "content": "secret"}, *HELLO]
        response = httpx2.post(f"{running.v1}/chat/completions", json={"messages": messages})
        error = refused(response, 400, "template_refused")
        assert "no system message" in error["message"]
        assert "secret" not in error["message"]


@pytest.fixture(scope="module")
def small(models: Path) -> Iterator[Running]:
    """A server that allows little: short bodies, short patience, one slot and one place to wait."""
    engine = hs.load(models / "target", "none", dtype="float32", max_length=512, max_batch_size=1)
    options = {"max_body_bytes": 2048, "body_seconds": 0.5}
    with serving(engine, options, Limits(max_waiting_requests=1)) as running:
        yield running
        assert running.settled()


def test_a_body_that_is_too_large(small: Running) -> None:
    refused(httpx2.post(f"{small.v1}/completions", json={"prompt": "x" * 3000}), 413, "body_too_large")

    def pieces() -> Iterator[bytes]:
        for _ in range(30):
            yield b" " * 100

    response = httpx2.post(f"{small.v1}/completions", content=pieces(), headers=JSON)
    refused(response, 413, "body_too_large")


def test_a_body_that_never_ends(small: Running) -> None:
    with socket.create_connection(("127.0.0.1", small.port), timeout=60) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost:{small.port}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n".encode() + b'{"prompt":')
        answer = b""
        while part := connection.recv(65536):  # until the server closes
            answer += part
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"body_timeout" in answer


def test_more_requests_than_may_wait(small: Running) -> None:
    assert small.engine is not None
    step, go = small.engine.step, threading.Event()
    small.engine.step = lambda: (go.wait(60), step())[1]  # type: ignore[method-assign]
    two = {"prompt": "a", "n": 2, "max_tokens": 2}
    asking = threading.Thread(
        target=httpx2.post, args=(f"{small.v1}/completions",), kwargs={"json": two, "timeout": 60}
    )
    asking.start()
    try:
        until = time.monotonic() + 60
        while httpx2.get(f"{small.url}/slots").json()["queued"] < 2:
            assert time.monotonic() < until
            time.sleep(0.005)
        too_many = httpx2.post(f"{small.v1}/completions", json=two, timeout=60)
    finally:
        go.set()
        small.engine.step = step  # type: ignore[method-assign]
        asking.join(60)
    error = refused(too_many, 429, "overloaded")
    assert error["type"] == "rate_limit_error"
    assert 1 <= int(too_many.headers["retry-after"]) <= 120
    assert too_many.headers["x-should-retry"] == "true"
    assert httpx2.post(f"{small.v1}/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200


def test_a_request_that_can_never_run_is_not_told_to_come_back(small: Running) -> None:
    """One slot, and one place to wait."""
    many = httpx2.post(f"{small.v1}/completions", json={"prompt": "a", "n": 3, "max_tokens": 2}, timeout=60)
    error = refused(many, 400, "invalid_value")
    assert "3 texts" in error["message"]
    assert many.headers["x-should-retry"] == "false"
    assert "retry-after" not in many.headers


def answer_of(running: Running, head: str, body: bytes = b"", *, more: bytes = b"") -> bytes:
    """All that the server sends until it closes the connection; `more` is sent for as long as it takes any."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as connection:
        connection.sendall(f"{head}\r\nHost: localhost:{running.port}\r\n\r\n".encode() + body)
        answer = b""
        with suppress(OSError):  # it may close before all has been sent
            while more:
                connection.sendall(more)
        with suppress(OSError):
            while part := connection.recv(65536):
                answer += part
    return answer


def test_a_body_of_two_lengths_is_refused_and_the_connection_closed(server: Running) -> None:
    """A proxy might believe the other one, and take the rest for the next client's request."""
    head = "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    answer = answer_of(server, f"{head}Content-Length: 5", b"0\r\n\r\nGET /health HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"ambiguous_length" in answer
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_body_that_nobody_reads_ends_with_the_answer(server: Running) -> None:
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    answer_of(server, "GET /health HTTP/1.1\r\nTransfer-Encoding: chunked", more=chunk)
    answer = answer_of(server, "GET /health HTTP/1.1\r\nContent-Length: 100", b"x")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer.lower()


def test_raw_bytes_do_no_harm(server: Running) -> None:
    generator = random.Random(0)
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(generator.randbytes(generator.randrange(1, 2000)))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
            assert not answer or answer.startswith(b"HTTP/1.1 4"), answer
    assert httpx2.get(f"{server.url}/health").json() == {"status": "ok"}


def test_random_fields_are_never_a_fault_of_the_server(server: Running) -> None:
    generator = random.Random(1)
    names = ["temperature", "n", "stop", "seed", "stream", "logprobs", "echo", "prediction", "speculation", "prompt"]
    values: list[Any] = [None, True, -1, 0, 1, 2.5, "", "a", [], [1], ["a"], {}, {"type": "content", "content": "a"}]
    for _ in range(60):
        body = {"prompt": "ab", "max_tokens": 2} | {
            name: generator.choice(values) for name in generator.sample(names, 3)
        }
        response = httpx2.post(f"{server.v1}/completions", json=body, timeout=60)
        assert response.status_code in (200, 400), (body, response.text)
        if response.status_code == 400:
            refused(response, 400)


def test_many_idle_connections(server: Running) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(200)]
    try:
        body = {"prompt": "ab", "max_tokens": 2}
        assert httpx2.post(f"{server.v1}/completions", json=body, timeout=60).status_code == 200
    finally:
        for connection in idle:
            connection.close()


def test_a_connection_without_a_request_is_closed(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.serve.api.listening._HEADER_SECONDS", 0.2)
    with serving(hs.load(models / "target", "none", dtype="float32", max_length=512)) as running:
        for beginning in (b"", b"POST /v1/comp", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"):
            with socket.create_connection(("127.0.0.1", running.port), timeout=60) as connection:
                connection.sendall(beginning)
                assert connection.recv(100) == b"", "the server has closed it"
        with httpx2.Client(base_url=running.url) as client:  # one connection, longer than a head may take
            body = {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "speculation": {"enabled": False}}
            assert client.post("/v1/completions", json=body, timeout=60).status_code == 200
            assert client.get("/health").status_code == 200


def test_more_connections_than_are_taken(models: Path) -> None:
    engine = hs.load(models / "target", "none", dtype="float32", max_length=512)
    with serving(engine, {"max_connections": 5}) as running:
        idle = [socket.create_connection(("127.0.0.1", running.port), timeout=60) for _ in range(8)]
        full = httpx2.get(f"{running.url}/health")
        assert refused(full, 503, "too_many_connections")["type"] == "unavailable_error"
        assert int(full.headers["retry-after"]) >= 1
        assert full.headers["connection"] == "close"
        for connection in idle:
            connection.close()
        until = time.monotonic() + 60
        while httpx2.get(f"{running.url}/health").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_health_while_loading_and_after_it_failed() -> None:
    from support.http_server import listening

    from headstart.serve.api.app import Application

    go = threading.Event()
    told: list[BaseException] = []

    def load() -> Any:
        go.wait(60)
        raise RuntimeError("/secret/path is not there")

    with listening(Application(load, on_failure=told.append)) as url:
        health = httpx2.get(f"{url}/health")
        assert health.status_code == 503
        assert health.json()["status"] == "loading"
        assert health.headers["retry-after"]
        asked = httpx2.post(f"{url}/v1/completions", json={"prompt": "a"})
        error = refused(asked, 503)
        assert error["message"] == "Loading model"
        assert error["type"] == "unavailable_error"
        go.set()
        until = time.monotonic() + 60
        while not told and time.monotonic() < until:
            time.sleep(0.01)
        failed = httpx2.get(f"{url}/health")
        assert failed.status_code == 503
        assert failed.json()["status"] == "failed"
        assert "secret" not in failed.text
        refused(httpx2.get(f"{url}/v1/models"), 503, "failed")


def test_the_openapi_description_has_the_fields(server: Running) -> None:
    found = json.loads(httpx2.get(f"{server.url}/openapi.json").text)
    chat = found["components"]["schemas"]["ChatRequest"]
    assert {"messages", "speculation", "prediction", "speculative.n_max"} <= chat["properties"].keys()
    assert chat["additionalProperties"] is False
    path = found["paths"]["/v1/chat/completions"]["post"]
    assert path["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("ChatRequest")
    assert MODEL not in json.dumps(found)
