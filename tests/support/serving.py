"""An OpenAI-compatible completions server on the loopback, on a headstart engine, with switches for what can be wrong.

It answers in the shapes of vLLM ("ids", "numbered"), llama.cpp ("content"), OpenAI ("strings", "text").
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headstart.engine.engine import Engine
from headstart.types import Output, Sampling

MODEL = "the-model"


@dataclass
class Replies:
    """How the server answers, and what is wrong with it. after(output, sampling) may change what was generated."""

    tokens: str = "ids"
    logprobs: bool = True
    ids_accepted: bool = True
    extras_accepted: bool = True
    most_logprobs: int = 5
    least_top_k: int = -1
    delay: float = 0.0
    status: int | None = None
    raw: bytes | None = None
    drop_connections: int = 0
    refused: frozenset[str] = frozenset()
    count_prompt: Callable[[int], int] = lambda count: count
    sampling: Callable[[Sampling], Sampling] = lambda sampling: sampling
    after: Callable[[Engine, list[int], Output, Sampling], tuple[tuple[int, ...], str]] | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)


EXTRAS = {"top_k", "min_p", "repetition_penalty", "return_token_ids", "samplers", "ignore_eos"}


@contextmanager
def serving(engine: Engine, replies: Replies | None = None) -> Iterator[str]:
    """The URL of a running server."""
    replies = replies or Replies()
    lock = threading.Lock()  # an engine is stepped by one thread

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(200, {"data": [{"id": MODEL}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            replies.requests.append(body)
            if replies.drop_connections > 0:
                replies.drop_connections -= 1
                self.close_connection = True
                return
            time.sleep(replies.delay)
            if replies.raw is not None:
                self._send(200, replies.raw)
            elif replies.status is not None:
                self._answer(replies.status, {"error": {"message": "out of memory"}})
            elif (wrong := _refusal(body, replies)) is not None:
                self._answer(404 if "model" in wrong else 400, {"error": {"message": wrong}})
            else:
                with lock:
                    answer = _complete(engine, body, replies)
                self._answer(200, answer)

        def _answer(self, status: int, value: Any) -> None:
            self._send(status, json.dumps(value).encode())

        def _send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _refusal(body: dict[str, Any], replies: Replies) -> str | None:
    if body["model"] != MODEL:
        return f"model {body['model']} does not exist"
    if not isinstance(body["prompt"], str) and not replies.ids_accepted:
        return "prompt must be a string"
    if EXTRAS & body.keys() and not replies.extras_accepted:
        return f"unknown field {sorted(EXTRAS & body.keys())[0]}"
    if body.get("top_k", 0) < replies.least_top_k:
        return f"top_k should be at least {replies.least_top_k}"
    for name in sorted(replies.refused & body.keys()):
        return f"{name} is not supported with speculative decoding"
    if (body.get("logprobs") or 0) > replies.most_logprobs:
        return f"logprobs may be {replies.most_logprobs} at most"
    return None


def _complete(engine: Engine, body: dict[str, Any], replies: Replies) -> dict[str, Any]:
    prompt = body["prompt"]
    ids = list(engine.tokenizer(prompt)["input_ids"]) if isinstance(prompt, str) else prompt
    asked = Sampling(
        max_tokens=body["max_tokens"],
        temperature=body["temperature"],
        top_p=body["top_p"],
        top_k=max(body.get("top_k", 0), 0),
        min_p=body.get("min_p", 0.0),
        repetition_penalty=body.get("repetition_penalty", 1.0),
        presence_penalty=body["presence_penalty"],
        frequency_penalty=body["frequency_penalty"],
        logit_bias={int(token): bias for token, bias in body.get("logit_bias", {}).items()},
        seed=body.get("seed"),
        stop=body.get("stop", ()),
        stop_token_ids=body.get("stop_token_ids", ()),
        min_tokens=body.get("min_tokens", 0),
        ignore_eos=body.get("ignore_eos", False),
        logprobs=body.get("logprobs"),
    )
    asked = replies.sampling(asked)
    out = engine.generate(ids, asked)
    tokens, reason, text = out.tokens, out.finish_reason, out.text
    if replies.after is not None:
        tokens, reason = replies.after(engine, ids, out, asked)
        if tokens != out.tokens:
            text = engine.tokenizer.decode(tokens, skip_special_tokens=True)
    choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}
    if replies.tokens == "ids" and body.get("return_token_ids"):
        choice["token_ids"] = list(tokens)
    if replies.logprobs and asked.logprobs is not None:
        choice["logprobs"] = _logprobs(engine, out, tokens, replies)
    usage = {"prompt_tokens": replies.count_prompt(len(ids)), "completion_tokens": len(tokens)}
    return {"object": "text_completion", "model": MODEL, "choices": [choice], "usage": usage}


def _logprobs(engine: Engine, out: Output, tokens: tuple[int, ...], replies: Replies) -> dict[str, Any] | None:
    if replies.tokens == "text":
        return None
    entries = out.logprobs or ()

    def name(token: int) -> str:
        if replies.tokens == "numbered":
            return f"token_id:{token}"
        return str(engine.tokenizer.decode([token], skip_special_tokens=True))

    if replies.tokens == "content":
        return {
            "content": [
                {
                    "id": token,
                    "token": name(token),
                    "logprob": entry.logprob,
                    "top_logprobs": [{"id": i, "token": name(i), "logprob": value} for i, value in entry.top.items()],
                }
                for token, entry in zip(tokens, entries, strict=False)
            ]
        }
    return {
        "tokens": [name(token) for token in tokens],
        "token_logprobs": [entries[i].logprob if i < len(entries) else -1.0 for i in range(len(tokens))],
        "top_logprobs": [
            {name(i): value for i, value in entries[at].top.items()} if at < len(entries) else {}
            for at in range(len(tokens))
        ],
    }


def ignores_temperature(sampling: Sampling) -> Sampling:
    return sampling if sampling.greedy else replace(sampling, temperature=1.0)
