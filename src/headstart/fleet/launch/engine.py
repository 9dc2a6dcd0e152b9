"""One engine of a fleet: a vLLM server from an export, as a child process with its share of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.fleet.http import LOOPBACK, HTTPError, answers, ask
from headstart.fleet.launch.served import Served
from headstart.fleet.processes import Child, Children
from headstart.fleet.vllm import Installation, environment, serve_command
from headstart.fleet.watch.scrape import scrape

T = TypeVar("T")


def check_free(host: str, port: int) -> None:
    """Raise `InvalidOption` if something listens on the port, or the address is not this machine's."""
    error = _bound(host, port)
    if error is not None:
        raise InvalidOption(f"cannot listen on {host}:{port}: {error}", hint="choose another --port")


def free_ports(after: int) -> Iterator[int]:
    """Ports of the loopback above `after` that are free now, each once."""
    for port in range(after + 1, 65536):
        if _bound(LOOPBACK, port) is None:
            yield port
    raise InvalidOption(f"no port above {after} is free", hint="choose a lower --port")


def _bound(host: str, port: int) -> str | None:
    """Why the port cannot be listened on, or None."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.strerror or str(error)
    return None


def processors() -> tuple[int, ...]:
    """The processors that this process may use, by number; empty where the system does not list them."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; empty where there are none."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return tuple(name.strip() for name in given.split(",") if name.strip())
    try:
        command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        listed = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=20.0, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(listed.stdout.split())


def share(things: Sequence[T], index: int, count: int, each: int | None = None) -> tuple[T, ...]:
    """What the engine `index` of `count` gets: its part of `things`, or `each` of them; where there are too few of
    them, engines share."""
    if not things:
        return ()
    size = max(1, len(things) // count) if each is None else each
    return tuple(things[(index * size + i) % len(things)] for i in range(min(size, len(things))))


_SETTLE = 0.5
"""Seconds in which a request that the router has just sent shows in the engine's counters."""


@dataclass
class Engine:
    """An engine that was started. name: also of its log. place: which of the fleet's places it takes, from 0.
    restarts: how often it was started again in a row. born: when, by the monotonic clock."""

    name: str
    place: int
    port: int
    served: Served
    child: Child = field(repr=False)
    restarts: int = 0
    born: float = field(default_factory=time.monotonic)

    @property
    def url(self) -> str:
        """Where it answers; the interface of OpenAI is below /v1."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        return self.child.log

    def ready(self) -> bool:
        """Whether it takes requests; a server of something else that took the port meanwhile does not count."""
        return answers(self.url, "/health") and self.served.name in _models(self.url)

    def idle(self) -> bool:
        """Whether no request runs or waits in it; an engine without counters counts as busy."""
        try:
            return all(not each.running and not each.waiting for each in scrape(self.url))
        except EndpointFailed:
            return not self.child.alive

    def drain(self, seconds: float) -> bool:
        """Wait until it is idle; False if it was not within so many seconds."""
        until = time.monotonic() + seconds
        time.sleep(_SETTLE)
        while not self.idle():
            if time.monotonic() > until:
                return False
            time.sleep(0.2)
        return True


def _models(url: str) -> tuple[str, ...]:
    """The models that a server lists; none if it is no server of models."""
    try:
        listed = ask("GET", f"{url}/v1/models", seconds=5.0).json()["data"]
        return tuple(str(each["id"]) for each in listed)
    except (HTTPError, ValueError, KeyError, TypeError):
        return ()


def start_engine(
    children: Children, installation: Installation, served: Served, *, name: str, place: int, places: int, port: int,
    plugin: Path | None = None,
) -> Engine:  # fmt: skip
    """Start an engine at one of so many places: it gets that place's share of the processors, or of the GPUs.

    plugin: a folder that its python shall find packages in, beside its own.
    """
    env = environment(installation, processors=_processors(place, places, served.ranks), ranks=served.ranks)
    if plugin is not None:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(plugin), env.get("PYTHONPATH"))))
    if not installation.cpu and (devices := share(gpus(), place, places, each=served.ranks)):
        env["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    command = serve_command(installation, served.config, model=served.model, port=port, flags=served.flags)
    return Engine(name, place, port, served, children.start(name, command, env=env))


def _processors(place: int, places: int, ranks: int) -> tuple[int, ...] | None:
    found = share(processors(), place, places)
    if not found:
        return None
    return found if len(found) >= ranks else share(processors(), place, places, each=ranks)
