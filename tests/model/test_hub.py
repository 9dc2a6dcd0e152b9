"""The hub without a network: the answer comes within seconds and has a type, and models in the cache still load."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from support.tiny import byte_tokenizer

import headstart as hs
from headstart.base.errors import ModelNotFound
from headstart.model import hub, loading

FEW_SECONDS = 20.0


@pytest.fixture(params=["nobody listens", "nobody answers"])
def no_network(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[pytest.MonkeyPatch]:
    """The hub is an address of this machine where connections are refused, or taken and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        if request.param == "nobody listens":
            server.close()
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(hub, "SECONDS", 0.3)
        yield monkeypatch
        hub._unreachable.cache_clear()


def test_an_unknown_model_is_refused_within_seconds(no_network: pytest.MonkeyPatch) -> None:
    start = time.monotonic()
    with pytest.raises(ModelNotFound, match="cannot be reached") as caught:
        hs.load("nobody/no-such-model")
    with pytest.raises(ModelNotFound, match="127"):
        loading.fetch("nobody/no-such-head")
    assert loading.config_folder("nobody/no-such-head") is None
    assert time.monotonic() - start < FEW_SECONDS
    assert "network" in caught.value.hint
    assert not constants.HF_HUB_OFFLINE  # for everyone else in this process


def test_a_model_in_the_cache_loads(no_network: pytest.MonkeyPatch, tiny: Callable[..., str], tmp_path: Path) -> None:
    folder, commit = tmp_path / "cache" / "models--us--tiny", "0" * 40
    shutil.copytree(tiny("llama"), folder / "snapshots" / commit)
    byte_tokenizer().save_pretrained(folder / "snapshots" / commit)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    hs.load(tiny("llama"), drafter="none", dtype="float32")  # what a first load compiles is not what is timed
    start = time.monotonic()
    engine = hs.load("us/tiny", drafter="none", dtype="float32")
    assert time.monotonic() - start < FEW_SECONDS
    assert len(engine.generate([5, 6, 7], hs.Sampling(max_tokens=3)).tokens) == 3


def test_a_path_is_not_looked_up(no_network: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no model could be read"):
        hs.load(str(tmp_path / "nowhere"))
