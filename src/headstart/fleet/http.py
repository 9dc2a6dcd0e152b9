"""HTTP to servers, on this machine and elsewhere: how a request is sent, when it is sent again, and what went wrong.

Requests to this machine never take the proxy that the environment names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from headstart.base.errors import EndpointFailed, InvalidOption

LOOPBACK = "127.0.0.1"
HTTPError = httpx2.HTTPError
"""A request without an answer: no connection, one that broke, or too late."""

_BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.CloseError, httpx2.RemoteProtocolError)
_DIRECT: Mapping[str, None] = dict.fromkeys(f"all://{host}" for host in (LOOPBACK, "localhost", "[::1]"))
_SHOWN = 300
"""Characters of an answer that are quoted in a message."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What a user of these requests can do where one fails."""

    late: str
    """No answer in time."""
    absent: str
    """No connection."""
    by_status: Mapping[int, str] = field(default_factory=dict)
    """An answer with this status."""
    other: str = "look into its log"
    """An answer with another status."""

    def of(self, response: httpx2.Response) -> str:
        return self.by_status.get(response.status_code, self.other)


class Client:
    """Sends requests over connections that are kept, from several threads if need be.

    Args:
        hints: for the errors.
        timeout: seconds for the connection and for each part of the answer.
        api_key: sent as a bearer token, where there is one.
        retries: how often a request is sent again when the connection breaks. A server that answers has answered.
    """

    def __init__(self, hints: Hints, *, timeout: float, api_key: str | None = None, retries: int = 0) -> None:
        self.hints = hints
        self._timeout, self._retries = timeout, retries
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx2.Limits(max_connections=256)
        self._client = httpx2.Client(timeout=timeout, headers=headers, limits=limits, mounts=_DIRECT)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def send(self, method: str, url: str, **more: Any) -> httpx2.Response:
        """The answer, whatever its status. more: as for `httpx2.request`.

        Raises:
            EndpointFailed: there is no connection, or no answer in time.
        """
        for attempt in range(self._retries + 1):
            try:
                return self._client.request(method, url, **more)
            except httpx2.TimeoutException as error:
                raise EndpointFailed(
                    f"{url} did not answer within {self._timeout:g} s", hint=self.hints.late
                ) from error
            except HTTPError as error:
                if not (self._retries and isinstance(error, _BROKEN)):
                    raise EndpointFailed(f"no connection to {url}: {error}", hint=self.hints.absent) from error
                if attempt == self._retries:
                    raise EndpointFailed(
                        f"{url} broke the connection {attempt + 1} times: {error}",
                        hint="look into the server's log: it may have crashed, or be out of memory",
                    ) from error
                time.sleep(0.1 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")


def ask(method: str, url: str, *, seconds: float, **more: Any) -> httpx2.Response:
    """One request in a connection of its own. more: as for `httpx2.request`.

    Certificates are loaded for https alone: reading them takes fifty times as long as a request without them.

    Raises:
        HTTPError: no server answers, or not within so many seconds.
    """
    with httpx2.Client(timeout=seconds, verify=httpx2.URL(url).scheme == "https", mounts=_DIRECT) as client:
        return client.request(method, url, **more)


def answers(url: str, path: str, *, seconds: float = 2.0) -> bool:
    """Whether the server answers 200 at this path."""
    try:
        return ask("GET", url + path, seconds=seconds).status_code == 200
    except HTTPError:
        return False


def server_url(url: str, *, example: str, words: str = "is no address of a server") -> httpx2.URL:
    """An address, checked. example, words: for the error.

    Raises:
        InvalidOption: it is no address of a server that speaks HTTP.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise InvalidOption(f"{url!r} is no address: {error}", hint=example) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidOption(f"{url!r} {words}", hint=example)
    return parsed


def short(text: str) -> str:
    """The beginning of an answer, for a message."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
