"""vllm-router before the engines: found, started, and given its engines.

It is the Rust router of the vLLM project (PyPI: vllm-router). Of what it can do, this uses: a policy, retries of
requests that a dead engine did not take, health checks, and adding and removing engines while requests run. Seen with
version 0.1.17: a request that has begun on an engine stays there when the engine is removed, and ends normally.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headstart.base.errors import EngineNotFound, ServerFailed
from headstart.fleet.http import LOOPBACK, HTTPError, answers, ask
from headstart.fleet.processes import Child, Children
from headstart.fleet.vllm import Installation

PROGRAM = "vllm-router"
INSTALL = (
    "pip install vllm-router (in the environment of headstart, that of vLLM, or one that is on the PATH), or start "
    "without a router: --router none"
)

_HEALTH_SECONDS = 5
"""Between the router's own looks at each engine; its default is a minute."""
_TIMEOUT = 60.0


def find_router(installation: Installation) -> Path:
    """The program: beside vLLM's python, beside headstart's, or on the PATH.

    Raises:
        EngineNotFound: there is none.
    """
    for folder in (installation.python.parent, Path(sys.executable).parent):
        if (folder / PROGRAM).is_file():
            return folder / PROGRAM
    found = shutil.which(PROGRAM)
    if found is None:
        raise EngineNotFound(f"{PROGRAM} is not installed", hint=INSTALL)
    return Path(found)


def router_command(
    program: Path, engines: Sequence[str], *, policy: str, host: str, port: int, metrics_port: int
) -> list[str]:
    """Its command line. engines: their URLs, each of which must answer by then. Its own metrics are on the loopback."""
    return [
        str(program), "--worker-urls", *engines, "--policy", policy, "--host", host, "--port", str(port),
        "--prometheus-host", LOOPBACK, "--prometheus-port", str(metrics_port),
        "--health-check-interval-secs", str(_HEALTH_SECONDS), "--log-level", "warning",
        "--cors-allowed-origins", f"http://{host}:{port}",
    ]  # fmt: skip


class Router:
    """A router that runs. url: what clients use. metrics: the page of its own counters."""

    def __init__(self, child: Child, host: str, port: int, metrics_port: int) -> None:
        self.child = child
        self.url = f"http://{LOOPBACK if host in ('0.0.0.0', '') else host}:{port}"
        self.metrics = f"http://{LOOPBACK}:{metrics_port}/metrics"

    @classmethod
    def start(cls, children: Children, program: Path, engines: Sequence[str], *, policy: str, host: str, port: int,
              metrics_port: int) -> Router:  # fmt: skip
        command = router_command(program, engines, policy=policy, host=host, port=port, metrics_port=metrics_port)
        return cls(children.start("router", command), host, port, metrics_port)

    def ready(self) -> bool:
        return answers(self.url, "/readiness")

    def engines(self) -> tuple[str, ...]:
        """The URLs of the engines that it sends requests to."""
        answer = self._ask("GET", "/list_workers")
        return tuple(answer.json()["urls"])

    def add(self, engine: str) -> None:
        """Send requests to this engine, too. It must be ready."""
        self._ask("POST", "/add_worker", engine)

    def remove(self, engine: str) -> None:
        """Send no more requests to this engine. Those that it has begun end as they would have."""
        self._ask("POST", "/remove_worker", engine)

    def _ask(self, method: str, path: str, engine: str | None = None) -> Any:
        """A request to the router itself, which must succeed."""
        try:
            params = None if engine is None else {"url": engine}
            answer = ask(method, self.url + path, params=params, seconds=_TIMEOUT)
        except HTTPError as error:
            if not self.child.alive:
                raise self.child.failure() from error
            raise ServerFailed(f"the router did not answer {path}: {error}", hint=self._hint) from error
        if answer.status_code != 200:
            raise ServerFailed(f"the router refused {path}: {answer.text.strip()}", hint=self._hint)
        return answer

    @property
    def _hint(self) -> str:
        return f"its log is {self.child.log}"
