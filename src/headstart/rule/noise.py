"""Seeded noise as a pure function of (request seed, absolute position, purpose, lane). There is no generator state.

Counter-based: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014) applied to
a key and a counter, in 64-bit integers on the host, so the numbers are the same on every device, in every batch
and in any order of asking.

Purposes. TOKEN decides the token the target emits at a position; it depends on nothing but seed and position,
which is what makes rule "coupled", and every point-mass draft, give one text per seed. ACCEPT and DRAFT belong to
one round of speculation and carry that round's start as their lane. Without it the rule would be wrong:
block verification looks at the coins and draft tokens of *later* positions before it settles for a shorter
path, so noise met again at the same position in the next round would be conditioned on the first round's outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB


class Purpose(IntEnum):
    TOKEN = 1
    ACCEPT = 2
    DRAFT = 3


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * _MIX1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX2) & _MASK
    return z ^ (z >> 31)


def _mix_array(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX2)
    return z ^ (z >> np.uint64(31))


@lru_cache(maxsize=8)
def _counters(size: int) -> NDArray[np.uint64]:
    return (np.arange(size, dtype=np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one request."""

    seed: int

    def _key(self, position: int, purpose: Purpose, lane: int) -> int:
        key = _mix((self.seed + _GOLDEN) & _MASK)
        for part in (position, int(purpose), lane):
            key = _mix((key + (part + 1) * _GOLDEN) & _MASK)
        return key

    def uniform(self, position: int, purpose: Purpose, lane: int = 0, index: int = 0) -> float:
        """One number in (0, 1); `index` numbers the draws that share a position, purpose and lane."""
        bits = _mix((self._key(position, purpose, lane) + (index + 1) * _GOLDEN) & _MASK)
        return ((bits >> 11) + 0.5) * 2.0**-53

    def exponentials(
        self, position: int, purpose: Purpose, lane: int, size: int, tokens: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Exponential(1) noise for each of `size` tokens [size], or only for `tokens` (the same numbers, picked)."""
        counters = _counters(size) if tokens is None else _counters(size)[tokens]
        bits = _mix_array(counters + np.uint64(self._key(position, purpose, lane)))
        uniforms = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return -np.log(uniforms)

    def draw(self, law: NDArray[Any], position: int, purpose: Purpose, lane: int = 0) -> int:
        """Sample a token from `law` [V] (weights; need not sum to one): argmax of law / Exponential(1).

        This is Gumbel-max; the token of largest race time wins, and a token of weight 0 never does.
        """
        support = np.flatnonzero(law)
        if support.size == 1:
            return int(support[0])
        race = law[support].astype(np.float64) / self.exponentials(position, purpose, lane, law.shape[0], support)
        return int(support[race.argmax()])
