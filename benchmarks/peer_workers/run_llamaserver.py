"""llama.cpp's own server, with its own speculation: `arguments` are those of its command line.

The server is a child in this worker's process group, so that it is stopped with it. Its prompt cache is off.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

from protocol import Complete, Options, serve

PATIENCE = 300.0


def build(options: Options) -> tuple[Complete, dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, threads = f"http://127.0.0.1:{port}", str(options["threads"])
    command = [options["server"], "-m", options["target"], "-c", str(options["context"]), "-np", "1", "-fa", "on"]
    command += ["-t", threads, "-tb", threads, "--host", "127.0.0.1", "--port", str(port), "--no-ui"]
    child = subprocess.Popen([*command, *options["arguments"]], stdout=subprocess.DEVNULL)

    def ask(path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return dict(json.load(answer))

    start = time.monotonic()
    while True:
        if child.poll() is not None:
            raise RuntimeError(f"the server ended with status {child.returncode}")
        try:
            ask("/health")
            break
        except (urllib.error.URLError, ConnectionError):  # it is still loading
            if time.monotonic() - start > PATIENCE:
                raise
            time.sleep(0.1)

    def complete(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], int | None]:
        fixed = {"temperature": 0, "ignore_eos": True, "cache_prompt": False, "return_tokens": True}
        return [
            list(ask("/completion", {"prompt": p, "n_predict": new_tokens, **fixed})["tokens"]) for p in prompts
        ], None

    return complete, {"arguments": [part.rpartition("/")[2] for part in options["arguments"]]}  # files by name alone


if __name__ == "__main__":
    serve(build)
