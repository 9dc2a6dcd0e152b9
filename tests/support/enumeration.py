"""Exact distributions by enumeration: every outcome of a random procedure, with its probability as a rational number.

A procedure is a function of an `Oracle`: it asks it to accept with a chance or to draw, and the enumeration gives every
answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T", bound=Hashable)
Distribution = Any


class _Undecided(Exception):
    def __init__(self, options: list[tuple[Any, Fraction]]) -> None:
        self.options = options


class Oracle:
    """Answers from a script; past its end it stops the run and says which answers there are."""

    def __init__(self, script: Sequence[Any]) -> None:
        self._script = list(script)

    def _ask(self, options: list[tuple[Any, Fraction]]) -> Any:
        options = [(value, chance) for value, chance in options if chance > 0]
        if len(options) == 1:
            return options[0][0]
        if not self._script:
            raise _Undecided(options)
        return self._script.pop(0)

    def uniform(self, chance: Fraction) -> bool:
        return bool(self._ask([(True, Fraction(chance)), (False, 1 - Fraction(chance))]))

    def draw(self, distribution: Distribution) -> int:
        total = sum(distribution)
        return int(self._ask([(token, Fraction(weight) / total) for token, weight in enumerate(distribution)]))


def outcomes(procedure: Callable[[Oracle], T]) -> dict[T, Fraction]:
    """Every outcome of the procedure with its exact probability."""
    result: dict[T, Fraction] = defaultdict(Fraction)
    pending: list[tuple[list[Any], Fraction]] = [([], Fraction(1))]
    while pending:
        script, chance = pending.pop()
        try:
            result[procedure(Oracle(script))] += chance
        except _Undecided as branch:
            pending += [([*script, value], chance * weight) for value, weight in branch.options]
    return dict(result)


class RandomModel:
    """A distribution for every context, of random rationals; `zeros` is the share of tokens that get probability 0."""

    def __init__(self, seed: int, vocab: int = 3, zeros: float = 0.0) -> None:
        self._seed, self._vocab, self._zeros = seed, vocab, zeros
        self._distributions: dict[tuple[int, ...], Distribution] = {}

    def __call__(self, context: tuple[int, ...]) -> Distribution:
        if context not in self._distributions:
            rng = np.random.default_rng([self._seed, len(context), *context])
            weights = rng.integers(1, 8, self._vocab) * (rng.random(self._vocab) >= self._zeros)
            if not weights.any():
                weights[rng.integers(self._vocab)] = 1
            self._distributions[context] = np.array(
                [Fraction(int(w), int(weights.sum())) for w in weights], dtype=object
            )
        return self._distributions[context]


def joint(model: RandomModel, length: int, vocab: int = 3) -> dict[tuple[int, ...], Fraction]:
    """The distribution of the next `length` tokens under plain sampling."""

    def grow(context: tuple[int, ...], chance: Fraction) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        if len(context) == length:
            yield context, chance
            return
        for token in range(vocab):
            if model(context)[token] > 0:
                yield from grow((*context, token), chance * model(context)[token])

    return dict(grow((), Fraction(1)))


def completed(
    emitted: dict[tuple[int, ...], Fraction], model: RandomModel, length: int
) -> dict[tuple[int, ...], Fraction]:
    """Outputs of different lengths, each continued by plain sampling to `length`: comparable with `joint`."""
    result: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for tokens, chance in emitted.items():
        pending = [(tokens[:length], chance)]
        while pending:
            context, weight = pending.pop()
            if len(context) == length:
                result[context] += weight
                continue
            distribution = model(context)
            pending += [
                ((*context, t), weight * distribution[t]) for t in range(len(distribution)) if distribution[t] > 0
            ]
    return dict(result)
