"""What is believed of a drafter's guesses: how likely the first d of them are all accepted, now, for this request.

The quality of guesses is a hidden state: one of ten acceptance rates, which can change with every token of the text
(a text turns from repetition to something new). A round that accepted j of k guesses is evidence, a^j (1 - a) or
a^k, for each rate a; between rounds the belief drifts back to a prior. So one long acceptance after a
long drought is believed at once, two failures in a row after a long run too, and a single failure is forgiven:
what a decayed mean of any memory cannot do. Being a mixture, it also says that a guess whose forerunners were right is
likelier to be right, as measured acceptance does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATES = (0.02, 0.15, 0.3, 0.45, 0.6, 0.72, 0.82, 0.9, 0.95, 0.985)
DEEPEST = 32
"""Guesses beyond this depth are not told apart."""

_GOOD = 5  # from this rate on a source is good

CHANGE = 1 / 50
"""Chance, per token of text, that the quality is drawn anew from the prior."""
_FLOOR = 0.05  # of the prior stays evenly spread, so that nothing is ever thought impossible
_PATIENCE = 20.0  # rounds' worth of doubt about depths that behave otherwise than the mixture says
_MEMORY = 1 - 1 / 200

_A = np.array(RATES)
_POWERS = _A[None, :] ** np.arange(DEEPEST + 1)[:, None]  # [depth, rate]
_FAILED = _POWERS * (1 - _A)
_FLOOR_EVEN = np.full(len(RATES), _FLOOR / len(RATES))
_FRESH = 8
_YOUNG = 3
_NEVER = 0.01  # deeper guesses than those that survive with this chance are not thought about
# Moderate: 0.6 on average, nothing excluded
_START = np.array([1.0, 1.0, 1.2, 1.5, 1.8, 2.0, 2.0, 1.6, 1.0, 0.6])
_START /= _START.sum()
_DRIFT = (1 - (1 - CHANGE) ** np.arange(8 * DEEPEST)).tolist()


class Pool:
    """What the rounds of many requests said of one source: the prior, the depths, and how often it speaks."""

    def __init__(self, limit: int = DEEPEST) -> None:
        self.powers = _POWERS[: limit + 1]
        self.prior: NDArray[Any] = _START
        self.speaks = 0.8
        self.promise = 1.0
        self._spread: NDArray[Any] = _START
        self._rounds = 0
        self._seen = [0.0] * DEEPEST
        self._expected = [0.0] * DEEPEST
        self.bias = [1.0] * DEEPEST

    @property
    def young(self) -> bool:
        """Whether hardly anything is known yet."""
        return self._rounds < _YOUNG

    def learn(self, posterior: NDArray[Any]) -> None:
        """Move the prior towards what a round left believed: fast at first, then with a memory of 50 rounds.

        promise, 0 to 1: how far this source has been known to be good at times.
        """
        self._rounds += 1
        rate = max(0.02, 1 / (self._rounds + 8))
        self._spread = self._spread + rate * (posterior - self._spread)
        if self._rounds % _FRESH == 0 or self._rounds < 2 * _FRESH:
            self.prior = (1 - _FLOOR) * self._spread + _FLOOR_EVEN
            self.promise = min(1.0, 4 * float(self._spread[_GOOD:].sum()))

    def heard(self, spoke: bool) -> None:
        self.speaks += 0.05 * (spoke - self.speaks)

    def calibrate(self, kept: Sequence[float], accepted: int, drafted: int) -> None:
        """Depth by depth, how often guesses were accepted against how often the mixture said so."""
        expected, seen, bias = self._expected, self._seen, self.bias
        for depth in range(min(accepted + 1, drafted)):
            expected[depth] = _MEMORY * expected[depth] + kept[depth]
            seen[depth] = _MEMORY * seen[depth] + (depth < accepted)
            bias[depth] = (seen[depth] + _PATIENCE) / (expected[depth] + _PATIENCE)


class Belief:
    """Of one source, for one request."""

    __slots__ = ("_elapsed", "_kept", "_pool", "_survival", "speaks", "weights")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.weights = pool.prior
        self.speaks = pool.speaks
        self._elapsed = 0  # tokens of text that the weights have not drifted for
        self._survival: list[float] | None = None
        self._kept: list[float] = []

    def survival(self) -> list[float]:
        """P(the first d guesses are all accepted) for d = 1, 2, ... up to the limit, or to where it is nil."""
        if self._survival is None or self._elapsed:
            self._survival = self._survive()
        return self._survival

    def _survive(self) -> list[float]:
        if self._elapsed:
            share = _DRIFT[min(self._elapsed, len(_DRIFT) - 1)]
            self.weights = self.weights + share * (self._pool.prior - self.weights)
            self._elapsed = 0
        means = self._pool.powers.dot(self.weights).tolist()
        chance = 1.0
        chances: list[float] = []
        kept: list[float] = []
        before = means[0]
        for after, bias in zip(means[1:], self._pool.bias, strict=False):
            step = after / before
            kept.append(step)
            before = after
            step *= bias
            if step < 1:
                chance *= step
            chances.append(chance)
            if chance < _NEVER:
                break
        self._kept = kept
        return chances

    def learn(self, accepted: int, drafted: int) -> None:
        """A round tested `drafted` depths, and the first `accepted` held."""
        self.survival()
        drafted = min(drafted, DEEPEST)
        accepted = min(accepted, drafted)
        self._pool.calibrate(self._kept, accepted, min(drafted, len(self._kept)))
        weights = self.weights * (_POWERS if accepted == drafted else _FAILED)[accepted]
        weights /= np.add.reduce(weights)
        self.weights = weights
        self._pool.learn(weights)
        self._survival = None

    def heard(self, spoke: bool) -> None:
        """Asked, it had something to say, or not."""
        self.speaks += 0.15 * (spoke - self.speaks)
        self._pool.heard(spoke)

    def drift(self, tokens: int) -> None:
        """The text went on by so many tokens."""
        self._elapsed += tokens
