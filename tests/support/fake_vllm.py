"""A server that answers as vLLM's does, in a fraction of a second and without a model: for what starts engines.

As a script it takes vLLM's command line (``-m vllm.entrypoints.cli.main serve --config FILE --host H --port N``) and
ignores what it does not know. The environment makes it misbehave: FAKE_VLLM holds words such as ``dies`` (before it
answers), ``silent`` (never ready), ``slow=SECONDS`` (to each token) and ``text=WORD`` (what it writes).
Only the standard library is imported here: it runs everywhere.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "fake"


class Engine(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, behaviour: dict[str, str]) -> None:
        super().__init__((host, port), Handler)
        self.behaviour = behaviour
        self.tokens = self.requests = self.running = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(b"")
        elif self.path == "/v1/models":
            self._json({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 512}]})
        elif self.path == "/metrics":
            self._answer(self._metrics().encode(), "text/plain; version=0.0.4")
        else:
            self._json({"error": {"message": f"no {self.path}"}}, status=404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/completions":
            self._json({"error": {"message": f"no {self.path}"}}, status=404)
            return
        self.server.requests += 1
        self.server.running += 1
        try:
            self._complete(body)
        finally:
            self.server.running -= 1

    def _complete(self, body: dict[str, Any]) -> None:
        word = self.server.behaviour.get("text", "word")
        words = [f" {word}{i}" for i in range(int(body.get("max_tokens", 16)))]
        slow = float(self.server.behaviour.get("slow", 0))
        if not body.get("stream"):
            time.sleep(slow * len(words))
            self.server.tokens += len(words)
            usage = {"prompt_tokens": 1, "completion_tokens": len(words), "total_tokens": len(words) + 1}
            self._json({**self._head(), "choices": [self._choice("".join(words), "length")], "usage": usage})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for word in words:
            time.sleep(slow)
            self.server.tokens += 1
            self._event(json.dumps({**self._head(), "choices": [self._choice(word, None)]}))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _head(self) -> dict[str, Any]:
        return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": MODEL, "engine": os.getpid()}

    def _choice(self, text: str, reason: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        self.wfile.flush()

    def _metrics(self) -> str:
        labels = f'{{engine="0",model_name="{MODEL}"}}'
        rows = {
            "vllm:generation_tokens_total": self.server.tokens,
            "vllm:num_requests_running": self.server.running,
            "vllm:num_requests_waiting": 0,
            "vllm:spec_decode_num_drafts_total": 0,
            "vllm:spec_decode_num_draft_tokens_total": 0,
            "vllm:spec_decode_num_accepted_tokens_total": 0,
        }
        return "".join(f"{name}{labels} {value}.0\n" for name, value in rows.items())

    def _json(self, body: dict[str, Any], status: int = 200) -> None:
        self._answer(json.dumps(body).encode(), "application/json", status)

    def _answer(self, body: bytes, kind: str = "text/plain", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        print(f"INFO: {self.address_string()} {format % args}", flush=True)


def main(words: list[str]) -> None:
    given = dict(itertools.pairwise(words))
    behaviour = dict(word.partition("=")[::2] for word in os.environ.get("FAKE_VLLM", "").split())
    print(f"INFO: starting a fake vLLM on port {given['--port']}", flush=True)
    if "dies" in behaviour:
        print("ValueError: planted", flush=True)
        sys.exit(1)
    if "silent" in behaviour:
        time.sleep(3600)
    Engine(given["--host"], int(given["--port"]), behaviour).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
