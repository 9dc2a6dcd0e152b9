"""Pages for people: text that is built once, when it is first asked for, and then sent as it is."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

Pages = Mapping[str, Callable[[], str]]
"""By path: what writes the page, a whole HTML document that asks for nothing but this server's own paths."""

_HEADERS = {
    "cache-control": "no-cache",  # requested again each time, and sent only if it has changed
    "vary": "accept-encoding",
    "content-security-policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",  # beside the page's own
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class _Built:
    plain: bytes
    zipped: bytes
    tag: str
    """Of HTTP: another text has another."""

    @classmethod
    def of(cls, write: Callable[[], str]) -> _Built:
        plain = write().encode("utf-8")
        return cls(plain, gzip.compress(plain, 6, mtime=0), f'W/"{hashlib.sha256(plain).hexdigest()[:24]}"')


def pages(found: Pages) -> APIRouter:
    """The paths of these pages, for GET and HEAD. They need no key, and say nothing of what is served."""
    router = APIRouter()
    built: dict[str, _Built] = {}

    def page(path: str, write: Callable[[], str]) -> None:
        @router.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)
        async def answer(request: Request) -> Response:
            if path not in built:
                built[path] = await asyncio.to_thread(_Built.of, write)
            return _answer(built[path], request)

    for path, write in found.items():
        page(path, write)
    return router


def _answer(page: _Built, request: Request) -> Response:
    headers = {**_HEADERS, "etag": page.tag}
    if page.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = page.plain
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        body, headers["content-encoding"] = page.zipped, "gzip"
    return Response(body, media_type="text/html", headers=headers)


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
