"""What a distribution is (V probabilities, finite, none negative, summing to 1), and the random numbers of draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.base.errors import HeadstartError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOLERANCE = 1e-3
"""How far a distribution's sum may be from 1: float32 softmaxes over large vocabularies stay well within; bfloat16 does
not."""

_SHOWN = 8  # tokens of a context that an error names


class InvalidDistribution(HeadstartError, ValueError):
    """A model gave something that is not a distribution. The hint names the context it was asked about."""


def checked(distributions: ArrayLike, contexts: Sequence[tuple[int, ...]], vocab: int | None, role: str) -> Floats:
    """`distributions` as float64 [n, V], each renormalised to sum to 1 exactly up to rounding.

    Args:
        distributions: what the model gave for `contexts` (n of them).
        vocab: V, or None if any width will do.
        role: whose distributions they are, for the message.

    Raises:
        InvalidDistribution: it is not [n, V], or an entry or a sum is not that of a distribution.
    """
    array = as_floats(distributions, contexts, role)
    if array.ndim != 2 or len(array) != len(contexts) or array.shape[1] == 0:
        raise InvalidDistribution(
            f"the {role} gave distributions of shape {array.shape} for {len(contexts)} contexts",
            hint=_after(contexts[0], "give [n, V] for n of them"),
        )
    if vocab is not None and array.shape[1] != vocab:
        raise InvalidDistribution(
            f"the {role}'s distribution has {array.shape[1]} tokens where {vocab} were expected",
            hint=_after(contexts[0], "both models need one vocabulary, and one width in every context"),
        )
    sums = array.sum(axis=1)
    for wrong, what, hint in (
        (~np.isfinite(array).all(axis=1), "holds NaN or infinity", "look at the logits it was made from"),
        ((array < 0).any(axis=1), "has a negative entry", "give probabilities; logits go through from_logits"),
        (abs(sums - 1) > TOLERANCE, "sums to {sum:.6g}, not 1", "normalise it; logits go through from_logits"),
    ):
        if wrong.any():
            first = int(wrong.argmax())
            raise InvalidDistribution(
                f"the {role}'s distribution {what.format(sum=sums[first])}", hint=_after(contexts[first], hint)
            ) from None
    normalised: Floats = array / sums[:, None]
    return normalised


def as_floats(values: ArrayLike, contexts: Sequence[tuple[int, ...]], role: str) -> Floats:
    """`values` as float64, or `InvalidDistribution` naming the first of `contexts`."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDistribution(
            f"what the {role} gave cannot be read as numbers: {error}",
            hint=_after(contexts[0], "give a NumPy array, or anything np.asarray takes"),
        ) from error


def draw(weights: Floats, uniforms: Floats) -> Ints:
    """One token per row of `weights` [B, V] (rows need not sum to 1, but not to 0), by inverse transform."""
    sums = weights.cumsum(axis=1)
    total = sums[:, -1]
    # below the total even after rounding, so that the token found is one that has weight
    aims = np.minimum(uniforms * total, np.nextafter(total, 0))
    found: Any = (sums > aims[:, None]).argmax(axis=1)
    return np.asarray(found, dtype=np.int64)


def _after(context: tuple[int, ...], advice: str) -> str:
    tail = ", ".join(map(str, context[-_SHOWN:]))
    dots = "..., " if len(context) > _SHOWN else ""
    return f"it was asked about context ({dots}{tail}); {advice}"


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Draws:
    """The noise of `streams` streams in lockstep, from one seed. `position` [B]: how many tokens each one has emitted.

    Most numbers are drawn in order from one generator. The race noise of the coupled rule is a pure function of (seed,
    stream, position, token), counter-based (SplitMix64: Steele, Lea, Flood 2014), so that a position met again, after a
    rejection or under another drafter, has the same noise.
    """

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
