"""A router that takes vllm-router's command line and answers as it does, for what starts one: stdlib only, one thread
for each request. It streams what an engine answers, and asks the next engine where one does not take a request."""

from __future__ import annotations

import http.client
import itertools
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Router(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, engines: list[str]) -> None:
        super().__init__((host, port), Handler)
        self.engines = engines
        self.turn = itertools.count()


class Handler(BaseHTTPRequestHandler):
    server: Router

    def do_GET(self) -> None:
        if self.path == "/list_workers":
            self._answer(200, json.dumps({"urls": self.server.engines}).encode())
        elif self.path == "/readiness":
            self._answer(200, b"{}")
        else:
            self._forward("GET", b"")

    def do_POST(self) -> None:
        path, url = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query).get("url", [""])[0]
        if path == "/add_worker":
            self.server.engines.append(url)
            self._answer(200, b"added")
        elif path == "/remove_worker":
            self.server.engines.remove(url)
            self._answer(200, b"removed")
        else:
            self._forward("POST", self.rfile.read(int(self.headers.get("content-length", 0))))

    def _forward(self, method: str, body: bytes) -> None:
        engines = list(self.server.engines)
        first = next(self.server.turn)
        for i in range(len(engines)):
            at = urlsplit(engines[(first + i) % len(engines)])
            connection = http.client.HTTPConnection(str(at.hostname), at.port)
            try:
                connection.request(method, self.path, body, {"content-type": "application/json"})
                answer = connection.getresponse()
            except OSError:
                continue
            self.send_response(answer.status)
            self.send_header("content-type", answer.headers.get("content-type", "text/plain"))
            self.end_headers()
            while part := answer.read1():
                self.wfile.write(part)
                self.wfile.flush()
            connection.close()
            return
        self._answer(503, b"no engine")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(words: list[str]) -> None:
    given = dict(itertools.pairwise(words))
    first = words.index("--worker-urls") + 1
    engines = list(itertools.takewhile(lambda word: not word.startswith("--"), words[first:]))
    Router(given["--host"], int(given["--port"]), engines).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
