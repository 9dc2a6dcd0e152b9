"""uvicorn, as this server needs it: sockets that give up on dead clients, and a stop that lets answers end."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headstart.base.errors import InvalidOption
from headstart.serve.api.app import Application
from headstart.serve.api.errors import Refused
from headstart.serve.api.layers import Reporting
from headstart.serve.options import ServerOptions

_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name))
_HEADER_SECONDS = 30.0
"""A connection may be silent, or send a head piece by piece, for so long."""
_LONGEST_HEAD = 64 * 1024
_CROWDED_SECONDS = 2.0
"""After which to come back where too many connections are open."""
_AFTER_GRACE = 5.0
"""Seconds that streams have, behind the grace, to send their last events."""


class Server(uvicorn.Server):
    """Listens until a signal stops it, then lets the running requests end, each with its finish reason.

    on_started: is called with the URL once connections are taken.
    """

    def __init__(
        self,
        app: Application,
        options: ServerOptions,
        *,
        grace_seconds: float,
        on_started: Callable[[str], None] | None = None,
    ) -> None:
        self._app, self._service = app, app.service
        self._most = options.max_connections
        self._full = Reporting(_refuse)
        self._grace = grace_seconds
        self._on_started = on_started
        super().__init__(
            uvicorn.Config(
                self._unless_crowded,
                interface="asgi3", http=_Patient, ws="none", lifespan="on", log_config=None, access_log=False,
                server_header=False, proxy_headers=False, h11_max_incomplete_event_size=_LONGEST_HEAD,
                timeout_graceful_shutdown=round(grace_seconds + _AFTER_GRACE),
            )
        )  # fmt: skip

    async def _unless_crowded(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """The application, where there are not too many connections; uvicorn's own word for that is no error object."""
        crowded = scope["type"] == "http" and len(self.server_state.connections) >= self._most
        await (self._full if crowded else self._app)(scope, receive, send)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if sockets and not self.should_exit and self._on_started is not None:
            self._on_started(url_of(sockets[0]))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, and let those that run end within the grace; at a second signal end them at once."""
        ending = asyncio.create_task(self._service.end(self._grace))
        await super().shutdown(sockets)
        if self.force_exit:
            await self._service.end(0.0)
        await ending

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM, on Windows also Ctrl-Break, stop the server. They are not raised again afterwards: being
        stopped is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in _STOPPING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


async def _refuse(_scope: MutableMapping[str, Any], _receive: Any, _send: Any) -> None:
    raise Refused(
        "too many connections are open", hint="come back in a few seconds", status=503, kind="unavailable_error",
        code="too_many_connections", retry_after=_CROWDED_SECONDS, closes=True,
    )  # fmt: skip


class _Patient(H11Protocol):
    """Closes connections on which no request comes: idle ones would use up what the server can hold."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_request()

    def _await_request(self) -> None:
        self.loop.call_later(_HEADER_SECONDS, self._give_up, self.cycle)

    def _give_up(self, seen: object) -> None:
        if self.cycle is seen and not self.transport.is_closing():
            self.transport.close()


def bound_socket(options: ServerOptions) -> socket.socket:
    """The socket that the server listens on.

    Raises:
        InvalidOption: the address does not exist here, or the port is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sets TCP_NODELAY only where the protocol is named; without it an answer waits 40 ms between its parts
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise InvalidOption(
            f"host={options.host!r} is no address of this machine", hint="127.0.0.1 is; 0.0.0.0 stands for all of them"
        ) from error
    # On Windows SO_REUSEADDR lets two programs have one port, and a port that was just left is free without it
    found.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR), 1)
    with suppress(OSError, AttributeError):  # Linux: a client that takes nothing is dropped by the kernel, too
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(2000 * options.stall_seconds))
    try:
        found.bind(address)
    except OSError as error:
        found.close()
        problem = f"cannot listen on {options.host} port {options.port}: {error.strerror}"
        hint = "another program may have the port: choose one with --port, or 0 for a free one"
        raise InvalidOption(problem, hint=hint) from error
    return found


def url_of(bound: socket.socket) -> str:
    """The URL under which a socket is reached, from this machine where it listens on all addresses."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
