"""Log-probabilities as OpenAI's two interfaces write them. A chunk of several tokens carries as many entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headstart.model.tokens.spelling import Spelling
from headstart.types import TokenLogprob

LEAST = -9999.0
"""Stands for minus infinity, which JSON does not have; OpenAI's."""


def chat_logprobs(entries: Sequence[TokenLogprob], spelling: Spelling, *, numbered: bool) -> dict[str, Any]:
    """`logprobs` of a chat choice: {"content": [{token, logprob, bytes, top_logprobs}]}."""
    return {
        "content": [
            {
                **_entry(each.token, each.logprob, spelling, numbered=numbered),
                "top_logprobs": [
                    _entry(token, logprob, spelling, numbered=numbered) for token, logprob in _sorted(each)
                ],
            }
            for each in entries
        ],
        "refusal": None,
    }


def completion_logprobs(
    entries: Sequence[TokenLogprob], spelling: Spelling, *, numbered: bool, offset: int
) -> dict[str, Any]:
    """`logprobs` of a completion choice: four lists, one element for each token.

    offset: characters of the text before the first token.
    """
    names = [_name(each.token, spelling, numbered=numbered) for each in entries]
    offsets: list[int] = []
    for each in entries:
        offsets.append(offset)
        offset += len(spelling.text(each.token))
    return {
        "tokens": names,
        "token_logprobs": [_finite(each.logprob) for each in entries],
        "top_logprobs": [
            {_name(token, spelling, numbered=numbered): _finite(value) for token, value in _sorted(each)}
            for each in entries
        ],
        "text_offset": offsets,
    }


def _entry(token: int, logprob: float, spelling: Spelling, *, numbered: bool) -> dict[str, Any]:
    return {
        "token": _name(token, spelling, numbered=numbered),
        "logprob": _finite(logprob),
        "bytes": list(spelling.raw(token)),
    }


def _name(token: int, spelling: Spelling, *, numbered: bool) -> str:
    return f"token_id:{token}" if numbered else spelling.text(token)


def _sorted(entry: TokenLogprob) -> list[tuple[int, float]]:
    return sorted(entry.top.items(), key=lambda pair: -pair[1])


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST
