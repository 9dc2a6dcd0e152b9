"""What becomes of the sampling of a request: tokens that exist, and a seed for each choice."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from headstart.serve.api.errors import invalid_value
from headstart.types import Sampling


def checked_tokens(sampling: Sampling, vocab_size: int) -> Sampling:
    """The same, if every token that it names exists.

    Raises:
        Refused: one does not.
    """
    for param, named in (("stop_token_ids", sampling.stop_token_ids), ("logit_bias", sampling.logit_bias)):
        outside = next((token for token in named if not 0 <= token < vocab_size), None)
        if outside is not None:
            hint = f"this model has the ids 0 to {vocab_size - 1}"
            raise invalid_value(param, f"{param} names token {outside}", hint)
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
    names = (
        "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
        "max_tokens", "min_tokens", "seed",
    )  # fmt: skip
    return {name: getattr(sampling, name) for name in names}
