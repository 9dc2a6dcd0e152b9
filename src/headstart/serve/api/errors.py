"""Errors as HTTP: the status of every `HeadstartError`, and OpenAI's error object for it; answers in JSON.

No message holds a path, a prompt or a stack trace: of errors that a client can cause the message is shown, of all
others a general sentence.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from headstart.base import errors
from headstart.base.errors import HeadstartError

LONGEST_RETRY = 120
"""Seconds; official clients ignore a longer Retry-After."""
_FIELD = re.compile(r"([a-z_]+(?:\.[a-z_]+)*)(?:=|\[)")


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a client sees it."""

    status: int
    message: str
    kind: str
    """The error object's `type`."""
    code: str | None = None
    """For programs."""
    param: str | None = None
    """The field that is wrong."""
    retry_after: float | None = None
    """Seconds after which to try again."""
    closes: bool = False
    """Whether the connection ends with the answer: what is left of the request is not read."""

    @property
    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> Mapping[str, str]:
        """Whether to try again, and when: official clients obey both."""
        headers = {"x-should-retry": "true" if self.retry_after is not None else "false"}
        if self.retry_after is not None:
            headers["retry-after"] = str(max(1, min(LONGEST_RETRY, math.ceil(self.retry_after))))
        if self.closes:
            headers["connection"] = "close"
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


class Refused(HeadstartError):
    """A request that this interface refuses; the arguments are the fields of its `failure`."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        closes: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.failure = Failure(status, _words(self), kind, code, param, retry_after, closes)

    @classmethod
    def with_(cls, failure: Failure) -> Refused:
        """The error that a client sees as this failure."""
        made = cls(failure.message)
        made.failure = failure
        return made


def invalid_value(param: str, message: str, hint: str) -> Refused:
    """A field has a value that cannot be; param: the field."""
    return Refused(message, hint=hint, code="invalid_value", param=param)


def unsupported(param: str, message: str, hint: str) -> Refused:
    """A field is of another interface, and would change the answer; param: the field."""
    return Refused(message, hint=hint, code="unsupported_field", param=param)


def failure_of(error: BaseException) -> Failure:
    """The failure that a client sees for any error."""
    if not isinstance(error, HeadstartError):
        return _INTERNAL
    words = _words(error)
    match error:
        case Refused():
            return error.failure
        case errors.Overloaded():
            return Failure(429, words, "rate_limit_error", "overloaded", None, error.retry_after)
        case errors.ServerStopping():
            return Failure(503, words, "unavailable_error", "stopping", None, 5.0)
        case errors.EngineFailed():
            return Failure(503, words, "unavailable_error", "engine_failed", None, 1.0)
        case errors.ContextExceeded():
            return Failure(400, words, "invalid_request_error", "context_length_exceeded", "prompt")
        case errors.InvalidPrompt():
            return Failure(400, words, "invalid_request_error", "invalid_prompt", "prompt")
        case errors.GrammarFailed():
            return Failure(400, words, "invalid_request_error", "grammar_failed")  # the grammar is the client's
        case errors.InvalidGrammar():
            return Failure(400, words, "invalid_request_error", "invalid_grammar", None)
        case errors.InvalidOption():
            named = _FIELD.match(error.message)
            return Failure(400, words, "invalid_request_error", "invalid_value", named[1] if named else None)
        case errors.NonFiniteLogits():
            return Failure(500, words, "server_error", "non_finite_logits")
        case _:
            return _INTERNAL


def _words(error: HeadstartError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


_INTERNAL = Failure(500, "the server failed at this request; its log says more", "server_error", "internal_error")

LOADING = Failure(503, "Loading model", "unavailable_error", "loading", None, 2.0)
LOADING_FAILED = Failure(503, "the model could not be loaded; the server's log says why", "unavailable_error", "failed")
NOT_FOUND = Failure(
    404,
    "there is no such path; /v1/chat/completions, /v1/responses, /v1/messages, /v1/completions, /v1/models, "
    "/tokenize, /detokenize, /health, /metrics and /slots are served. Embeddings, images and audio are not: this "
    "server writes text",
    "invalid_request_error",
    "not_found",
)
METHOD = Failure(405, "this path does not take this method", "invalid_request_error", "method_not_allowed")


_TEXT, _TEXT_OR_NULL = {"type": "string"}, {"type": ["string", "null"]}
_FIELDS = {"message": _TEXT, "type": _TEXT, "param": _TEXT_OR_NULL, "code": _TEXT_OR_NULL}
_ERROR = {"type": "object", "required": ["message", "type"], "properties": _FIELDS}
_BODY = {"type": "object", "required": ["error"], "properties": {"error": _ERROR}}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": words, "content": {"application/json": {"schema": _BODY}}}
    for status, words in {
        400: "The request cannot be", 401: "A key is wanted", 403: "Not by this name", 404: "No such model or path",
        405: "Another method", 408: "The body took too long", 413: "The body is too large", 415: "Not JSON",
        429: "Too many wait; Retry-After says how long", 500: "The server failed",
        501: "Not as this server was started", 503: "Loading, or being stopped",
    }.items()
}  # fmt: skip


def takes(schema: type[Any], summary: str) -> dict[str, Any]:
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


def failure_reply(failure: Failure, path: str = "", **more: Any) -> Response:
    """An error object, in the form of the path's interface. more: what stands before it in the body."""
    if path.startswith(MESSAGES):
        status = 529 if failure.status == 503 else failure.status
        return json_reply({**more, **messages_error(failure)}, status, failure.headers)
    return json_reply({**more, **failure.body}, failure.status, failure.headers)


MESSAGES = "/v1/messages"
"""Paths that begin so are Anthropic's, and so are their errors."""
_KINDS = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 405: "invalid_request_error",
    408: "timeout_error", 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error",
}  # fmt: skip
_TOO_LONG = re.compile(r"the prompt has (?:more than )?(\d+) tokens and the context holds (\d+)")


def messages_error(failure: Failure) -> dict[str, Any]:
    """Anthropic's error object. Claude Code shortens a conversation when it reads these words of a long prompt."""
    kind = _KINDS.get(failure.status, "api_error" if failure.status >= 500 else "invalid_request_error")
    message = failure.message
    if found := _TOO_LONG.match(message):
        message = f"prompt is too long: {found[1]} tokens > {found[2]} maximum"
    return {"type": "error", "error": {"type": kind, "message": message}}
