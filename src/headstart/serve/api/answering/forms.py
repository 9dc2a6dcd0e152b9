"""The two forms of answers, of `/v1/chat/completions` and of `/v1/completions`, and their log-probabilities.

A chunk of several tokens carries as many log-probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headstart.model.tokens.spelling import Spelling
from headstart.serve.api.answering.pieces import Piece
from headstart.serve.api.answering.writer import Writer
from headstart.types import Output, TokenLogprob

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


class ChatWriter(Writer):
    """Choices with a message, or in a stream with a delta of it."""

    whole_object = "chat.completion"
    event_object = "chat.completion.chunk"

    def _opening(self, _echo: str, /) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def _part(self, piece: Piece, _offset: int, /) -> dict[str, Any]:
        delta = {"content": piece.text} if piece.text or piece.tokens else {}
        return {"delta": delta, "logprobs": self._logprobs(piece.logprobs)}

    def _whole(self, output: Output, _echo: str, /) -> dict[str, Any]:
        message = {"role": "assistant", "content": output.text, "refusal": None}
        return {"message": message, "logprobs": self._logprobs(output.logprobs or ())}

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not self.form.logprobs or not entries:
            return None
        return chat_logprobs(entries, self.spelling, numbered=self.form.numbered)


class CompletionWriter(Writer):
    """Choices with a text, which begins with the prompt where the request wants it echoed."""

    whole_object = event_object = "text_completion"

    def _opening(self, echo: str, /) -> dict[str, Any] | None:
        return {"text": echo, "logprobs": None} if echo or self.form.token_ids else None

    def _part(self, piece: Piece, offset: int, /) -> dict[str, Any]:
        return {"text": piece.text, "logprobs": self._logprobs(piece.logprobs, offset)}

    def _whole(self, output: Output, echo: str, /) -> dict[str, Any]:
        return {"text": echo + output.text, "logprobs": self._logprobs(output.logprobs or (), 0)}

    def _logprobs(self, entries: Sequence[TokenLogprob], offset: int) -> dict[str, Any] | None:
        if not self.form.logprobs or not entries:
            return None
        return completion_logprobs(entries, self.spelling, numbered=self.form.numbered, offset=offset)
