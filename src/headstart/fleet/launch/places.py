"""Where engines run on this machine: free ports, and a share of its processors or GPUs for each."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from typing import TypeVar

from headstart.base.errors import InvalidOption
from headstart.fleet.loopback import LOOPBACK

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
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20.0, check=True)
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
