"""Answers in JSON, errors among them, and what the OpenAPI description says of bodies and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from headstart.serve.api.errors import Failure
from headstart.serve.api.schemas.strict import Strict

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


def as_json(data: Any) -> bytes:
    """Compact JSON in UTF-8, without NaN."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def json_reply(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON as it is."""
    return Response(as_json(data), status, headers, media_type="application/json")


def failure_reply(failure: Failure, **more: Any) -> Response:
    """An error object. more: what stands before it in the body."""
    return json_reply({**more, **failure.body}, failure.status, failure.headers)
