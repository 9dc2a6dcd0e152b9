"""Runs of an engine, timed from outside; several engines in turn, so that a changing machine is fair to all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headstart.types import Output, Sampling, Step

if TYPE_CHECKING:
    from headstart.engine.engine import Engine


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


def in_turn(engines: Mapping[str, Engine], prompt: Any, sampling: Sampling, *, turn: int) -> Iterator[Run]:
    """The prompt on every engine, one right after the other, so that their ratio is fair. turn: how many prompts came
    before; who goes first changes with it."""
    names = list(engines)
    begin = turn % len(names)
    for name in names[begin:] + names[:begin]:
        yield run_once(name, engines[name], prompt, sampling)


def _light(step: Step) -> Step:
    """Without its laws q [K, V]: those of a whole run could fill the memory."""
    if step.draft.q is None and not step.draft.passed_over:
        return step
    return replace(step, draft=replace(step.draft, q=None, passed_over=()))
