"""Random numbers of many streams in lockstep, from one seed.

Most are drawn in order from one generator. The race noise of the coupled rule is a pure function of (seed, stream,
position, token), counter-based (SplitMix64: Steele, Lea, Flood 2014), so that a position met again, after a rejection
or under another drafter, has the same noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headstart.learn.simulate.distributions import Floats, Ints

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Draws:
    """The noise of `streams` streams. `position` [B] is how many tokens each one has emitted."""

    def __init__(self, seed: int, streams: int, vocab: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._streams, self._vocab = streams, vocab
        numbers = np.arange(1, streams + 1, dtype=np.uint64) * _GOLDEN
        self._keys = _mixed(numbers + _mixed(np.array([seed], dtype=np.uint64)))
        self.position: Ints = np.zeros(streams, dtype=np.int64)
        self._ahead: dict[int, Floats] = {}  # noise of the present positions, which draft and target share

    def uniforms(self) -> Floats:
        """[B] in [0, 1)."""
        return self._rng.random(self._streams)

    def advance(self, tokens: int | Ints) -> None:
        """Every stream emitted `tokens` [B] more."""
        self.position = self.position + tokens
        self._ahead.clear()

    def exponentials(self, depth: int) -> Floats:
        """Exponential(1) noise [B, V] of each stream's position `depth` further on."""
        if depth not in self._ahead:
            self._ahead[depth] = self._race(depth)
        return self._ahead[depth]

    def _race(self, depth: int) -> Floats:
        where = (self.position + depth).astype(np.uint64) + np.uint64(1)
        keys = _mixed(self._keys + where * _GOLDEN)
        counters = np.arange(1, self._vocab + 1, dtype=np.uint64) * _GOLDEN
        bits = _mixed(keys[:, None] + counters)
        noise: Floats = -np.log(((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)
        return noise


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))
