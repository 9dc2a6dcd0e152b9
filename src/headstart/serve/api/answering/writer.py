"""An answer, whole or as the events of a stream, in the order that official clients expect.

The events of a stream: an opening one for each choice; pieces; for each choice one with its `finish_reason`; with
`include_usage` one more without choices. `metrics`, `timings` and `headstart` stand on the last of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from headstart.model.tokens.spelling import Spelling
from headstart.serve.api.answering.figures import Counts, Done, metrics, timings, total, usage, usage_of
from headstart.serve.api.answering.pieces import Gathering, Json, Piece, Traced, piece_of, token_by_token
from headstart.serve.api.errors import Failure, as_json
from headstart.serve.api.reading.work import Work, used
from headstart.types import Chunk, Output


class Answering(ABC):
    """Writes the answer of one piece of work, in the form of an interface: whole, or as the events of a stream."""

    ping = b": ping\n\n"
    """What a silent stream sends, so that the connection is kept."""
    end = b"data: [DONE]\n\n"
    """What a stream ends with."""

    def __init__(self, work: Work) -> None:
        self.work, self.form = work, work.form

    @abstractmethod
    def take(self, choice: int, chunks: Sequence[Chunk], /) -> None:
        """Count chunks that are not shown."""

    @abstractmethod
    def whole(self, outputs: Sequence[Output]) -> Json:
        """The answer without a stream."""

    @abstractmethod
    def open(self) -> list[Json]:
        """The events before any text."""

    @abstractmethod
    def feed(self, choice: int, chunks: Sequence[Chunk], /) -> list[Json]:
        """The events of chunks of one choice."""

    @abstractmethod
    def finish(self, choice: int, output: Output, /) -> list[Json]:
        """The events with which a choice ends, and with the last of them the answer."""

    def failed(self, failure: Failure) -> list[Json]:
        """The events of an answer that has begun and ends with an error."""
        return [failure.body]

    def encode(self, event: Mapping[str, Any]) -> bytes:
        """One event of the stream."""
        return b"data: " + as_json(event) + b"\n\n"

    def _warnings(self) -> list[str]:
        """What the client is told besides."""
        return list(self.work.warnings)

    def _figures(self, done: Sequence[Done]) -> Json:
        """What headstart adds to a finished answer: `metrics`, `timings`, what was used, and `warnings`."""
        found: Json = {}
        if self.form.shown.metrics != "none":
            found = {"metrics": metrics(done, self.form.shown), "timings": timings(done)}
        found["headstart"] = {"sampling": used(self.work.sampling) | {"seed": done[0].output.seed}}
        if warnings := self._warnings():
            found["warnings"] = warnings
        return found


class Writer(Answering):
    """Writes the answers of chat and completions, which differ in the form of choices.

    head: what every object of the answer says of it: id, created, model.
    spelling: what tokens are called in log-probabilities.
    """

    whole_object: ClassVar[str]
    event_object: ClassVar[str]

    def __init__(self, work: Work, head: Mapping[str, Any], spelling: Spelling) -> None:
        super().__init__(work)
        self.spelling, self._head = spelling, head
        self._counts = [Counts() for _ in work.jobs]
        self._gathering = [Gathering(work.form.interval) for _ in work.jobs]
        self._written = [0] * len(work.jobs)
        self._done: dict[int, Done] = {}
        self._traced = [Traced(choice, spelling) for choice in range(len(work.jobs))]
        self._lines: list[list[Json]] = [[] for _ in work.jobs]

    # -- what chat and completions differ in ----------------------------------------------------------------------

    @abstractmethod
    def _opening(self, echo: str, /) -> dict[str, Any] | None:
        """The choice of an event before any text. echo: what the text begins with."""

    @abstractmethod
    def _part(self, choice: int, piece: Piece, offset: int, /) -> list[dict[str, Any]]:
        """The choice of each event that a piece becomes, without `index` and `finish_reason`; the first of them has
        what is said of tokens. offset: characters before it."""

    @abstractmethod
    def _last(self, choice: int, /) -> list[dict[str, Any]]:
        """The same of what a choice has held back, at its end; the last one bears its `finish_reason`."""

    @abstractmethod
    def _whole(self, choice: int, output: Output, echo: str, /) -> dict[str, Any]:
        """The choice of a whole answer, echo included, without `index` and `finish_reason`."""

    def _note(self, choice: int, piece: Piece, /) -> None:
        """Take note of a piece of an answer that does not stream."""

    def _finish_reason(self, choice: int, output: Output, /) -> str:  # noqa: ARG002
        # OpenAI's words: what a deadline or the server's end cut ended before its own end, as "length" says;
        # `metrics.headstart.finish_reason` tells which
        return "stop" if output.finish_reason == "stop" else "length"

    # -- a whole answer -------------------------------------------------------------------------------------------

    def take(self, choice: int, chunks: Sequence[Chunk]) -> None:
        """Count chunks that are not shown, and keep their trace for the end."""
        self._counts[choice].add(chunks)
        piece = piece_of(chunks)
        self._lines[choice] += piece.lines
        self._note(choice, piece)

    def whole(self, outputs: Sequence[Output]) -> dict[str, Any]:
        """The answer without a stream."""
        done = [Done(*each) for each in zip(outputs, self._counts, strict=True)]
        choices = [
            {"index": i, **self._whole(i, each.output, self._echo(i)), **self._end(i, each)}
            for i, each in enumerate(done)
        ]
        if self.form.token_ids:
            for choice, each in zip(choices, done, strict=True):
                choice["token_ids"] = list(each.output.tokens)
                choice["prompt_token_ids"] = list(each.output.prompt_tokens)
        found = self._object(self.whole_object, choices)
        if self.form.token_ids and len({each.output.prompt_tokens for each in done}) == 1:
            found["prompt_token_ids"] = list(outputs[0].prompt_tokens)
        found |= {"usage": usage_of(done, self.form.choices, self.form.shown)} | self._figures(done)
        if self.form.shown.trace:
            found["headstart"] |= self._whole_trace()
        return found

    def _whole_trace(self) -> Json:
        """The lines of all choices; each bears its choice's index as its request."""
        events = [traced.event(lines) for traced, lines in zip(self._traced, self._lines, strict=True)]
        return {
            "trace": next((each["trace"] for each in events if "trace" in each), None),
            "requests": [each["request"] for each in events if "request" in each],
            "steps": [step for each in events for step in each["steps"]],
            "ends": [each["end"] for each in events if "end" in each],
        }

    # -- a stream -------------------------------------------------------------------------------------------------

    def open(self) -> list[dict[str, Any]]:
        """The events before any text."""
        events = []
        for i in range(len(self.work.jobs)):
            opening = self._opening(self._echo(i))
            if opening is not None:
                if self.form.token_ids:
                    opening["prompt_token_ids"] = list(self.work.jobs[i].prompt)
                events.append(self._event(i, opening, None))
        return events

    def feed(self, choice: int, chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
        """The events of chunks of one choice."""
        self._counts[choice].add(chunks)
        piece = piece_of(chunks)
        pieces = token_by_token(piece) if self.form.smooth else [piece]
        return self._parts(choice, self._gathering[choice].add(pieces))

    def finish(self, choice: int, output: Output) -> list[dict[str, Any]]:
        """The events with which a choice ends, and with the last of them the answer."""
        events = self._parts(choice, self._gathering[choice].rest())
        done = Done(output, self._counts[choice])
        self._done[choice] = done
        *parts, last = self._last(choice)
        events += [*(self._event(choice, part, None) for part in parts), self._event(choice, last, done)]
        if len(self._done) == len(self.work.jobs):
            everything = [self._done[i] for i in range(len(self.work.jobs))]
            if self.form.usage:
                count = usage_of(everything, self.form.choices, self.form.shown)
                events.append(self._object(self.event_object, []) | {"usage": count})
            events[-1] |= self._figures(everything)
        return events

    def _parts(self, choice: int, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        events = []
        for piece in pieces:
            by_token = self.form.logprobs or self.form.token_ids
            if not (piece.text or piece.lines or (piece.tokens and by_token)):
                continue
            parts = self._part(choice, piece, self._written[choice])
            self._written[choice] += len(piece.text)
            if not parts:
                continue
            if self.form.token_ids:
                parts[0]["token_ids"] = list(piece.tokens)
            made = [self._event(choice, part, None) for part in parts]
            if piece.lines:
                made[0]["headstart"] = self._traced[choice].event(piece.lines)
            events += made
        return events

    def _event(self, choice: int, part: dict[str, Any], done: Done | None) -> dict[str, Any]:
        end = {"finish_reason": None} if done is None else self._end(choice, done)
        event = self._object(self.event_object, [{"index": choice, **part, **end}])
        if self.form.usage_always:
            event["usage"] = self._usage_so_far()
        elif self.form.usage:
            event["usage"] = None
        return event

    def _usage_so_far(self) -> dict[str, Any]:
        return usage(
            sum(len(job.prompt) for job in self.work.jobs[:: self.form.choices]),
            sum(counts.tokens for counts in self._counts),
            0,
            total(self._counts) if self.form.shown.predicted else None,
            total(self._counts).reasoning,
        )

    # -- both -----------------------------------------------------------------------------------------------------

    def _echo(self, choice: int) -> str:
        return self.form.echo[choice] if self.form.echo else ""

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "object": kind, "choices": choices}

    def _end(self, choice: int, done: Done) -> dict[str, Any]:
        end: dict[str, Any] = {"finish_reason": self._finish_reason(choice, done.output)}
        if len(self.work.jobs) > 1 and self.form.shown.metrics != "none":
            end["metrics"] = metrics([done], self.form.shown)
        return end

    def _figures(self, done: Sequence[Done]) -> Json:
        found = super()._figures(done)
        found["headstart"]["seeds"] = [each.output.seed for each in done]
        return found
