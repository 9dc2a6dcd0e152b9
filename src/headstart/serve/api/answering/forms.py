"""The two forms of answers: of `/v1/chat/completions` and of `/v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.serve.api.answering.logprobs import chat_logprobs, completion_logprobs
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
