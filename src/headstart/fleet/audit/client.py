"""HTTP to an OpenAI-compatible server: requests out, JSON in, and a typed error for everything that goes wrong.

Only a connection that breaks is tried again: a server that answers has answered. Field names of answers are those of
the OpenAI API reference, "Completions" and "Models".
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2

from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.measure.audit.subject import Refused

_BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.CloseError, httpx2.RemoteProtocolError)
_SHOWN = 300
"""Characters of an answer that are quoted in a message."""


class Client:
    """The connection to a server, safe to use from several threads.

    Args:
        url: of the server, of its API ("http://host:8000/v1") or of the completions themselves.
        timeout: seconds to wait for an answer.
        retries: how often a request is sent again when the connection breaks.
    """

    def __init__(self, url: str, *, api_key: str | None = None, timeout: float = 120.0, retries: int = 3) -> None:
        self.url = completions_url(url)
        self._models_url = self.url.removesuffix("/completions") + "/models"
        self._timeout = timeout
        self._retries = retries
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx2.Client(timeout=timeout, headers=headers, limits=httpx2.Limits(max_connections=256))

    def close(self) -> None:
        self._client.close()

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """POST a completion request; the answer as a JSON object.

        Raises:
            Refused: an HTTP error, with the server's own message.
            EndpointFailed: no connection, no answer in time, or an answer that is not a JSON object.
        """
        answer = self._read(self._send(lambda: self._client.post(self.url, json=body)), self.url)
        if not isinstance(answer, dict):
            raise EndpointFailed(
                f"{self.url} answered with JSON that is no object: {_short(json.dumps(answer))}",
                hint="give the URL of an OpenAI-compatible server's completions, such as http://localhost:8000/v1",
            )
        return answer

    def models(self) -> list[str]:
        """The names that GET .../models lists; [] where the server does not tell."""
        try:
            answer = self._read(self._send(lambda: self._client.get(self._models_url)), self._models_url)
            return [str(entry["id"]) for entry in answer["data"]]
        except (Refused, KeyError, TypeError):
            return []
        except EndpointFailed as error:
            if isinstance(error.__cause__, ValueError):  # not JSON
                return []
            raise

    def _send(self, request: Callable[[], httpx2.Response]) -> httpx2.Response:
        for attempt in range(self._retries + 1):
            try:
                return request()
            except httpx2.TimeoutException as error:
                raise EndpointFailed(
                    f"{self.url} did not answer within {self._timeout:g} s",
                    hint="a busy server needs more time (--timeout) or fewer requests at once (--concurrency)",
                ) from error
            except _BROKEN as error:
                if attempt == self._retries:
                    raise EndpointFailed(
                        f"{self.url} broke the connection {attempt + 1} times: {error}",
                        hint="look into the server's log: it may have crashed, or be out of memory",
                    ) from error
                time.sleep(0.1 * 2**attempt)
            except httpx2.TransportError as error:
                raise EndpointFailed(
                    f"no connection to {self.url}: {error}",
                    hint="is the server running, and does the URL name its host and port?",
                ) from error
        raise AssertionError("the last attempt returns or raises")

    def _read(self, response: httpx2.Response, url: str) -> Any:
        if response.status_code >= 400:
            raise Refused(
                f"{url} answered {response.status_code}: {_reason(response)}",
                hint=_HINTS.get(response.status_code, "the server's log should say more"),
                status=response.status_code,
            )
        try:
            return response.json()
        except ValueError as error:
            raise EndpointFailed(
                f"{url} answered with something that is not JSON: {_short(response.text)}",
                hint="give the URL of an OpenAI-compatible server's completions, such as http://localhost:8000/v1",
            ) from error


_HINTS = {
    401: "the server wants a key: name the variable that holds it with --api-key-env",
    403: "the server does not take this key: see --api-key-env",
    404: "check the URL (vLLM, SGLang and llama.cpp serve under /v1, OpenVINO model server under /v3) and --model",
    429: "the server wants fewer requests at once: lower --concurrency",
}


def completions_url(url: str) -> str:
    """The URL of completions: `url` itself if it is one, else below its version, which is /v1 by default."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidOption(f"{url!r} is not the URL of a server", hint="for example http://localhost:8000/v1")
    path = parts.path.rstrip("/")
    if not path.endswith("/completions"):
        versioned = path.rpartition("/")[2] in ("v1", "v2", "v3")
        path += "/completions" if versioned else "/v1/completions"
    return parts._replace(path=path, query="", fragment="").geturl()


def _reason(response: httpx2.Response) -> str:
    """The server's own message, from whichever of the usual places it is in."""
    try:
        found: Any = response.json()
    except ValueError:
        return _short(response.text) or "(nothing more)"
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return _short(found if isinstance(found, str) else json.dumps(found))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
