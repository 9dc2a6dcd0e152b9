"""Toy distributions for audits: a reference that is a table, and subjects that draw from it, or from something slightly
else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.measure.audit.subject import Ask, Completion
from headstart.types import Sampling

Distribution = NDArray[np.float64]
Wrong = Callable[[Distribution, tuple[int, ...]], Distribution]
"""From a distribution [V] and the output so far to what a subject draws from instead."""


class ToyReference:
    """Logits are a sum of what the last two tokens say; the last token of the vocabulary ends a text."""

    def __init__(self, vocab: int = 12, *, spread: float = 1.0, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.vocab = vocab
        self._one = spread * generator.normal(size=(vocab, vocab))
        self._two = spread * 0.6 * generator.normal(size=(vocab, vocab))
        self.asked = 0

    def distribution(self, prefix: Sequence[int], sampling: Sampling) -> Distribution:
        logits = (self._one[prefix[-1]] + (self._two[prefix[-2]] if len(prefix) > 1 else 0)) / sampling.temperature
        if sampling.top_k:
            logits = np.where(logits < np.sort(logits)[-sampling.top_k], -np.inf, logits)
        p: Distribution = np.exp(logits - logits.max())
        return p / p.sum()

    def distributions(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Distribution:
        self.asked += 1
        text = (*prompt, *tokens)
        return np.stack([self.distribution(text[: len(prompt) + i], sampling) for i in range(len(tokens) + 1)])

    def stop_ids(self, sampling: Sampling) -> frozenset[int]:
        return frozenset() if sampling.ignore_eos else frozenset({self.vocab - 1})

    def describe(self) -> dict[str, Any]:
        return {"kind": "toy", "vocab": self.vocab}


def ask_by_ask(asks: Sequence[Ask], draw: Callable[[Ask], Completion]) -> list[Completion]:
    """One draw for each ask; those of equal asks follow each other."""
    drawn = {i: draw(asks[i]) for i in sorted(range(len(asks)), key=lambda i: asks.index(asks[i]))}
    return [drawn[i] for i in range(len(asks))]


class ToySubject:
    """Draws token by token from the reference's distribution, or from what `wrong` makes of it."""

    def __init__(self, reference: ToyReference, *, seed: int = 0, wrong: Wrong | None = None) -> None:
        self.name = "toy"
        self._reference = reference
        self._generator = np.random.default_rng(seed)
        self._wrong = wrong
        self._sums: dict[Any, Distribution] = {}

    def sample(self, asks: Sequence[Ask]) -> list[Completion]:
        return ask_by_ask(asks, lambda ask: self._one(ask.prompt, ask.sampling))

    def describe(self) -> dict[str, Any]:
        return {"kind": "toy"}

    def _one(self, prompt: tuple[int, ...], sampling: Sampling) -> Completion:
        tokens: tuple[int, ...] = ()
        stops = self._reference.stop_ids(sampling)
        while len(tokens) < sampling.max_tokens:
            key = (prompt, tokens, sampling.temperature, sampling.top_k)
            if key not in self._sums:
                p = self._reference.distribution((*prompt, *tokens), sampling)
                self._sums[key] = (p if self._wrong is None else self._wrong(p, tokens)).cumsum()
            drawn = int(np.searchsorted(self._sums[key], self._generator.random() * self._sums[key][-1], side="right"))
            tokens = (*tokens, drawn)
            if drawn in stops:
                return Completion(tokens, "stop")
        return Completion(tokens, "length")


def powered(exponent: float) -> Wrong:
    def wrong(p: Distribution, tokens: tuple[int, ...]) -> Distribution:
        q: Distribution = p**exponent
        return q / q.sum()

    return wrong
