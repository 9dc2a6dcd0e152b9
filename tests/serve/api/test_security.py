"""Who may ask: keys, hosts, content types, origins; and what is kept apart."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.http_server import Running, serving

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.serve.api.app import Application
from headstart.serve.api.layers import Keys
from headstart.serve.options import ServerOptions

BODY = {"prompt": "ab", "max_tokens": 2}
KEYS = ("first key", "second-key")


@pytest.fixture(scope="module")
def engine(models: Path) -> hs.Engine:
    return hs.load(models / "target", "none", dtype="float32", max_length=512)


@pytest.fixture
def locked(engine: hs.Engine) -> Iterator[Running]:
    with serving(engine, {"api_keys": KEYS}) as running:
        yield running


def test_a_server_for_others_needs_a_key() -> None:
    def never() -> Any:
        raise AssertionError("nothing may be loaded")

    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(InvalidOption, match="there is no key"):
            Application(never, ServerOptions(host=host))
        Application(never, ServerOptions(host=host, api_keys=("k",)))
    for host in ("127.0.0.1", "::1", "localhost", "127.0.0.2"):
        Application(never, ServerOptions(host=host))


def test_keys(locked: Running) -> None:
    def ask(headers: dict[str, str], path: str = "/v1/completions") -> httpx2.Response:
        if path == "/v1/completions":
            return httpx2.post(f"{locked.url}{path}", json=BODY, headers=headers)
        return httpx2.get(f"{locked.url}{path}", headers=headers)

    for key in KEYS:
        assert ask({"authorization": f"Bearer {key}"}).status_code == 200
        assert ask({"x-api-key": key}).status_code == 200
    for headers in (
        {}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer"}, {"authorization": KEYS[1]},
        {"authorization": f"Basic {KEYS[1]}"}, {"x-api-key": "first"}, {"authorization": "Bearer first key2"},
    ):  # fmt: skip
        refused = ask(headers)
        assert refused.status_code == 401, headers
        assert refused.json()["error"]["code"] == "invalid_api_key"
        assert refused.headers["www-authenticate"] == "Bearer"
    for path in ("/v1/models", "/metrics", "/slots", "/openapi.json"):
        assert ask({}, path).status_code == 401
    assert ask({}, "/health").status_code == 200, "a probe needs no key"


def test_a_wrong_key_is_told_before_the_body_is_read(locked: Running) -> None:
    response = httpx2.post(f"{locked.v1}/completions", content=b"{", headers={"content-type": "application/json"})
    assert response.status_code == 401


def test_hosts(engine: hs.Engine) -> None:
    with serving(engine, {"allowed_hosts": ("models.example.com",)}) as running:
        for host, status in {
            "localhost": 200, "127.0.0.1": 200, f"localhost:{running.port}": 200, "LOCALHOST": 200, "[::1]:80": 200,
            "models.example.com:8000": 200, "evil.example.com": 403, "127.0.0.1.evil.example": 403,
            "localhost.evil.example": 403, "127.0.0.2": 403, "models.example.com.evil": 403, "0.0.0.0": 403,
        }.items():  # fmt: skip
            response = httpx2.get(f"{running.url}/health", headers={"host": host})
            assert response.status_code == status, host


def test_only_json_is_taken(engine: hs.Engine) -> None:
    with serving(engine) as running:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
            response = httpx2.post(f"{running.v1}/completions", content=b"{}", headers={"content-type": kind})
            assert response.status_code == 415, kind
        for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON"):
            body = b'{"prompt": "a", "max_tokens": 1}'
            response = httpx2.post(f"{running.v1}/completions", content=body, headers={"content-type": kind})
            assert response.status_code == 200, kind


def test_other_origins_only_where_asked(engine: hs.Engine) -> None:
    origin = {"origin": "https://chat.example.com"}
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,authorization"}
    with serving(engine) as running:
        assert "access-control-allow-origin" not in httpx2.get(f"{running.url}/health", headers=origin).headers
        assert httpx2.options(f"{running.v1}/completions", headers=origin | ask).status_code == 405
    with serving(engine, {"cors_origins": ("https://chat.example.com",), "api_keys": KEYS}) as running:
        preflight = httpx2.options(f"{running.v1}/completions", headers=origin | ask)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == origin["origin"]
        key = {"authorization": f"Bearer {KEYS[0]}"}
        answer = httpx2.post(f"{running.v1}/completions", json=BODY, headers=origin | key)
        assert answer.headers["access-control-allow-origin"] == origin["origin"]
        other = httpx2.get(f"{running.url}/health", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        wrong = httpx2.post(f"{running.v1}/completions", json=BODY, headers=origin)
        assert wrong.status_code == 401


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_kept_is_kept_apart_by_key(engine: hs.Engine, shared: bool) -> None:
    salts: list[str] = []
    submit = engine.submit

    def noting(prompt: Any, sampling: hs.Sampling, *rest: Any) -> Any:
        salts.append(sampling.cache_salt)
        return submit(prompt, sampling, *rest)

    engine.submit = noting  # type: ignore[method-assign]
    try:
        with serving(engine, {"api_keys": KEYS, "share_cache": shared}) as running:
            for key in (*KEYS, KEYS[0]):
                for body in (BODY, BODY | {"cache_salt": "mine"}):
                    headers = {"authorization": f"Bearer {key}"}
                    assert httpx2.post(f"{running.v1}/completions", json=body, headers=headers).status_code == 200
    finally:
        engine.submit = submit  # type: ignore[method-assign]
    assert salts[:2] == salts[4:], "the same key shares with itself"
    assert len(set(salts)) == (2 if shared else 4)
    assert not any(key in salt for key in KEYS for salt in salts)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_a_key_with_other_letters_is_right_in_both_encodings(engine: hs.Engine, encoding: str, header: str) -> None:
    """One ends in a byte that looks like a space in Latin-1."""
    keys = ("schlüssel", "déjà")
    with serving(engine, {"api_keys": keys}) as running:
        for key in keys:
            for given, status in ((key, 200), (key[:-1] + "x", 401)):
                value = given.encode(encoding)
                headers = {header.encode(): b"Bearer " + value if header == "authorization" else value}
                assert httpx2.get(f"{running.v1}/models", headers=headers).status_code == status, given


def test_keys_of_all_kinds() -> None:
    keys = Keys(["schlüssel", "two", "two"])
    assert keys.owner("schlüssel")
    assert keys.owner("two") != keys.owner("schlüssel")
    assert keys.owner("") is keys.owner(None) is None
    assert not Keys(())
    with pytest.raises(InvalidOption, match="api_keys"):
        ServerOptions(api_keys=("",))


def test_logs_have_no_words_of_requests(locked: Running, caplog: pytest.LogCaptureFixture) -> None:
    secret = "a-secret-word"
    headers = {"authorization": f"Bearer {KEYS[1]}"}
    with caplog.at_level(logging.DEBUG, logger="headstart.serve"):
        bodies: list[dict[str, Any]] = [BODY | {"prompt": secret}, {"prompt": secret, secret: 1}, {"prompt": [secret]}]
        for body in bodies:
            httpx2.post(f"{locked.v1}/completions", json=body, headers=headers)
        httpx2.post(f"{locked.v1}/completions?{secret}", json=BODY, headers={"authorization": f"Bearer {secret}"})
        httpx2.get(f"{locked.url}/%0d%0aforged", headers=headers)
        ends = time.monotonic() + 60
        while len(caplog.records) < 5 and time.monotonic() < ends:
            time.sleep(0.01)  # a line is written after its answer has gone
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 5
    assert "200" in lines[0]
    assert not any(secret in line or KEYS[1] in line or "\n" in line for line in lines)
