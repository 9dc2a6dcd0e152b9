"""What is written into a completion request, and how much of it a server takes.

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headstart.types import Sampling

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
