"""Pieces of a stream: the chunks of one flush as one, or a chunk cut up to be shown evenly; and their trace.

However a text is cut into pieces, the pieces' texts, tokens and log-probabilities one behind the other are the same.
A trace in an answer, for `speculation.trace`, is the lines of the trace file, by public names and with texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.engine.trace.lines import Texts
from headstart.model.tokens.spelling import Spelling
from headstart.serve.bridge import TracedChunk
from headstart.serve.names import public_name, public_words
from headstart.types import Chunk, TokenLogprob

Json = dict[str, Any]


def lines_of(chunk: Chunk) -> list[Json]:
    """The lines behind a chunk, with the names that models and drafters have outside."""
    if not isinstance(chunk, TracedChunk):
        return []
    drafter = chunk.step.speculation.drafter
    return [_PUBLIC[line["type"]](line, drafter) if line["type"] in _PUBLIC else line for line in chunk.lines]


def _header(line: Json, _drafter: str) -> Json:
    # These two may name files
    engine = {name: value for name, value in line["engine"].items() if name not in ("chosen", "not_guessing")}
    engine |= {name: public_name(str(engine[name])) for name in ("target", "drafter")}
    engine["drafter_weights"] = _by_public_name(engine["drafter_weights"])
    return {
        **line,
        "engine": engine,
        "drafters": [{**each, "name": public_name(each["name"])} for each in line["drafters"]],
    }


def _step(line: Json, drafter: str) -> Json:
    budget = {**line["budget"], "reason": public_words(line["budget"]["reason"], drafter)}
    if "max_nodes" in budget:
        budget["max_nodes"] = _by_public_name(budget["max_nodes"])
    return {**line, "source": public_name(line["source"]), "budget": budget}


def _end(line: Json, drafter: str) -> Json:
    stats = dict(line["stats"])
    for name in ("accepted_by_source", "refused_by_source"):
        stats[name] = _by_public_name(stats[name])
    speculation = stats["speculation"]
    stats["speculation"] = {
        **speculation,
        "drafter": public_name(speculation["drafter"]),
        "reason": public_words(speculation["reason"], drafter),
    }
    return {**line, "stats": stats}


_PUBLIC = {"trace": _header, "step": _step, "end": _end}


def _by_public_name(values: Mapping[str, Any]) -> Json:
    return {public_name(name): value for name, value in values.items()}


class Traced:
    """The trace of one choice of an answer, as it goes out.

    choice: its index, which its lines bear as their request.
    """

    def __init__(self, choice: int, spelling: Spelling) -> None:
        self._choice = choice
        self._spelling = spelling
        self._texts = Texts(spelling.raw)

    def event(self, lines: Sequence[Json]) -> Json:
        """`headstart` of an event: its steps, and whichever of the other lines there are, by their type."""
        found: Json = {"steps": []}
        for line in lines:
            line = self._texts.add_to(line)
            if line["type"] != "trace":
                line["request"] = self._choice
            if line["type"] == "step":
                found["steps"].append(line)
            else:
                found[line["type"]] = line
        if "request" in found:
            tokenizer = self._spelling.tokenizer
            prompt = tokenizer.decode(found["request"]["prompt_tokens"], skip_special_tokens=False)
            found["request"]["prompt"] = str(prompt)
        return found


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is final, and tokens. The text may lag behind the tokens where a character is not complete."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    lines: tuple[Json, ...] = ()
    """Of the trace, where one was asked for."""

    def __add__(self, other: Piece) -> Piece:
        return Piece(
            self.text + other.text, self.tokens + other.tokens, self.logprobs + other.logprobs, self.lines + other.lines
        )


def piece_of(chunks: Iterable[Chunk]) -> Piece:
    """The chunks of a flush as one piece."""
    found = list(chunks)
    return Piece(
        "".join(chunk.text for chunk in found),
        tuple(token for chunk in found for token in chunk.tokens),
        tuple(entry for chunk in found for entry in chunk.step.logprobs or ()),
        tuple(line for chunk in found for line in lines_of(chunk)),
    )


def token_by_token(piece: Piece) -> list[Piece]:
    """A piece cut into one for each token, with about as much text each; what cannot be cut stays with the first."""
    count = max(1, len(piece.tokens))
    ends = [len(piece.text) * (i + 1) // count for i in range(count)]
    starts = [0, *ends[:-1]]
    return [
        Piece(piece.text[start:end], piece.tokens[i : i + 1], piece.logprobs[i : i + 1], piece.lines if i == 0 else ())
        for i, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


class Gathering:
    """Holds pieces back until they have as many tokens as the client wants in a chunk."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._held = Piece()

    def add(self, pieces: Sequence[Piece]) -> list[Piece]:
        """The pieces that are to be sent now."""
        ready: list[Piece] = []
        for piece in pieces:
            self._held += piece
            if len(self._held.tokens) >= self._interval:
                ready += self.rest()
        return ready

    def rest(self) -> list[Piece]:
        """What is held back, at the end."""
        held, self._held = self._held, Piece()
        return [held] if held.text or held.tokens or held.lines else []
