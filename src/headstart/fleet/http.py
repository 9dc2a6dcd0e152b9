"""This machine's own address, and requests to servers on it."""

from __future__ import annotations

from typing import Any

import httpx2

LOOPBACK = "127.0.0.1"


def ask(method: str, url: str, *, seconds: float, **more: Any) -> httpx2.Response:
    """One request by plain HTTP, in a connection of its own. more: as for `httpx2.request`.

    Certificates are not loaded: nothing here is encrypted, and reading them takes fifty times as long as the request.

    Raises:
        httpx2.HTTPError: nobody answers, or not within so many seconds.
    """
    return httpx2.request(method, url, timeout=seconds, verify=False, **more)


def answers(url: str, path: str, *, seconds: float = 2.0) -> bool:
    """Whether the server answers 200 at this path."""
    try:
        return ask("GET", url + path, seconds=seconds).status_code == 200
    except httpx2.HTTPError:
        return False
