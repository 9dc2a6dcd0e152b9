"""Seeds under the default rule: one text each, by whatever way a server comes to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.http_server import Running, serving

import headstart as hs
from headstart.serve.api.reading.work import seed_of


@pytest.fixture(scope="module")
def auto(models: Path) -> Iterator[Running]:
    """A tiny chat model with a draft of it that draws."""
    engine = hs.load(
        models / "target", models / "draft", dtype="float32", max_length=512, pacing="fixed", max_batch_size=4
    )
    with serving(engine) as running:
        yield running
        assert running.settled(), "a request or a slot was left behind"
    engine.cache.check()


def asked(server: Running, **fields: Any) -> dict[str, Any]:
    response = httpx2.post(f"{server.v1}/completions", json={"prompt": "ab", "max_tokens": 16, **fields}, timeout=60)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_the_server_says_its_rule(auto: Running) -> None:
    (model,) = httpx2.get(f"{auto.v1}/models", timeout=60).json()["data"]
    assert model["headstart"]["rule"] == "auto"


def test_choices_are_those_of_their_seeds_alone_and_without_drafts(auto: Running) -> None:
    several = asked(auto, n=3, seed=4)
    assert several["headstart"]["seeds"] == [seed_of(4, choice) for choice in range(3)]
    for choice, seed in zip(several["choices"], several["headstart"]["seeds"], strict=True):
        for fields in ({}, {"speculation": {"enabled": False}}, {"cache_salt": "other"}):
            assert asked(auto, seed=seed, **fields)["choices"][0]["text"] == choice["text"]
    assert len({choice["text"] for choice in several["choices"]}) == 3


def test_choices_without_a_seed_differ(auto: Running) -> None:
    assert len({choice["text"] for choice in asked(auto, n=4)["choices"]}) == 4
