"""The answers of `/v1/messages` and `/v1/responses`: one reply, whole or as events that have names.

Both are built from the parts of the reply, by `blocks` and by `items`: what a stream shows and what a whole answer has
is the same.
"""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from headstart.model.tokens.spelling import Spelling
from headstart.serve.api.answering.blocks import Blocks
from headstart.serve.api.answering.figures import Counts, Done
from headstart.serve.api.answering.items import Items
from headstart.serve.api.answering.pieces import Json, piece_of
from headstart.serve.api.answering.reasoned import parts_of
from headstart.serve.api.answering.writer import Answering
from headstart.serve.api.errors import Failure, as_json, messages_error
from headstart.serve.api.reading.work import Work
from headstart.serve.api.schemas.responses import Named
from headstart.serve.conversation.parts import Part
from headstart.types import Chunk, Output


class Single(Answering):
    """Writes one reply as named events."""

    def __init__(self, work: Work, spelling: Spelling) -> None:
        super().__init__(work)
        self._reply, self._spelling = work.reply.begin(), spelling
        self._counts = Counts(reasoning=0 if work.reply.reasons else None)

    @abstractmethod
    def _parts(self, parts: Sequence[Part], /) -> list[Json]:
        """The events of parts of the reply."""

    @abstractmethod
    def _end(self, done: Done, /) -> list[Json]:
        """The events with which the answer ends."""

    def encode(self, event: Mapping[str, Any]) -> bytes:
        return b"event: " + str(event["type"]).encode() + b"\ndata: " + as_json(event) + b"\n\n"

    def take(self, _choice: int, chunks: Sequence[Chunk]) -> None:
        self._counts.add(chunks)
        self._parts(self._read(chunks))

    def feed(self, _choice: int, chunks: Sequence[Chunk]) -> list[Json]:
        self._counts.add(chunks)
        return self._parts(self._read(chunks))

    def finish(self, _choice: int, output: Output) -> list[Json]:
        return [*self._parts(self._reply.finish()), *self._end(Done(output, self._counts))]

    def _read(self, chunks: Sequence[Chunk]) -> list[Part]:
        return parts_of(piece_of(chunks), self._reply, self._counts, self._spelling)

    def _rest(self, output: Output) -> Done:
        """Read the end of an answer that does not stream."""
        self._parts(self._reply.finish())
        return Done(output, self._counts)

    def _warnings(self) -> list[str]:
        return [*super()._warnings(), *self._reply.warnings]


class MessagesWriter(Single):
    """Anthropic's message, and its events. The tokens that the cache held are counted apart from the others."""

    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    end = b""

    def __init__(self, work: Work, spelling: Spelling, model: str, context: int) -> None:
        super().__init__(work, spelling)
        self._blocks, self._context = Blocks(), context
        self._stops = work.stops
        self._head = {
            "id": f"msg_{secrets.token_hex(24)}", "type": "message", "role": "assistant", "model": model,
            "container": None,
        }  # fmt: skip

    def open(self) -> list[Json]:
        usage = _usage(len(self.work.jobs[0].prompt), 0, 0)
        message: Json = {**self._head, "content": [], **_stopped(None), "usage": usage}
        return [{"type": "message_start", "message": message}, {"type": "ping"}]

    def whole(self, outputs: Sequence[Output]) -> Json:
        done = self._rest(outputs[0])
        self._blocks.close()
        return {
            **self._head,
            "content": self._blocks.content,
            **self._stop(done),
            "usage": _used(done),
            **self._figures([done]),
        }

    def failed(self, failure: Failure) -> list[Json]:
        return [messages_error(failure)]

    def _parts(self, parts: Sequence[Part]) -> list[Json]:
        return self._blocks.feed(parts)

    def _end(self, done: Done) -> list[Json]:
        delta = {"type": "message_delta", "delta": self._stop(done), "usage": _used(done)} | self._figures([done])
        return [*self._blocks.close(), delta, {"type": "message_stop"}]

    def _stop(self, done: Done) -> Json:
        output, stats = done.output, done.output.stats
        if output.finish_reason != "stop":
            full = output.finish_reason == "length" and stats.prompt_tokens + stats.tokens >= self._context
            reason = "model_context_window_exceeded" if full else "max_tokens"
        elif output.stop in self._stops:
            return _stopped("stop_sequence", output.stop)
        else:
            reason = "tool_use" if self._reply.whole_calls else "end_turn"
        return _stopped(reason)


class ResponsesWriter(Single):
    """OpenAI's response, and its events, each with its number.

    shown: the fields of the request that the response repeats.
    names: of functions that are called otherwise in the interface than in the prompt.
    """

    def __init__(
        self, work: Work, spelling: Spelling, model: str, shown: Mapping[str, Any], names: Mapping[str, Named]
    ) -> None:
        super().__init__(work, spelling)
        self._items, self._number = Items(names), 0
        sampling = work.sampling
        self.response: Json = {
            "id": f"resp_{secrets.token_hex(24)}", "object": "response", "created_at": int(time.time()),
            "completed_at": None, "status": "in_progress", "incomplete_details": None, "error": None, "model": model,
            "output": [], "usage": None, "temperature": sampling.temperature, "top_p": sampling.top_p,
            "presence_penalty": sampling.presence_penalty, "frequency_penalty": sampling.frequency_penalty,
            "background": False, "service_tier": "default", "truncation": "disabled", **shown,
        }  # fmt: skip

    def open(self) -> list[Json]:
        kinds = ("response.created", "response.in_progress")
        return [{"type": kind, "response": {**self.response, "output": []}} for kind in kinds]

    def encode(self, event: Mapping[str, Any]) -> bytes:
        self._number += 1  # in the order in which they are sent
        return super().encode({**event, "sequence_number": self._number - 1})

    def whole(self, outputs: Sequence[Output]) -> Json:
        self._complete(self._rest(outputs[0]))
        return self.response

    def failed(self, failure: Failure) -> list[Json]:
        code = failure.code or "server_error"
        self._items.close("incomplete")
        error = {"code": code, "message": failure.message}
        self.response |= {"status": "failed", "error": error, "output": self._items.output}
        return [
            {"type": "error", "param": failure.param, **error, "error": failure.body["error"]},
            {"type": "response.failed", "response": self.response},
        ]

    def _parts(self, parts: Sequence[Part]) -> list[Json]:
        return self._items.feed(parts)

    def _end(self, done: Done) -> list[Json]:
        events = self._complete(done)
        return [*events, {"type": f"response.{self.response['status']}", "response": self.response}]

    def _complete(self, done: Done) -> list[Json]:
        """Fill the response in; the events that end its last item."""
        whole = done.output.finish_reason == "stop"
        events = self._items.close("completed" if whole else "incomplete")
        stats = done.output.stats
        self.response |= {
            "status": "completed" if whole else "incomplete",
            "completed_at": int(time.time()),
            "incomplete_details": None if whole else {"reason": "max_output_tokens"},
            "output": self._items.output,
            "usage": {
                "input_tokens": stats.prompt_tokens,
                "input_tokens_details": {"cached_tokens": stats.cached_tokens},
                "output_tokens": stats.tokens,
                "output_tokens_details": {"reasoning_tokens": done.counts.reasoning or 0},
                "total_tokens": stats.prompt_tokens + stats.tokens,
            },
            **self._figures([done]),
        }
        return events


def _stopped(reason: str | None, stop: str | None = None) -> Json:
    """Why a message ended; `stop_details` are of refusals, of which there are none."""
    return {"stop_reason": reason, "stop_sequence": stop, "stop_details": None}


def _used(done: Done) -> Json:
    stats = done.output.stats
    return _usage(stats.prompt_tokens - stats.cached_tokens, stats.cached_tokens, stats.tokens)


def _usage(new: int, cached: int, written: int) -> Json:
    """Anthropic's `usage`: its three numbers of the input add up to the prompt. What is not counted here is null."""
    absent = ("cache_creation", "inference_geo", "output_tokens_details", "server_tool_use", "service_tier")
    return {
        "input_tokens": new,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": written,
        **dict.fromkeys(absent),
    }
