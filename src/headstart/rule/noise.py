"""Seeded noise as a pure function of (request seed, absolute position, purpose, lane). There is no generator state.

Counter-based: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014) applied to
a key and a counter, in 64-bit integers on the host, so the numbers are the same on every device, in every batch
and in any order of asking.

Purposes. TOKEN decides the token the target emits at a position; it depends on nothing but seed and position,
which is what makes rule "coupled", and every point-mass draft, give one text per seed. ACCEPT and DRAFT belong to
one round of speculation and carry that round's start as their lane. Without it the rule would be wrong:
block verification looks at the uniform draws and draft tokens of *later* positions before it settles for a shorter
path, so noise met again at the same position in the next round would be conditioned on the first round's outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.rule import race

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB


_ROUNDING = 1e-9
"""Far more than the rounding errors of a bound."""


class Purpose(IntEnum):
    TOKEN = 1
    ACCEPT = 2
    DRAFT = 3
    STACK = 4


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * _MIX1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX2) & _MASK
    return z ^ (z >> 31)


def _mix_array(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`_mix` of every element, in place."""
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= np.uint64(_MIX1)
    np.right_shift(z, np.uint64(27), out=shifted)
    z ^= shifted
    z *= np.uint64(_MIX2)
    np.right_shift(z, np.uint64(31), out=shifted)
    z ^= shifted
    return z


@lru_cache(maxsize=8)
def _counters(size: int) -> NDArray[np.uint64]:
    return (np.arange(size, dtype=np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)


@lru_cache(maxsize=64)
def _key(seed: int, position: int, purpose: Purpose, lane: int) -> int:
    """The key of the numbers of a position, which a draft and the target ask for one after the other under rule
    "coupled"."""
    key = _mix((seed + _GOLDEN) & _MASK)
    for part in (position, int(purpose), lane):
        key = _mix((key + (part + 1) * _GOLDEN) & _MASK)
    return key


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one request."""

    seed: int

    def of_stack(self, position: int) -> Noise:
        """For what a drafter decides by a rule of its own in the round that begins there; independent of all else."""
        return Noise(_key(self.seed, position, Purpose.STACK, position))

    def uniform(self, position: int, purpose: Purpose, lane: int = 0, index: int = 0) -> float:
        """One number in (0, 1); `index` numbers the draws that share a position, purpose and lane."""
        bits = _mix((_key(self.seed, position, purpose, lane) + (index + 1) * _GOLDEN) & _MASK)
        return ((bits >> 11) + 0.5) * 2.0**-53

    def exponentials(
        self, position: int, purpose: Purpose, lane: int, size: int, tokens: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Exponential(1) noise for each of `size` tokens [size], or only for `tokens` (the same numbers, picked)."""
        return _exponentials(self._bits(position, purpose, lane, size, tokens))

    def _bits(
        self, position: int, purpose: Purpose, lane: int, size: int, tokens: NDArray[np.int64] | None
    ) -> NDArray[np.uint64]:
        """53 random bits for each of `size` tokens, or only for `tokens`."""
        counters = _counters(size) if tokens is None else _counters(size)[tokens]
        bits = _mix_array(counters + np.uint64(_key(self.seed, position, purpose, lane)))
        bits >>= np.uint64(11)
        return bits

    def draw(self, distribution: NDArray[Any], position: int, purpose: Purpose, lane: int = 0) -> int:
        """Sample a token from `distribution` [V] (weights; need not sum to one): argmax of distribution /
        Exponential(1).

        This is Gumbel-max; the token of largest race time wins, and a token of weight 0 never does.
        """
        found = self._first(distribution, position, purpose, lane, 1)
        return self._draw(distribution, position, purpose, lane) if found is None else found[0]

    def first(
        self,
        distribution: NDArray[Any],
        position: int,
        purpose: Purpose,
        lane: int,
        count: int,
        tokens: NDArray[np.int64] | None = None,
    ) -> list[int]:
        """Up to `count` different columns in the order of that race, the winner first: so many draws without
        replacement. Fewer where no others have a weight, none where the weights are NaN.

        tokens: of each column, where that is not the column itself: the noise is theirs."""
        found = self._first(distribution, position, purpose, lane, count, tokens)
        if found is not None:
            return found
        if tokens is not None:
            whole = np.zeros(int(tokens.max()) + 1, distribution.dtype)
            whole[tokens] = distribution
            drawn = self.first(whole, position, purpose, lane, count)
            return [int(np.flatnonzero(tokens == token)[0]) for token in drawn]
        found, left = [], min(count, int(np.count_nonzero(distribution > 0)))
        rest = distribution.copy()
        while len(found) < left:  # whoever wins once the winner has left would have been second
            found.append(self._draw(rest, position, purpose, lane))
            rest[found[-1]] = 0
        return found

    def _first(
        self,
        distribution: NDArray[Any],
        position: int,
        purpose: Purpose,
        lane: int,
        count: int,
        tokens: NDArray[np.int64] | None = None,
    ) -> list[int] | None:
        """The same, where compiled code finds them."""
        if (
            distribution.shape[0] < race.SHORTEST
            or distribution.dtype != np.float32
            or not distribution.flags.c_contiguous
        ):
            return None
        find = race.compiled()
        return None if find is None else find(distribution, _key(self.seed, position, purpose, lane), count, tokens)

    def _draw(self, distribution: NDArray[Any], position: int, purpose: Purpose, lane: int) -> int:
        """`draw` in NumPy alone, for distributions of any kind of number."""
        positive = distribution != 0
        weights, support = distribution, None
        if not positive.all():
            support = np.flatnonzero(positive)
            if support.size == 1:
                return int(support[0])
            weights = distribution[support]
        bits = self._bits(position, purpose, lane, distribution.shape[0], support)
        winner = _winner(weights, bits)
        return winner if support is None else int(support[winner])


def _exponentials(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    exponentials: NDArray[np.float64] = -np.log((bits.astype(np.float64) + 0.5) * 2.0**-53)
    return exponentials


def _winner(weights: NDArray[Any], bits: NDArray[np.uint64]) -> int:
    """The argmax of weights / _exponentials(bits), with few logarithms: they are most of the work.

    Since -log(u) >= 1 - u, a race time is at most weight / (1 - u). Only those whose bound reaches the race time of the
    largest bound can win.
    """
    bounds = bits.astype(np.float64)
    np.subtract(2.0**53 - 1, bounds, out=bounds)  # (1 - u) * 2**53, or one less: u was rounded
    np.divide(weights, bounds, out=bounds)
    first = int(bounds.argmax())
    reached = float(weights[first] / _exponentials(bits[first : first + 1])[0]) * 2.0**-53
    able = np.flatnonzero(bounds >= reached * (1 - _ROUNDING))
    if able.size < 2:
        return first
    return int(able[(weights[able] / _exponentials(bits[able])).argmax()])
