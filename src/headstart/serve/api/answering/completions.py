"""Answers of `/v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.serve.api.answering.logprobs import completion_logprobs
from headstart.serve.api.answering.pieces import Piece
from headstart.serve.api.answering.writer import Writer
from headstart.types import Output, TokenLogprob


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
