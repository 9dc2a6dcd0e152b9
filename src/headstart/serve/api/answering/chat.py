"""Answers of `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.serve.api.answering.logprobs import chat_logprobs
from headstart.serve.api.answering.pieces import Piece
from headstart.serve.api.answering.writer import Writer
from headstart.types import Output, TokenLogprob


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
