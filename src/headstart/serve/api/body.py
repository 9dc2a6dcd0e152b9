"""The body of a request, read before anything looks at it: at most so many bytes, in at most so many seconds."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from headstart.serve.api.errors import Refused
from headstart.serve.api.running import ClientGone, Receive
from headstart.serve.api.security import ASGI
from headstart.serve.api.settings import ServerOptions


class BoundedBody:
    """Reads the body, and hands it on in one piece; what comes after it (the client's end) as it comes."""

    def __init__(self, app: ASGI, options: ServerOptions) -> None:
        self._app = app
        self._most, self._seconds = options.max_body_bytes, options.body_seconds

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            await self._app(scope, receive, _closing(send) if _has_body(scope) else send)
            return
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if length.isdigit() and int(length[:20]) > self._most:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._read(receive)
        except TimeoutError:
            raise Refused(
                f"the body did not arrive within {self._seconds:g} seconds",
                hint="send it at once",
                status=408,
                code="body_timeout",
                closes=True,
            ) from None
        await self._app(scope, _replayed(body, receive), send)

    async def _read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > self._most:
                raise self._too_large()
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> Refused:
        return Refused(
            f"the body has more than {self._most} bytes",
            hint="send less, or start the server with a larger --max-body-bytes",
            status=413,
            code="body_too_large",
            closes=True,
        )


def _has_body(scope: MutableMapping[str, Any]) -> bool:
    sizes = {name: value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")}
    return sizes.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in sizes


def _closing(send: Any) -> Any:
    """As `send`; the connection ends with the answer, since the server does not read the body to its end."""

    async def last(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        await send(message)

    return last


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
