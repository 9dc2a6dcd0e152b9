"""A run of one prompt, measured with nothing else going on, and recorded token by token."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headstart.engine.detokenize import TextStream
from headstart.insight.measure import run_once
from headstart.types import Output, Sampling, Step

if TYPE_CHECKING:
    from headstart.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one token, whether the drafter guessed it, and when it came (seconds from the request)."""

    text: str
    guessed: bool
    at: float


@dataclass(frozen=True)
class Run:
    """One measured run. `seconds` is its wall-clock time with everything in it: reading the prompt, text, events."""

    name: str
    prompt: str
    output: Output
    seconds: float
    pieces: tuple[Piece, ...]

    @cached_property
    def _times(self) -> list[float]:
        return [piece.at for piece in self.pieces]

    def until(self, now: float) -> Sequence[Piece]:
        """What had come `now` seconds after the request."""
        return self.pieces[: bisect_right(self._times, now)]

    @property
    def tokens_per_second(self) -> float:
        return len(self.output.tokens) / self.seconds if self.seconds else 0.0


def measure(name: str, engine: Engine, prompt: str, sampling: Sampling) -> Run:
    """Complete the prompt at full speed; all that is added is one clock reading per step.

    Raises:
        NonFiniteLogits: the request ended with an error; there is nothing to compare.
    """
    run = run_once(name, engine, prompt, sampling)
    return Run(name, prompt, run.output, run.seconds, _pieces(engine.tokenizer, run.output, run.arrivals))


def _pieces(tokenizer: Any, output: Output, arrivals: Sequence[tuple[float, Step]]) -> tuple[Piece, ...]:
    """The output cut into its tokens. A character spread over several appears with its last one."""
    stream = TextStream(lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True)), output.prompt_tokens, ())
    pieces: list[Piece] = []
    for at, step in arrivals:
        for index, token in enumerate(step.tokens):
            stream.push((token,))
            pieces.append(Piece(stream.take(), index < step.accepted, at))
    return tuple(pieces)
