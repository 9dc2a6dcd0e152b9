"""Solutions of the exercises, as short as they can be. Their source is what the reader is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def expected_tokens(alpha: float, gamma: int) -> float:
    if alpha == 1:
        return gamma + 1
    return float((1 - alpha ** (gamma + 1)) / (1 - alpha))


def corrected_distribution(p: Any, q: Any) -> Any:
    residual = np.maximum(np.asarray(p) - np.asarray(q), 0)
    if residual.sum() == 0:
        return np.asarray(p)
    return residual / residual.sum()


def adaptive_k(k: int, history: Sequence[tuple[int, int]]) -> int:
    last = history[-5:]
    if len(last) == 5:
        share = sum(accepted for _, accepted in last) / sum(drafted for drafted, _ in last)
        if share > 0.8:
            k += 1
        elif share < 0.5:
            k -= 1
    return max(2, min(10, k))


def verify(draft: list[int], p: Any, q: Any, accept: Callable[[Any], bool], draw: Callable[[Any], int]) -> list[int]:
    for i, token in enumerate(draft):
        if not accept(min(1, p[i][token] / q[i][token])):
            residual = np.maximum(p[i] - q[i], 0)
            return [*draft[:i], draw(residual / residual.sum())]
    return [*draft, draw(p[len(draft)])]


def verify_block(
    draft: list[int], p: Any, q: Any, accept: Callable[[Any], bool], draw: Callable[[Any], int]
) -> list[int]:
    weights = [1]  # the chance with which the first i guesses may still be kept
    for i, token in enumerate(draft):
        weights.append(min(weights[i] * p[i][token] / q[i][token], 1))
    if not draft or accept(weights[-1]):
        return [*draft, draw(p[len(draft)])]
    for i in reversed(range(len(draft))):  # from the end: keep i guesses, and replace the next
        rest = np.maximum(weights[i] * p[i] - q[i], 0)
        total = rest.sum()
        if total > 0 and accept(total / (total + 1 - weights[i])):
            break  # at i = 0 the weight is 1, and so is this chance
    return [*draft[:i], draw(rest / total)]
