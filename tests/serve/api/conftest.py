"""Servers that tests share: a tiny chat model with a draft model that is often right, and the bundled pair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from support.http_server import Running, chat_model, serving

import headstart as hs


@pytest.fixture(scope="package")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny chat model ("target") and a draft of it ("draft")."""
    root = tmp_path_factory.mktemp("chat")
    chat_model(root / "target", context=512)
    chat_model(root / "draft", context=512, noise=0.01)
    return root


@pytest.fixture(scope="package")
def server(models: Path) -> Iterator[Running]:
    """A tiny chat model under rule "coupled": a seed gives one text, however it is drafted and batched."""
    engine = hs.load(
        models / "target", ["prediction", models / "draft"], dtype="float32", max_length=512, pacing="fixed",
        rule="coupled", max_batch_size=4, prefix_cache=True,
    )  # fmt: skip
    with serving(engine) as running:
        yield running
        assert running.settled(), "a request or a slot was left behind"
    engine.cache.check()


@pytest.fixture(scope="package")
def pair() -> Iterator[Running]:
    """The bundled pair under rule "exact", for texts: it has no chat template."""
    with serving(hs.load(max_batch_size=4, pacing="fixed", rule="exact")) as running:
        yield running
        assert running.settled(), "a request or a slot was left behind"


@pytest.fixture(scope="package")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.v1, api_key="none", max_retries=0, timeout=60) as found:
        yield found
