"""The outermost layer: a number for every request, one line of log for it, and an error object for every error.

A line has the number, method, path, status and time; never a prompt, a key or an answer.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import MutableMapping
from typing import Any

from headstart.serve.api.errors import failure_of
from headstart.serve.api.replies import failure_reply
from headstart.serve.api.running import ClientGone
from headstart.serve.api.security import ASGI
from headstart.serve.api.stream import note

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
                await failure_reply(failure)(scope, receive, named)
        finally:
            path = _UNSAFE.sub("?", scope["path"])[:80]
            took = 1000 * (time.perf_counter() - start)
            log.info("%s %s %s %s %.1f ms", number.decode(), scope["method"], path, words, took)
