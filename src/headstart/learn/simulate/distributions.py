"""What a distribution is, and what is refused as one: V probabilities, finite, none negative, summing to 1."""

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
