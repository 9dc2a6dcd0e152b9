"""Runs of an engine, timed from outside; several engines in turn, so that a changing machine is fair to all."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from headstart.types import Output, Sampling, Seconds, Step

if TYPE_CHECKING:
    from headstart.engine.engine import Engine


T = TypeVar("T")

PARTS_IN_WORDS = {
    "plan": "scheduling, pacing",
    "draft": "guessing",
    "verify": "the target's forwards",
    "sample": "probabilities, rule",
    "commit": "keeping what was accepted",
    "other": "text and events",
}
"""What the parts of a run's seconds are: those of its steps (`Seconds`), and the rest."""


@dataclass(frozen=True, slots=True)
class Round:
    """One target forward that emitted tokens of a request, and what was drafted for it."""

    source: str
    """The drafter; "" if there was no draft."""
    nodes: int
    """Drafted tokens."""
    depth: int
    """Levels of the draft."""
    accepted: int
    """Drafted tokens on the accepted path."""
    tokens: int
    """Emitted."""
    seconds: float = 0.0
    """From the tokens before to these."""
    parts: Seconds = field(default_factory=Seconds)
    """Seconds of the engine's step, shared by all its requests."""
    chain: bool = True
    """Whether no drafted token had two children."""

    @classmethod
    def of(cls, step: Step, seconds: float = 0.0) -> Round:
        """What a step with tokens was; seconds: since the tokens before."""
        draft = step.draft
        return cls(
            source=draft.source if len(draft) else "",
            nodes=len(draft),
            depth=max(draft.depths, default=0),
            accepted=len(step.path),
            tokens=len(step.tokens),
            seconds=seconds,
            parts=step.seconds,
            chain=draft.is_chain,
        )


@dataclass(frozen=True, slots=True)
class Text:
    """What an engine made of a prompt, in one run or in several."""

    reading: float = 0.0
    """Seconds up to the first token: the prompt is read by the target, and by a drafter that has weights."""
    rounds: tuple[Round, ...] = ()
    """The rounds after the first token."""

    def __add__(self, other: Text) -> Text:
        return Text(self.reading + other.reading, self.rounds + other.rounds)


@dataclass(frozen=True, slots=True)
class Run:
    """One request alone on an engine. seconds: wall clock, everything in it: prompt, text, events.

    arrivals: (seconds from the submission, the step) of each of its steps, without the draft distributions.
    """

    name: str
    output: Output
    seconds: float
    arrivals: tuple[tuple[float, Step], ...]

    @property
    def tokens_per_second(self) -> float:
        return len(self.output.tokens) / self.seconds if self.seconds else 0.0

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds after the first one, in which the prompt is read too."""
        return tuple(Round.of(step, at - before) for (before, _), (at, step) in pairwise(self._emitting))

    @property
    def reading(self) -> float:
        """Seconds from the submission to the first token; 0 where there is none."""
        return self._emitting[0][0] if self._emitting else 0.0

    @property
    def _emitting(self) -> list[tuple[float, Step]]:
        return [(at, step) for at, step in self.arrivals if step.tokens]


def timed(
    engine: Engine, prompts: Sequence[Any], sampling: Sampling, see: Callable[[float, Step], None]
) -> tuple[list[Output], float]:
    """Complete the prompts as one batch at full speed; all that is added is one clock reading per step.

    see: called with each step and the seconds since the submission. It must be quick.

    Returns: the outputs, and the seconds of all of them, wall clock.

    Raises:
        NonFiniteLogits: a request ended with an error; there is nothing to measure.
        InvalidPrompt, naming the prompt by number.
    """
    start = time.perf_counter()
    unsubscribe = engine.subscribe(lambda step: see(time.perf_counter() - start, step))
    try:
        outputs = engine.generate(prompts, sampling)
    finally:
        seconds = time.perf_counter() - start
        unsubscribe()
    for output in outputs:
        if output.error is not None:
            raise output.error
    return outputs, seconds


def run_once(name: str, engine: Engine, prompt: Any, sampling: Sampling) -> Run:
    """One prompt alone, with all of its steps. Raises as `timed`."""
    arrivals: list[tuple[float, Step]] = []
    (output,), seconds = timed(engine, [prompt], sampling, lambda at, step: arrivals.append((at, _light(step))))
    return Run(name, output, seconds, tuple(arrivals))


def in_turn(engines: Mapping[str, Engine], prompt: Any, sampling: Sampling, *, turn: int) -> Iterator[Run]:
    """The prompt on every engine, one right after the other, so that their ratio is fair. turn: how many prompts came
    before; who goes first changes with it."""
    for name in rotated(list(engines), turn):
        yield run_once(name, engines[name], prompt, sampling)


def rotated(contestants: Sequence[T], turn: int) -> list[T]:
    """The order of this turn: the one that goes first changes from turn to turn."""
    begin = turn % len(contestants)
    return [*contestants[begin:], *contestants[:begin]]


def first_difference(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> int | None:
    """Index of the first token that differs, or None if both are the same token for token."""
    return next((index for index, (a, b) in enumerate(zip_longest(ours, theirs)) if a != b), None)


def _light(step: Step) -> Step:
    """Without its distributions q [K, V]: those of a whole run could fill the memory."""
    if step.draft.q is None and not step.draft.passed_over:
        return step
    return replace(step, draft=replace(step.draft, q=None, passed_over=()))
