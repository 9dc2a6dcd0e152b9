"""The store of responses: by owner and id, the least used out first, in memory and in a file."""

from __future__ import annotations

import asyncio
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headstart.base.errors import InvalidFile
from headstart.serve import responses_store
from headstart.serve.options import Limits, Recording, ServerOptions
from headstart.serve.responses_store import Kept, ResponseStore
from headstart.serve.server import ModelServer


def response(number: str, text: str = "hello") -> dict[str, Any]:
    return {"id": number, "output": [{"type": "message", "text": text}]}


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "folder" / "responses" if request.param == "file" else None


@pytest.fixture
def store(path: Path | None) -> Iterator[ResponseStore]:
    found = ResponseStore(path, limit=0.01)
    yield found
    found.close()


def keep(store: ResponseStore, owner: str, number: str, text: str = "hello") -> None:
    asyncio.run(store.keep(owner, response(number, text), [{"type": "message", "role": "user"}]))


def find(store: ResponseStore, owner: str, number: str) -> Kept | None:
    return asyncio.run(store.find(owner, number))


def test_a_response_is_its_owners(store: ResponseStore) -> None:
    keep(store, "ada", "resp_1", "lone surrogate \ud800")
    found = find(store, "ada", "resp_1")
    assert found == Kept(response("resp_1", "lone surrogate \ud800"), [{"type": "message", "role": "user"}])
    assert find(store, "bob", "resp_1") is None
    assert not asyncio.run(store.forget("bob", "resp_1"))
    assert asyncio.run(store.forget("ada", "resp_1"))
    assert find(store, "ada", "resp_1") is None


def test_the_least_used_go_first(store: ResponseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1_000_000))
    monkeypatch.setattr(store, "_clock", lambda: next(clock))
    noise = random.Random(0).randbytes(4000).hex()  # more than a third of the limit, whatever packs it
    keep(store, "ada", "a", noise)
    keep(store, "ada", "b", noise)
    keep(store, "bob", "c", noise)
    assert find(store, "ada", "a") is not None
    keep(store, "ada", "d", noise)
    there = [number for number in "abd" if find(store, "ada", number)]
    assert there == ["a", "d"]
    assert find(store, "bob", "c") is not None
    keep(store, "ada", "e", noise + random.Random(1).randbytes(20_000).hex())
    assert find(store, "ada", "e") is None, "larger than all that one owner may have"


def test_old_ones_are_forgotten(store: ResponseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(store, "ada", "a")
    monkeypatch.setattr(store, "_clock", lambda: 1e11)
    assert find(store, "ada", "a") is None
    keep(store, "bob", "b")
    monkeypatch.undo()
    assert find(store, "ada", "a") is None


def test_in_memory_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_store, "MOST_IN_MEMORY", 3)
    store = ResponseStore()
    for number in range(5):
        keep(store, "ada", str(number))
    assert [number for number in range(5) if find(store, "ada", str(number))] == [2, 3, 4]
    store.close()
    with pytest.raises(InvalidFile, match="is closed"):
        keep(store, "ann", "late")


def test_a_file_outlives_its_server_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "responses"
    recording = Recording(responses=path, responses_days=7, responses_limit=1.0)
    store = ResponseStore.of(recording)
    keep(store, "ada", "a")
    store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store = ResponseStore(path)
    assert find(store, "ada", "a") is not None
    store.close()
    path.write_bytes(b"something else" * 100)
    with pytest.raises(InvalidFile, match="cannot be used"):  # and so the server does not start
        ModelServer(ServerOptions(served_model_name=("m",)), Limits(), recording, pytest.fail, {}, print)
