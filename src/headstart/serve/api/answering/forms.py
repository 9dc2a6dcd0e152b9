"""The two forms of answers, of `/v1/chat/completions` and of `/v1/completions`, and their log-probabilities.

A chunk of several tokens carries as many log-probabilities.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from headstart.model.tokens.spelling import Spelling
from headstart.serve.api.answering.pieces import Piece
from headstart.serve.api.answering.reasoned import parts_of
from headstart.serve.api.answering.writer import Writer
from headstart.serve.api.reading.work import Work
from headstart.serve.api.schemas.tools import input_of
from headstart.serve.conversation.parts import (
    CallArguments,
    CallClosed,
    Called,
    CallOpened,
    Content,
    Message,
    Part,
    Reasoning,
)
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
    """Choices with a message, or in a stream with deltas of it: its reasoning, its content, its calls of tools."""

    whole_object = "chat.completion"
    event_object = "chat.completion.chunk"

    def __init__(self, work: Work, head: Mapping[str, Any], spelling: Spelling) -> None:
        super().__init__(work, head, spelling)
        self._replies = [work.reply.begin() for _ in work.jobs]
        self._read: list[list[Part]] = [[] for _ in work.jobs]
        self._ids: dict[tuple[int, int], str] = {}
        self._texts: dict[tuple[int, int], str] = {}
        """By choice and call: arguments so far of an open call of a tool that takes a text."""
        if work.reply.reasons:
            for counts in self._counts:
                counts.reasoning = 0

    def _opening(self, _echo: str, /) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def _part(self, choice: int, piece: Piece, _offset: int, /) -> list[dict[str, Any]]:
        deltas = self._deltas(choice, self._parts_of(choice, piece))
        if not deltas and (self.form.logprobs or self.form.token_ids or piece.lines):
            deltas = [{"content": ""}]
        found: list[dict[str, Any]] = [{"delta": delta, "logprobs": None} for delta in deltas]
        if found:
            found[0]["logprobs"] = self._logprobs(piece.logprobs)
        return found

    def _last(self, choice: int, /) -> list[dict[str, Any]]:
        deltas = self._deltas(choice, self._replies[choice].finish())
        return [{"delta": delta, "logprobs": None} for delta in [*deltas, {}]]

    def _note(self, choice: int, piece: Piece, /) -> None:
        self._read[choice] += self._parts_of(choice, piece)

    def _whole(self, choice: int, output: Output, _echo: str, /) -> dict[str, Any]:
        parts = [*self._read[choice], *self._replies[choice].finish()]
        found = Message.of(parts)
        message: dict[str, Any] = {
            "role": "assistant", "content": found.content, "refusal": None, "annotations": [],
        }  # fmt: skip
        if found.reasoning and self.form.reasoning:
            message |= {"reasoning_content": found.reasoning, "reasoning": found.reasoning}
        if found.calls:
            message["content"] = found.content or None
            message["tool_calls"] = [
                {"id": self._id(choice, index), **self._called(call)} for index, call in enumerate(found.calls)
            ]
        return {"message": message, "logprobs": self._logprobs(output.logprobs or ())}

    def _called(self, call: Called) -> dict[str, Any]:
        if call.name in self.form.texts:
            return {"type": "custom", "custom": {"name": call.name, "input": input_of(call.arguments)}}
        return {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}

    def _finish_reason(self, choice: int, output: Output, /) -> str:
        found = super()._finish_reason(choice, output)
        called = self._replies[choice].whole_calls > 0 and not self.form.named_call
        return "tool_calls" if found == "stop" and called else found

    def _warnings(self) -> list[str]:
        said = [warning for reply in self._replies for warning in reply.warnings]
        return list(dict.fromkeys([*super()._warnings(), *said]))

    def _parts_of(self, choice: int, piece: Piece) -> list[Part]:
        return parts_of(piece, self._replies[choice], self._counts[choice], self.spelling)

    def _deltas(self, choice: int, parts: Sequence[Part]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for part in parts:
            match part:
                case Reasoning(text):
                    if self.form.reasoning:
                        found.append({"reasoning_content": text, "reasoning": text})
                case Content(text):
                    found.append({"content": text})
                case CallOpened(index, name) if name in self.form.texts:
                    self._texts[choice, index] = ""
                    custom = {"name": name, "input": ""}
                    call = {"index": index, "id": self._id(choice, index), "type": "custom", "custom": custom}
                    found.append({"tool_calls": [call]})
                case CallArguments(index, text) if (choice, index) in self._texts:
                    self._texts[choice, index] += text  # what a piece of JSON means may depend on the next one
                case CallClosed(index) if (choice, index) in self._texts:
                    text = input_of(self._texts.pop((choice, index)))
                    found.append({"tool_calls": [{"index": index, "custom": {"input": text}}]})
                case CallOpened(index, name):
                    function = {"name": name, "arguments": ""}
                    call = {"index": index, "id": self._id(choice, index), "type": "function", "function": function}
                    found.append({"tool_calls": [call]})
                case CallArguments(index, text):
                    found.append({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        return found

    def _id(self, choice: int, index: int) -> str:
        """The id of a call: made once."""
        return self._ids.setdefault((choice, index), f"call_{secrets.token_hex(12)}")

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not self.form.logprobs or not entries:
            return None
        return chat_logprobs(entries, self.spelling, numbered=self.form.numbered)


class CompletionWriter(Writer):
    """Choices with a text, which begins with the prompt where the request wants it echoed."""

    whole_object = event_object = "text_completion"

    def _opening(self, echo: str, /) -> dict[str, Any] | None:
        return {"text": echo, "logprobs": None} if echo or self.form.token_ids else None

    def _part(self, _choice: int, piece: Piece, offset: int, /) -> list[dict[str, Any]]:
        return [{"text": piece.text, "logprobs": self._logprobs(piece.logprobs, offset)}]

    def _last(self, _choice: int, /) -> list[dict[str, Any]]:
        return [{"text": "", "logprobs": None}]

    def _whole(self, _choice: int, output: Output, echo: str, /) -> dict[str, Any]:
        return {"text": echo + output.text, "logprobs": self._logprobs(output.logprobs or (), 0)}

    def _logprobs(self, entries: Sequence[TokenLogprob], offset: int) -> dict[str, Any] | None:
        if not self.form.logprobs or not entries:
            return None
        return completion_logprobs(entries, self.spelling, numbered=self.form.numbered, offset=offset)
