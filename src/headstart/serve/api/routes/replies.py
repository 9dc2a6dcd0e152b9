"""What the paths have in common: reading a body, answering JSON, and what the OpenAPI description says of both."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from headstart.serve.api.schemas.strict import Strict
from headstart.serve.api.stream import as_json

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": words, "content": {"application/json": {"schema": _ERROR}}}
    for status, words in {
        400: "The request cannot be", 401: "A key is wanted", 403: "Not by this name", 404: "No such model or path",
        405: "Another method", 408: "The body took too long", 413: "The body is too large", 415: "Not JSON",
        429: "Too many wait; Retry-After says how long", 500: "The server failed", 503: "Loading, or being stopped",
    }.items()
}  # fmt: skip


def takes(schema: type[Strict], summary: str) -> dict[str, Any]:
    """The description of a path with a JSON body. The body is read by `read`, not by FastAPI, for its errors."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}}
    return {
        "summary": summary,
        "responses": ERRORS,
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }


async def body_of(request: Request) -> bytes:
    """The body, which `BoundedBody` has read already."""
    return await request.body()


def json_reply(data: Any, status: int = 200) -> Response:
    """JSON as it is."""
    return Response(as_json(data), status, media_type="application/json")
