"""Our own server on the loopback: an engine behind a `ThreadBridge`, uvicorn in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import headstart as hs
from headstart.serve.api.app import Application
from headstart.serve.api.listening import Server, bound_socket
from headstart.serve.api.routes import Pages
from headstart.serve.api.schemas.parts import Defaults
from headstart.serve.api.service import Served, Source
from headstart.serve.bridge import SlotNames
from headstart.serve.metrics import Metrics
from headstart.serve.options import Limits, ServerOptions
from headstart.serve.worker import ThreadBridge
from support.byte_models import save_model
from support.tiny import byte_tokenizer

MODEL = "tiny"
PATIENCE = 120.0
"""Seconds; a machine may be busy with other things."""
SYSTEM_TEMPLATE = (
    "{% for message in messages %}{{ message.role[0] + ':' + message.content }}"
    "{% if not loop.last or message.role != 'assistant' %}{{ '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}a:{{ 'think ' if thinking else '' }}{% endif %}"
)
"""One line a message; a message of the assistant at the end may be continued."""


@dataclass(frozen=True)
class Running:
    """A server that runs."""

    url: str
    engine: hs.Engine | None = None

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def settled(self, seconds: float = PATIENCE) -> bool:
        """Whether the engine comes to rest within so many seconds: no request left, every slot free."""
        assert self.engine is not None
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            cache = self.engine.cache
            if not self.engine.scheduler.requests() and cache.free_slots == len(cache.lengths):
                return True
            time.sleep(0.01)
        return False


@contextmanager
def listening(app: Application, port: int = 0) -> Iterator[str]:
    """The URL of an application that is served meanwhile."""
    started: list[str] = []
    options = app.service.options
    server = Server(app, options, grace_seconds=0.0, on_started=started.append)
    bound = bound_socket(replace(options, host="127.0.0.1", port=port))
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    until = time.monotonic() + PATIENCE
    while not started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < until, "the server does not start"
        time.sleep(0.005)
    try:
        yield started[0]
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server does not stop"


@contextmanager
def serving(
    engine: hs.Engine,
    options: dict[str, Any] | None = None,
    limits: Limits | None = None,
    *,
    defaults: Defaults | None = None,
    grace_seconds: float = 2.0,
    pages: Pages | None = None,
    port: int = 0,
    saved: SlotNames | None = None,
) -> Iterator[Running]:
    """A server of this engine, under the name `MODEL`. options: of `ServerOptions`; port: 0 takes a free one."""
    named = {"served_model_name": (MODEL,), **(options or {})}
    metrics = Metrics(named["served_model_name"][0])
    bridge = ThreadBridge(engine, limits or Limits(), [metrics])
    seconds = bridge.limits.max_request_seconds
    source: Source = Served(bridge, defaults or Defaults(), metrics=metrics, request_seconds=seconds, saved=saved)
    app = Application(source, ServerOptions(**named), grace_seconds=grace_seconds, pages=pages)
    with listening(app, port) as url:
        yield Running(url, engine)


def chat_model(path: Path, **options: Any) -> Path:
    """A tiny random chat model over bytes, with a template that knows all roles."""
    save_model(path, **options)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = SYSTEM_TEMPLATE
    tokenizer.save_pretrained(path)
    return path


def events_of(lines: Sequence[str]) -> list[str]:
    """What the data lines of a stream say."""
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
