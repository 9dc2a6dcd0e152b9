"""From a request's fields to `Sampling`: defaults of the model, and a seed for each choice."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from headstart.serve.api.errors import Refused
from headstart.serve.api.schemas.chat import ChatRequest
from headstart.serve.api.schemas.common import MOST_STOPS, Common
from headstart.serve.api.schemas.completions import CompletionRequest
from headstart.types import Sampling

COMPLETION_TOKENS = 16
"""`max_tokens` of a completion that does not say; OpenAI's."""
_SEEDS = 2**63


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a request does not say: of the model's generation config, else of OpenAI's interface."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Defaults:
        """Those that a generation config has. Whether it says `do_sample` does not matter: requests sample."""
        named = {field.name: config.get(field.name) for field in fields(cls)}
        return cls(**{name: value for name, value in named.items() if value is not None})


def sampling_of(request: Common, defaults: Defaults, *, room: int, salt: str) -> Sampling:
    """The sampling of a request's first choice; the seed is None if it names none.

    room: tokens that the context holds beside the prompt: the most that a chat may write where it does not say.
    salt: what requests must have in common to share a cache.

    Raises:
        Refused, InvalidOption: values that contradict each other, or cannot be.
    """
    limit = _limit(request, room)
    return Sampling(
        max_tokens=limit,
        temperature=_given(request.temperature, defaults.temperature),
        top_k=max(0, _given(request.top_k, defaults.top_k)),
        top_p=_given(request.top_p, defaults.top_p),
        min_p=_given(request.min_p, defaults.min_p),
        repetition_penalty=_repetition_penalty(request, defaults),
        presence_penalty=_given(request.presence_penalty, 0.0),
        frequency_penalty=_given(request.frequency_penalty, 0.0),
        logit_bias=_bias(request.logit_bias or {}),
        seed=None if request.seed is None else request.seed % _SEEDS,
        min_tokens=_given(request.min_tokens, 0),
        stop=_stops(request.stop),
        stop_token_ids=request.stop_token_ids or (),
        ignore_eos=bool(request.ignore_eos),
        logprobs=_logprobs(request),
        cache_salt=salt,
    )


def checked_tokens(sampling: Sampling, vocab_size: int) -> Sampling:
    """The same, if every token that it names exists.

    Raises:
        Refused: one does not.
    """
    for param, named in (("stop_token_ids", sampling.stop_token_ids), ("logit_bias", sampling.logit_bias)):
        outside = next((token for token in named if not 0 <= token < vocab_size), None)
        if outside is not None:
            raise _contradiction(
                param, f"{param} names token {outside}", f"this model has the ids 0 to {vocab_size - 1}"
            )
    return sampling


def for_choice(sampling: Sampling, choice: int) -> Sampling:
    """The sampling of choice 0, 1, ... of a prompt, with a seed of its own (see `seed_of`)."""
    return sampling if sampling.seed is None else replace(sampling, seed=seed_of(sampling.seed, choice))


def seed_of(seed: int, choice: int) -> int:
    """The seed of a choice: the request's own for choice 0, else 63 bits of SHA-256 of "seed:choice".

    So a choice depends neither on how many others there are nor on its place in a batch, and can be repeated alone.
    """
    if choice == 0:
        return seed
    digest = hashlib.sha256(f"{seed}:{choice}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def used(sampling: Sampling) -> dict[str, Any]:
    """What was used, for the answer: the fields that shape the distribution, and the limits."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "max_tokens": sampling.max_tokens,
        "min_tokens": sampling.min_tokens,
        "seed": sampling.seed,
    }


def _limit(request: Common, room: int) -> int:
    if isinstance(request, ChatRequest):
        asked = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
        return max(1, room) if asked is None else asked
    return COMPLETION_TOKENS if request.max_tokens is None else request.max_tokens


def _logprobs(request: Common) -> int | None:
    """How many alternatives the engine gives with each token; None for no log-probabilities."""
    if isinstance(request, ChatRequest):
        if request.top_logprobs and not request.logprobs:
            raise _contradiction("top_logprobs", "top_logprobs needs logprobs", "set logprobs to true")
        return (request.top_logprobs or 0) if request.logprobs else None
    if isinstance(request, CompletionRequest):
        return request.n_probs or None if request.logprobs is None else request.logprobs
    return None


def _repetition_penalty(request: Common, defaults: Defaults) -> float:
    both = {request.repetition_penalty, request.repeat_penalty} - {None}
    if len(both) > 1:
        raise _contradiction(
            "repeat_penalty", "repetition_penalty and repeat_penalty differ", "they are one thing: give one of them"
        )
    return next((value for value in both if value is not None), defaults.repetition_penalty)


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > MOST_STOPS:
        raise _contradiction("stop", f"{len(strings)} stop strings", f"give at most {MOST_STOPS}")
    if not all(strings):
        raise _contradiction("stop", "a stop string is empty", "leave it out")
    return strings


def _bias(pairs: Mapping[str, float]) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in pairs.items()}
    except ValueError:
        raise _contradiction(
            "logit_bias", "a key of logit_bias is no token id", 'for example {"42": -100} forbids token 42'
        ) from None


def _contradiction(param: str, message: str, hint: str) -> Refused:
    return Refused(message, hint=hint, code="invalid_value", param=param)


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value
