"""The layers that guard the paths, as plain ASGI, from outside: `Reporting`, `Gate`, `BoundedBody`.

A line of log has the number, method, path, status and time of a request; never a prompt, a key or an answer.

A page of another site can make a browser send requests to a server on the user's own machine. Exact host names stop
names that were rebound to this address; the content type stops requests that browsers send without asking first.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any

from headstart.serve.api.errors import Refused, failure_of, failure_reply
from headstart.serve.api.stream import ClientGone, Receive, note
from headstart.serve.options import ServerOptions

_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")
_UNSAFE = re.compile(r"[^\x21-\x7e]")
log = logging.getLogger("headstart.serve")


class Reporting:
    """Gives each answer its `x-request-id` (the client's own if it sent one), and turns what is raised into answers."""

    def __init__(self, app: ASGI) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        number = given if _ID.fullmatch(given) else f"req_{uuid.uuid4().hex}".encode()
        status = 0

        async def named(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", number)]
            await send(message)

        start = time.perf_counter()
        words = "client gone"
        try:
            await self._app(scope, receive, named)
            words = str(status)
        except ClientGone:
            pass
        except Exception as error:
            note(error, f"request {number.decode()}")
            failure = failure_of(error)
            words = f"{failure.status} {failure.code or ''}".strip()
            if status == 0:
                await failure_reply(failure, scope["path"])(scope, receive, named)
        finally:
            path = _UNSAFE.sub("?", scope["path"])[:80]
            took = 1000 * (time.perf_counter() - start)
            log.info("%s %s %s %s %.1f ms", number.decode(), scope["method"], path, words, took)


ASGI = Callable[
    [MutableMapping[str, Any], Callable[..., Awaitable[Any]], Callable[..., Awaitable[None]]], Awaitable[None]
]
OPEN_PATHS = frozenset({"/health"})
"""Paths without a key: those who watch a server need to know no more than whether it runs. Pages are open, too: they
are the same on every server, and ask for the key themselves."""


class Keys:
    """The keys that may ask. Kept and compared as hashes, each with every one, so that time tells nothing."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._hashes = [_hash(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def owner(self, key: str | None) -> str | None:
        """A name for the owner of this key, from which the key cannot be derived; None if no owner has it.

        key: as a header has it, its bytes read as Latin-1. Clients write other letters in either encoding.
        """
        text = key or ""
        given = _hash(text), hashlib.sha256(text.encode("latin-1", "replace")).digest()
        found = None
        for each in self._hashes:
            if hmac.compare_digest(given[0], each) | hmac.compare_digest(given[1], each):
                found = each
        return None if found is None else hashlib.sha256(found).hexdigest()[:16]


class Gate:
    """Lets requests through whose host, key and content type are right. Raises `Refused` for all others.

    open_paths: need no key.
    """

    def __init__(self, app: ASGI, options: ServerOptions, open_paths: Collection[str] = OPEN_PATHS) -> None:
        self._app = app
        self._open_paths = frozenset(open_paths)
        self._keys = Keys(options.api_keys)
        self._hosts = allowed_hosts(options)
        self._shared = options.share_cache

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            _check_framing(headers)
            self._check_host(headers)
            owner = None if scope["path"] in self._open_paths else self._check_key(headers)
            if scope["method"] == "POST":
                _check_content_type(headers)
            state = scope.setdefault("state", {})
            state["owner"], state["salt"] = owner or "", "" if owner is None or self._shared else owner
        await self._app(scope, receive, send)

    def _check_host(self, headers: Mapping[bytes, str]) -> None:
        if "*" in self._hosts:
            return
        if _host_name(headers.get(b"host", "")) not in self._hosts:
            raise Refused(
                "this server does not go by the name in the Host header",
                hint="use its address, or start it with --allowed-host NAME",
                status=403, kind="permission_error", code="unknown_host",
            )  # fmt: skip

    def _check_key(self, headers: Mapping[bytes, str]) -> str | None:
        if not self._keys:
            return None
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        given = key.strip(" \t") if scheme.lower() == "bearer" else headers.get(b"x-api-key")
        owner = self._keys.owner(given)
        if owner is None:
            raise Refused(
                "the key is wrong" if given else "this server wants a key",
                hint="send it as 'Authorization: Bearer KEY'",
                status=401, kind="authentication_error", code="invalid_api_key",
            )  # fmt: skip
        return owner


def allowed_hosts(options: ServerOptions) -> frozenset[str]:
    """The names of this server. A name that anyone can bind to its address is not among them."""
    names = {host.lower() for host in options.allowed_hosts}
    if options.loopback:
        return frozenset(names | {"localhost", "127.0.0.1", "[::1]", options.host.lower()})
    if options.host in ("0.0.0.0", "::"):  # which address clients use is not known; they need a key in any case
        return frozenset(names or {"*"})
    return frozenset(names | {options.host.lower()})


def _host_name(header: str) -> str:
    """The Host header without its port."""
    name = header.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.rpartition(":")[0] if ":" in name else name


def _check_content_type(headers: Mapping[bytes, str]) -> None:
    kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        hint = "send the header Content-Type: application/json"
        raise Refused("the body must be JSON", hint=hint, status=415, code="unsupported_media_type")


def _check_framing(headers: Mapping[bytes, str]) -> None:
    """A proxy that believed the length would take the rest of the body for another request (RFC 9112, 6.1)."""
    if b"content-length" in headers and b"transfer-encoding" in headers:
        words = "the request has both Content-Length and Transfer-Encoding"
        raise Refused(words, hint="send one of them", code="ambiguous_length", closes=True)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


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
            words = f"the body did not arrive within {self._seconds:g} seconds"
            raise Refused(words, hint="send it at once", status=408, code="body_timeout", closes=True) from None
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
        words = f"the body has more than {self._most} bytes"
        hint = "send less, or start the server with a larger --max-body-bytes"
        return Refused(words, hint=hint, status=413, code="body_too_large", closes=True)


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
