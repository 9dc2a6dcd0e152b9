"""Pieces of a stream: the chunks of one flush as one, or a chunk cut up to be shown evenly.

However a text is cut into pieces, the pieces' texts, tokens and log-probabilities one behind the other are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headstart.serve.api.answering.trace import Json, lines_of
from headstart.types import Chunk, TokenLogprob


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
            self.text + other.text,
            self.tokens + other.tokens,
            self.logprobs + other.logprobs,
            self.lines + other.lines,
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
        Piece(
            piece.text[start:end],
            piece.tokens[i : i + 1],
            piece.logprobs[i : i + 1],
            piece.lines if i == 0 else (),
        )
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
