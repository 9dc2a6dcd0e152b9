"""Fake engines on the loopback: pages for Prometheus that a test sets, and a traffic that is accepted as it says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np


@dataclass
class FakeServer:
    """What it answers next, and what it was sent."""

    url: str = ""
    text: str = ""
    status: int = 200
    failing: int = 0
    """So many requests are answered with 503 first."""
    posts: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Paths and their authorization."""


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    """A server of one text. Its counters are those of `Engine.page`."""
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.asked.append((self.path, self.headers["Authorization"]))
            self._answer(fake.text)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not fake.failing:
                fake.posts.append(json.loads(body))
            self._answer("")

        def _answer(self, text: str) -> None:
            status = 503 if fake.failing else fake.status
            fake.failing = max(0, fake.failing - 1)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Engine:
    """Counters of a vLLM that drafts K tokens in each step, and accepts position i with a given chance.

    Args:
        acceptance: by position, given acceptance before.
        started: when its process began.
    """

    def __init__(self, acceptance: Sequence[float], *, seed: int = 0, started: float = 1.7e9, model: str = "m") -> None:
        self.acceptance, self.started, self.model = list(acceptance), started, model
        self.drafts = self.generated = self.ended = 0
        self.positions = [0] * len(self.acceptance)
        self._rng = np.random.default_rng(seed)

    def run(self, drafts: int) -> None:
        """So many drafts are verified, in requests of twenty."""
        self.drafts += drafts
        reached = drafts
        for place, chance in enumerate(self.acceptance):
            reached = int(self._rng.binomial(reached, chance))
            self.positions[place] += reached
            self.generated += reached
        self.generated += drafts + drafts // 20
        self.ended += drafts // 20

    def restart(self) -> None:
        self.__init__(self.acceptance, seed=int(self._rng.integers(99)), started=self.started + 1000)  # type: ignore[misc]

    def page(self) -> str:
        label = f'engine="0",model_name="{self.model}"'
        lines = [
            f"process_start_time_seconds {self.started}",
            f"vllm:num_requests_running{{{label}}} 1",
            f"vllm:num_requests_waiting{{{label}}} 0",
            f"vllm:kv_cache_usage_perc{{{label}}} 0.25",
            f"vllm:generation_tokens_total{{{label}}} {self.generated}",
            f"vllm:spec_decode_num_drafts_total{{{label}}} {self.drafts}",
            f"vllm:spec_decode_num_draft_tokens_total{{{label}}} {self.drafts * len(self.positions)}",
            f"vllm:spec_decode_num_accepted_tokens_total{{{label}}} {sum(self.positions)}",
            f'vllm:request_success_total{{{label},finished_reason="length"}} {self.ended}',
            *(
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{label},position="{place}"}} {count}'
                for place, count in enumerate(self.positions)
            ),
        ]
        return "\n".join(lines) + "\n"
