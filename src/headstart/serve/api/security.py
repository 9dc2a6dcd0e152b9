"""Who may ask: host names, keys and content types, before anything of a request is read.

A page of another site can make a browser send requests to a server on the user's own machine. Exact host names stop
names that were rebound to this address; the content type stops requests that browsers send without asking first.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any

from headstart.serve.api.errors import Refused
from headstart.serve.api.settings import ServerOptions

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
            scope.setdefault("state", {})["salt"] = "" if owner is None or self._shared else owner
        await self._app(scope, receive, send)

    def _check_host(self, headers: Mapping[bytes, str]) -> None:
        if "*" in self._hosts:
            return
        if _host_name(headers.get(b"host", "")) not in self._hosts:
            raise Refused(
                "this server does not go by the name in the Host header",
                hint="use its address, or start it with --allowed-host NAME",
                status=403,
                kind="permission_error",
                code="unknown_host",
            )

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
                status=401,
                kind="authentication_error",
                code="invalid_api_key",
            )
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
        raise Refused(
            "the body must be JSON",
            hint="send the header Content-Type: application/json",
            status=415,
            code="unsupported_media_type",
        )


def _check_framing(headers: Mapping[bytes, str]) -> None:
    """A proxy that believed the length would take the rest of the body for another request (RFC 9112, 6.1)."""
    if b"content-length" in headers and b"transfer-encoding" in headers:
        raise Refused(
            "the request has both Content-Length and Transfer-Encoding",
            hint="send one of them",
            code="ambiguous_length",
            closes=True,
        )


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
