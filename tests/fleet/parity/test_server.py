"""What is read of a server: a fake vLLM on the loopback, which answers and counts as a recording says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headstart.base.errors import EndpointFailed
from headstart.fleet.parity.subject import Server

PAGE = """# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{{engine="{engine}",model_name="m"}} {generated}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="{engine}",model_name="m"}} {running}
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{{engine="{engine}",model_name="m"}} {drafts}
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{{engine="{engine}",model_name="m"}} {drafted}
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{{engine="{engine}",model_name="m"}} {accepted}
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{engine}",model_name="m",position="0"}} {first}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{engine}",model_name="m",position="1"}} {second}
"""
QUIET = PAGE[: PAGE.index("# TYPE vllm:spec_decode_num_drafts")]


class Fake:
    """Two engines behind one address; each completion adds to the second one's counters, a moment late."""

    def __init__(self, *, extra: int = 0, page: str = PAGE, late: int = 2, ids: bool = True, running: int = 0) -> None:
        self.extra, self.page, self.late, self.ids, self.running = extra, page, late, ids, running
        self.generated = 100
        self._pending = 0
        self.asked: list[dict[str, Any]] = []

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        self._pending = self.late
        choice: dict[str, Any] = {"index": 0, "text": "x", "finish_reason": "length"}
        if self.ids:
            choice["token_ids"] = [7] * body["max_tokens"]
        return {"choices": [choice], "usage": {"completion_tokens": body["max_tokens"], "prompt_tokens": 3}}

    def metrics(self) -> str:
        if self.asked and self._pending == 0:
            self.generated = 100 + self.asked[-1]["max_tokens"] + self.extra
        self._pending = max(0, self._pending - 1)
        done = self.generated > 100
        counts = {"drafts": 3 * done + 5, "drafted": 6 * done + 10, "accepted": 4 * done + 8}
        counts |= {"first": 3 * done + 5, "second": done + 3, "running": self.running}
        still = dict.fromkeys(("generated", *counts), 11)
        pages = (
            self.page.format(engine=0, **{**still, "running": 0}),
            self.page.format(engine=1, generated=self.generated, **counts),
        )
        return "".join(line for page in pages for line in page.splitlines(keepends=True))


@contextmanager
def serving(fake: Fake) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            models = self.path.endswith("/models")
            self._answer(json.dumps({"data": [{"id": "m"}]}) if models else fake.metrics())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(json.dumps(fake.complete(body)))

        def _answer(self, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_completion_is_asked_by_token_and_counted_once_the_counters_have_followed() -> None:
    fake = Fake()
    with serving(fake) as url, Server(f"{url}/v1") as server:
        answered = server.complete((1, 2, 3), 8)
    assert answered.tokens == (7,) * 8
    counts = answered.counts
    assert (counts.generated, counts.drafts, counts.drafted, counts.accepted_per_position) == (8, 3, 6, (3, 1))
    (body,) = fake.asked
    assert (body["prompt"], body["max_tokens"], body["temperature"]) == ([1, 2, 3], 8, 0.0)
    assert body["ignore_eos"] is True
    assert body["return_token_ids"] is True


@pytest.mark.parametrize(
    ("fake", "said"),
    [
        (Fake(extra=5), "serves others at the same time: it counted 13 tokens and gave us 8"),
        (Fake(running=2), "serves others at the same time: 2 requests run"),
        (Fake(page=QUIET), "does not speculate"),
        (Fake(ids=False), "gives no token ids"),
        (Fake(late=10_000), "gave 8 tokens and counted 0"),
    ],
)
def test_what_makes_counters_useless_is_refused(fake: Fake, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fake.late > 1000:
        monkeypatch.setattr("headstart.fleet.parity.subject.SECONDS", 0.0)
    with serving(fake) as url, Server(url) as server, pytest.raises(EndpointFailed, match=said) as caught:
        server.complete((1, 2, 3), 8)
    assert caught.value.hint


def test_nobody_there_is_an_error_with_a_hint() -> None:
    with pytest.raises(EndpointFailed, match="no connection"), Server("http://127.0.0.1:9") as server:
        server.complete((1,), 4)
