"""Runs of an engine, timed from outside; several engines in turn, so that a changing machine is fair to all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headstart.types import Output, Sampling, Step

if TYPE_CHECKING:
    from headstart.engine import Engine


@dataclass(frozen=True, slots=True)
class Run:
    """One request alone on an engine. seconds: wall clock, everything in it: prompt, text, events.

    arrivals: (seconds from the submission, the step) of each of its steps, without the draft laws.
    """

    name: str
    output: Output
    seconds: float
    arrivals: tuple[tuple[float, Step], ...]

    @property
    def tokens_per_second(self) -> float:
        return len(self.output.tokens) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A run of a series: which prompt it completed, and in which repetition."""

    prompt: int
    repetition: int
    run: Run


def run_once(name: str, engine: Engine, prompt: Any, sampling: Sampling) -> Run:
    """Complete the prompt at full speed; all that is added is one clock reading per step.

    Raises:
        NonFiniteLogits: the request ended with an error; there is nothing to measure.
    """
    arrivals: list[tuple[float, Step]] = []
    start = time.perf_counter()
    unsubscribe = engine.subscribe(lambda step: arrivals.append((time.perf_counter() - start, _light(step))))
    try:
        output = engine.generate(prompt, sampling)
    finally:
        seconds = time.perf_counter() - start
        unsubscribe()
    if output.error is not None:
        raise output.error
    return Run(name, output, seconds, tuple(arrivals))


def in_turn(
    engines: Mapping[str, Engine], prompts: Sequence[Any], sampling: Sampling, *, repetitions: int = 1
) -> Iterator[Turn]:
    """Every prompt on every engine, `repetitions` times; who goes first changes from prompt to prompt and round to
    round. One prompt's runs stand next to each other in time, so that their ratio is fair."""
    names = list(engines)
    for repetition in range(repetitions):
        for index, prompt in enumerate(prompts):
            begin = (index + repetition) % len(names)
            for name in names[begin:] + names[:begin]:
                yield Turn(index, repetition, run_once(name, engines[name], prompt, sampling))


def _light(step: Step) -> Step:
    """Without its laws q [K, V]: those of a whole run could fill the memory."""
    if step.draft.q is None and not step.draft.passed_over:
        return step
    return replace(step, draft=replace(step.draft, q=None, passed_over=()))
