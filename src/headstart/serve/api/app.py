"""The application: layers that guard, then the paths.

From outside: a number and a line of log for every request, errors as answers (`Reporting`); CORS, if asked for; host,
key and content type (`Gate`); a body of bounded size and time (`BoundedBody`). All are plain ASGI, so that a client's
disconnect reaches the code that waits for its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, MutableMapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from headstart.base.errors import HeadstartError
from headstart.serve.api.agents import agents
from headstart.serve.api.errors import METHOD, NOT_FOUND, failure_of, failure_reply
from headstart.serve.api.layers import ASGI, OPEN_PATHS, BoundedBody, Gate, Reporting
from headstart.serve.api.routes import Pages, generation, pages, status, tokens
from headstart.serve.api.schemas.messages import CountRequest, MessagesRequest
from headstart.serve.api.schemas.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    SlotRequest,
    TokenizeRequest,
)
from headstart.serve.api.schemas.responses import ResponsesRequest
from headstart.serve.api.schemas.strict import Strict
from headstart.serve.api.service import Service, Source
from headstart.serve.api.slots import slots
from headstart.serve.api.stream import ClientGone
from headstart.serve.bridge import Bridge
from headstart.serve.options import ServerOptions

_SCHEMAS: tuple[type[Strict], ...] = (
    ChatRequest, CompletionRequest, ResponsesRequest, MessagesRequest, CountRequest, TokenizeRequest, DetokenizeRequest,
    SlotRequest,
)  # fmt: skip


class Application:
    """The server as an ASGI application.

    source: what is served, or how to load it.
    grace_seconds: that running requests have to end when the server is stopped.
    on_ready, on_failure: are called when the model is there, or could not be loaded.
    pages: for people, by path; everybody may load them.

    Raises:
        InvalidOption: others could reach it without a key.
    """

    def __init__(
        self,
        source: Source,
        options: ServerOptions | None = None,
        *,
        grace_seconds: float = 30.0,
        on_ready: Callable[[Bridge], None] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        pages: Pages | None = None,
    ) -> None:
        options = options or ServerOptions()
        options.check_safe()
        self.service = Service(options)
        self._source, self._grace_seconds = source, grace_seconds
        self._on_ready, self._on_failure = on_ready, on_failure
        self._pages = dict(pages or {})
        self._guarded = _guarded(self._api(), options, OPEN_PATHS | self._pages.keys())

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await self._guarded(scope, receive, send)

    def _api(self) -> FastAPI:
        api = FastAPI(
            title="headstart",
            version=version("headstart"),
            lifespan=self._lifespan,
            docs_url=None,  # its pages load scripts from elsewhere
            redoc_url=None,
        )
        services = (generation, agents, tokens, status, slots)
        for router in (pages(self._pages), *(make(self.service) for make in services)):
            api.include_router(router)
        api.add_exception_handler(HeadstartError, _on_error)
        api.add_exception_handler(HTTPException, _on_http)
        api.add_exception_handler(ClientGone, _on_gone)
        api.add_exception_handler(Exception, _on_error)
        _describe(api)
        return api

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(self._begin())
        if not callable(self._source):
            await loading
        try:
            yield
        finally:
            loading.cancel()
            with suppress(asyncio.CancelledError):
                await loading
            await self.service.end(self._grace_seconds)

    async def _begin(self) -> None:
        await self.service.begin(self._source)
        if self.service.failure is None:
            if self._on_ready is not None:
                self._on_ready(self.service.ready.bridge)
        elif self._on_failure is not None:
            self._on_failure(self.service.failure)


def _guarded(api: ASGI, options: ServerOptions, open_paths: Collection[str]) -> ASGI:
    inner: Any = Gate(BoundedBody(api, options), options, open_paths)
    if options.cors_origins:
        inner = CORSMiddleware(
            inner,
            allow_origins=list(options.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-api-key", "x-request-id"],
            expose_headers=["x-request-id", "retry-after"],
        )
    return Reporting(inner)


async def _on_error(request: Request, error: Exception) -> Response:
    return failure_reply(failure_of(error), request.url.path)


async def _on_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)  # the client is gone; the status is for the log


async def _on_http(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    return failure_reply({404: NOT_FOUND, 405: METHOD}.get(code) or failure_of(error), request.url.path)


def _describe(api: FastAPI) -> None:
    """Put the schemas of bodies into the OpenAPI description; the paths refer to them."""
    build = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            found = build()
            known = found.setdefault("components", {}).setdefault("schemas", {})
            for schema in _SCHEMAS:
                shape = schema.model_json_schema(ref_template="#/components/schemas/{model}")
                known.update(shape.pop("$defs", {}))
                known[schema.__name__] = shape
            api.openapi_schema = found
        return api.openapi_schema or {}

    api.openapi = openapi  # type: ignore[method-assign]
