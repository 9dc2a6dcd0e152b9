"""Clients that people use on top of OpenAI's interface work unchanged, and a fuzzer finds no way to hurt the server."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from support.byte_models import save_model
from support.chat_forms import chat_tokenizer, template
from support.http_server import MODEL, Running, serving

import headstart as hs
from headstart.serve.named_slots import NamedSlots
from headstart.serve.options import Limits
from headstart.serve.saved_slots import SavedSlots

TEXT = "u:Hello\na:"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """These packages would send what they see to services of their own."""
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "false")
    monkeypatch.setenv("LOGFIRE_SEND_TO_LOGFIRE", "false")
    yield
    gc.collect()  # what they leave open is theirs, and not the next test's


def alone(server: Running, **sampling: Any) -> str:
    assert server.engine is not None
    return server.engine.plain().generate(TEXT, hs.Sampling(**sampling)).text


@pytest.mark.filterwarnings("ignore")  # theirs
def test_langchain(server: Running) -> None:
    langchain_openai = pytest.importorskip("langchain_openai")
    options = {"base_url": server.v1, "api_key": "none", "model": MODEL, "temperature": 0.0, "max_tokens": 24}
    wanted = alone(server, max_tokens=24)
    with openai.DefaultHttpxClient() as http:
        model = langchain_openai.ChatOpenAI(**options, max_retries=0, http_client=http)
        answer = model.invoke("Hello")
        assert answer.content == wanted
        assert answer.usage_metadata["output_tokens"] > 0
        assert "".join(str(piece.content) for piece in model.stream("Hello")) == wanted
        many = model.batch(["Hello", "Hello there"])
        assert many[0].content == wanted

    async def ask() -> str:
        async with openai.DefaultAsyncHttpxClient() as http:
            model = langchain_openai.ChatOpenAI(**options, max_retries=0, http_async_client=http)
            return str((await model.ainvoke("Hello")).content)

    assert asyncio.run(ask()) == wanted


@pytest.mark.filterwarnings("ignore")  # theirs
def test_pydantic_ai(server: Running) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    wanted = alone(server, max_tokens=24)

    async def ask() -> tuple[str, str]:
        async with openai.AsyncOpenAI(base_url=server.v1, api_key="none", max_retries=0) as client:
            model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
            agent = Agent(model, model_settings={"temperature": 0.0, "max_tokens": 24})
            whole = await agent.run("Hello")
            async with agent.run_stream("Hello") as stream:
                pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
        return whole.output, "".join(pieces)

    whole, streamed = asyncio.run(ask())
    assert whole == wanted.strip() or whole == wanted
    assert streamed == wanted or streamed == wanted.strip()


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Running]:
    """A server of its own with tools and with slots in files, whose requests end soon, whatever is asked."""
    path = save_model(tmp_path / "model", tokenizer=chat_tokenizer(template("hermes"), "hermes"), context=512)
    engine = hs.load(path, "ngram", dtype="float32", max_length=512, pacing="fixed", prefix_cache=True)
    engine.cache.saved_texts = saved = SavedSlots(tmp_path / "slots", 10**8, engine, "")
    try:
        with serving(engine, limits=Limits(max_request_seconds=0.5), saved=NamedSlots(saved)) as running:
            yield running
            assert running.settled(), "a request or a slot was left behind"
    finally:
        saved.close()


@pytest.mark.slow
def test_schemathesis_finds_no_server_error(short: Running) -> None:
    """Requests made from the server's own description, right and wrong ones: none is answered with a 5xx."""
    pytest.importorskip("schemathesis")
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{short.url}/openapi.json", "--checks", "not_a_server_error",
        "--max-examples", "10", "--seed", "1", "--workers", "1", "--request-timeout", "120", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
