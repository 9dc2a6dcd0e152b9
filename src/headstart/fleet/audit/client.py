"""An OpenAI-compatible completions server: what is written into a request, JSON in, typed errors.

Only a connection that breaks is tried again: a server that answers has answered. Field names of answers are those of
the OpenAI API reference, "Completions" and "Models".

Beyond OpenAI's own fields, every server is asked in the fields that it knows; a server ignores the others':

- vLLM: `top_k`, `min_p`, `repetition_penalty`, `min_tokens`, `ignore_eos`, `stop_token_ids`, `return_token_ids`,
  `return_tokens_as_token_ids`, `skip_special_tokens`
- SGLang: the same, but `return_tokens_as_token_ids`
- llama.cpp's server: `top_k`, `min_p`, `repeat_penalty` with `repeat_last_n`, `ignore_eos`, `n_probs`, and `samplers`,
  which puts its samplers into the order that the others have (temperature before top_k, top_p and min_p)
- llama-cpp-python's server: `top_k`, `min_p`, `repeat_penalty`; prompts as text
- OpenVINO model server: `top_k`, `min_p`, `repetition_penalty`, `ignore_eos`; prompts as text, `logprobs` 1 at most

Sources: vllm/entrypoints/openai/completion/protocol.py, sglang/srt/entrypoints/openai/protocol.py, llama.cpp's
tools/server/README.md, OpenVINO model server's docs/model_server_rest_api_completions.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headstart.base.errors import EndpointFailed
from headstart.fleet import http
from headstart.fleet.http import server_url, short
from headstart.measure.audit.subject import Refused
from headstart.types import Sampling

_COMPLETIONS = "give the URL of an OpenAI-compatible server's completions, such as http://localhost:8000/v1"
_HINTS = http.Hints(
    late="a busy server needs more time (--timeout) or fewer requests at once (--concurrency)",
    absent="is the server running, and does the URL name its host and port?",
    by_status={
        401: "the server wants a key: name the variable that holds it with --api-key-env",
        403: "the server does not take this key: see --api-key-env",
        404: "check the URL (vLLM, SGLang and llama.cpp serve under /v1, OpenVINO model server under /v3) and --model",
        429: "the server wants fewer requests at once: lower --concurrency",
    },
    other="the server's log should say more",
)


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
        self._client = http.Client(_HINTS, timeout=timeout, api_key=api_key, retries=retries)

    def close(self) -> None:
        self._client.close()

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """POST a completion request; the answer as a JSON object.

        Raises:
            Refused: an HTTP error, with the server's own message.
            EndpointFailed: no connection, no answer in time, or an answer that is not a JSON object.
        """
        answer = self._json("POST", self.url, json=body)
        if not isinstance(answer, dict):
            raise EndpointFailed(
                f"{self.url} answered with JSON that is no object: {short(json.dumps(answer))}", hint=_COMPLETIONS
            )
        return answer

    def models(self) -> list[str]:
        """The names that GET .../models lists; [] where the server does not tell."""
        try:
            return [str(entry["id"]) for entry in self._json("GET", self._models_url)["data"]]
        except (Refused, KeyError, TypeError):
            return []
        except EndpointFailed as error:
            if isinstance(error.__cause__, ValueError):  # not JSON
                return []
            raise

    def _json(self, method: str, url: str, **more: Any) -> Any:
        response = self._client.send(method, url, **more)
        if response.status_code >= 400:
            raise Refused(
                f"{url} answered {response.status_code}: {_reason(response.text)}",
                hint=_HINTS.of(response),
                status=response.status_code,
            )
        try:
            return response.json()
        except ValueError as error:
            raise EndpointFailed(
                f"{url} answered with something that is not JSON: {short(response.text)}", hint=_COMPLETIONS
            ) from error


def completions_url(url: str) -> str:
    """The URL of completions: `url` itself if it is one, else below its version, which is /v1 by default."""
    found = server_url(url, example="for example http://localhost:8000/v1", words="is not the URL of a server")
    path = found.path.rstrip("/")
    if not path.endswith("/completions"):
        versioned = path.rpartition("/")[2] in ("v1", "v2", "v3")
        path += "/completions" if versioned else "/v1/completions"
    return str(found.copy_with(path=path, query=None, fragment=None))


def _reason(answer: str) -> str:
    """The server's own message, from whichever of the usual places it is in."""
    try:
        found: Any = json.loads(answer)
    except ValueError:
        return short(answer) or "(nothing more)"
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return short(found if isinstance(found, str) else json.dumps(found))


ALTERNATIVES = 5
"""Alternatives asked for with each token: what most servers give."""
_LLAMA_CPP_ORDER = ["penalties", "temperature", "top_k", "top_p", "min_p"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The requests that a server takes.

    ids: prompts as token ids, not text
    extras: fields that OpenAI does not have
    logprobs: alternatives to ask for with each token; None where it does not take the field
    no_top_k: the value of top_k that switches it off
    """

    ids: bool
    extras: bool
    logprobs: int | None
    no_top_k: int = -1

    def __str__(self) -> str:
        prompts = "prompts as token ids" if self.ids else "prompts as text"
        fields = "with the fields of vLLM, SGLang and llama.cpp" if self.extras else "with OpenAI's fields only"
        return f"{prompts}, {fields}, " + ("no logprobs" if self.logprobs is None else f"logprobs={self.logprobs}")


DIALECTS = tuple(
    Dialect(ids=ids, extras=extras, logprobs=logprobs, no_top_k=no_top_k)
    for logprobs in (ALTERNATIVES, 1, None)
    for extras, no_top_k in ((True, -1), (True, 0), (False, -1))
    for ids in (True, False)
)
"""From the most informative down to what every server takes."""


def request_body(
    model: str, prompt: str | Sequence[int], sampling: Sampling, dialect: Dialect, *, seed: int | None
) -> dict[str, Any]:
    """The JSON of one request. Every field that shapes the distribution is written out: servers' defaults differ.

    What `sampling` leaves off is not sent where only some servers know it and `dialect` has no extras.
    """
    body: dict[str, Any] = {
        "model": model,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "stream": False,
    }
    if seed is not None:
        body["seed"] = seed
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    if dialect.logprobs is not None:
        body["logprobs"] = dialect.logprobs
    fields = _extras(sampling, dialect)
    if not dialect.extras:  # only what this very request cannot do without
        off = Sampling()
        fields = {name: v for name, v in fields.items() if getattr(sampling, name, None) != getattr(off, name, None)}
    return body | fields


def _extras(sampling: Sampling, dialect: Dialect) -> dict[str, Any]:
    extras: dict[str, Any] = {
        "top_k": sampling.top_k or dialect.no_top_k,  # each is an error in some: 0 in vLLM, -1 in llama-cpp-python
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": -1,
        "samplers": _LLAMA_CPP_ORDER,
        "ignore_eos": sampling.ignore_eos,
        "return_token_ids": True,
        "skip_special_tokens": True,
    }
    if sampling.min_tokens:
        extras["min_tokens"] = sampling.min_tokens
    if sampling.stop_token_ids:
        extras["stop_token_ids"] = list(sampling.stop_token_ids)
    if dialect.logprobs is not None:
        extras |= {"return_tokens_as_token_ids": True, "n_probs": dialect.logprobs}
    return extras
