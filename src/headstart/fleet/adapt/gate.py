"""The gate: is the new drafter better on held-out traffic than the one that is deployed? If that is not proved, no.

Every held-out prompt is continued with both drafters by headstart's engine, with the same K, temperature and seed, and
the pair is kept. The figure is tokens per forward over all prompts, as a fleet counts it: generated tokens through
forwards that gave some, the prompt's last one included. Its gain has a bootstrap interval over conversations, the
units that were drawn independently; the new drafter passes if the lower end is above 0. With a 95% interval a drafter
that brings nothing passes at most about once in forty times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headstart.engine.engine import Engine
from headstart.fleet.adapt.split import HeldOut
from headstart.theory.statistics import Interval, bootstrap, proportion
from headstart.types import Output, Sampling

LEAST = 20
"""Conversations without which nothing is proved."""
Advance = Callable[[int], None]
"""Called with the number of prompts that are done."""


@dataclass(frozen=True, slots=True)
class Side:
    """What one drafter did on one prompt."""

    tokens: int
    forwards: int
    tested: tuple[int, ...]
    """How often the first, second, ... guess was put to the test, those before it being right."""
    accepted: tuple[int, ...]

    @classmethod
    def of(cls, output: Output) -> Side:
        stats = output.stats
        return cls(stats.tokens, stats.target_forwards, stats.drafted_per_position, stats.accepted_per_position)


@dataclass(frozen=True, slots=True)
class Pair:
    """One held-out prompt with both drafters. It holds no text."""

    conversation: str
    prompt_tokens: int
    temperature: float
    seed: int
    old: Side
    new: Side


@dataclass(frozen=True, slots=True)
class Gain:
    """What follows from the pairs.

    old, new, difference, ratio: tokens per forward and how they compare, with their intervals.
    old_by_position, new_by_position: acceptance of the first, second, ... guess, given those before it.
    conversations: the units of the intervals.
    passed: whether the lower end of the difference is above 0.
    """

    old: Interval
    new: Interval
    difference: Interval
    ratio: Interval
    old_by_position: tuple[Interval, ...]
    new_by_position: tuple[Interval, ...]
    prompts: int
    conversations: int
    level: float
    passed: bool

    @property
    def verdict(self) -> Literal["better", "worse", "no gain proved"]:
        if self.passed:
            return "better"
        return "worse" if self.difference.high < 0 else "no gain proved"


def measure(
    old: Engine,
    new: Engine,
    held_out: Sequence[HeldOut],
    *,
    max_tokens: int,
    temperature: float | None = None,
    seed: int = 0,
    advance: Advance = lambda _: None,
) -> list[Pair]:
    """Continue every prompt with both engines, which have the same target and the same fixed K.

    max_tokens: of a continuation; where the served one was shorter, its length.
    temperature: of all prompts; None takes each one's own.

    Raises:
        NonFiniteLogits: the target itself failed on a prompt.
    """
    pairs: list[Pair] = []
    batch = len(old.cache.lengths)
    for begin in range(0, len(held_out), batch):
        several = held_out[begin : begin + batch]
        prompts = [list(one.exchange.prompt) for one in several]
        sampling = [
            Sampling(
                max_tokens=min(max_tokens, len(one.exchange.output)),
                temperature=one.exchange.temperature if temperature is None else temperature,
                seed=seed + number,
            )
            for number, one in enumerate(several, start=begin)
        ]
        engines = (old, new) if begin // batch % 2 == 0 else (new, old)
        outputs = {id(engine): _outputs(engine, prompts, sampling) for engine in engines}
        for one, how, before, after in zip(several, sampling, outputs[id(old)], outputs[id(new)], strict=True):
            sides = Side.of(before), Side.of(after)
            length = len(one.exchange.prompt)
            pairs.append(Pair(one.conversation, length, how.temperature, int(how.seed or 0), *sides))
        advance(len(pairs))
    return pairs


def judge(pairs: Sequence[Pair], *, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Gain:
    """The gain and whether it is proved. level: of the two-sided intervals; (1 - level) / 2 is the gate's own."""
    sums: dict[str, NDArray[Any]] = {}
    for pair in pairs:
        counts = np.array([pair.old.tokens, pair.old.forwards, pair.new.tokens, pair.new.forwards], dtype=float)
        sums[pair.conversation] = sums.get(pair.conversation, np.zeros(4)) + counts
    units = np.array(list(sums.values())).reshape(-1, 4)

    def interval(statistic: Callable[[float, float], float], scale: Literal["linear", "log"] = "linear") -> Interval:
        """Of tokens per forward, old and new."""

        def of(drawn: NDArray[Any]) -> float:
            old_tokens, old_forwards, new_tokens, new_forwards = drawn.sum(0)
            return statistic(old_tokens / old_forwards, new_tokens / new_forwards)

        return bootstrap(units, of, level=level, resamples=resamples, seed=seed, scale=scale)

    difference = interval(lambda old, new: new - old)
    return Gain(
        old=interval(lambda old, _: old),
        new=interval(lambda _, new: new),
        difference=difference,
        ratio=interval(lambda old, new: new / old, "log"),
        old_by_position=_by_position([pair.old for pair in pairs], level),
        new_by_position=_by_position([pair.new for pair in pairs], level),
        prompts=len(pairs),
        conversations=len(units),
        level=level,
        passed=len(units) >= LEAST and difference.low > 0,
    )


def _by_position(sides: Sequence[Side], level: float) -> tuple[Interval, ...]:
    depth = max((len(side.tested) for side in sides), default=0)
    found = []
    for i in range(depth):
        tested = sum(side.tested[i] for side in sides if i < len(side.tested))
        found.append(proportion(sum(side.accepted[i] for side in sides if i < len(side.accepted)), tested, level))
    return tuple(found)


def _outputs(engine: Engine, prompts: list[list[int]], sampling: list[Sampling]) -> list[Output]:
    outputs = engine.generate(prompts, sampling)
    for output in outputs:
        if output.error is not None:
            raise output.error
    return outputs
