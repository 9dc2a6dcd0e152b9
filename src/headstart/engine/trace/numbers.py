"""Distributions and weights as a trace writes them: the likeliest tokens, the rest, the entropy; five significant
digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.engine.trace.format import Entry


def rounded(value: float) -> float:
    """Five significant digits, as a trace gives probabilities."""
    return float(f"{value:.5g}")


def top(distribution: NDArray[Any], count: int) -> list[Entry]:
    """The `count` likeliest tokens of a distribution [V], likeliest first; those of probability 0 are left out."""
    count = min(count, distribution.size)
    others = distribution.size - count
    ids = np.argpartition(distribution, others)[others:] if others else np.arange(count)
    found = [(int(i), float(distribution[i])) for i in ids if distribution[i] > 0]
    return [(i, rounded(p)) for i, p in sorted(found, key=lambda entry: (-entry[1], entry[0]))]


def rest(distribution: NDArray[Any], entries: list[Entry]) -> float:
    """The probability of all tokens that are not among these."""
    ids = [i for i, _ in entries]
    if np.count_nonzero(distribution) <= len(ids):
        return 0.0
    return rounded(max(0.0, float(distribution.sum(dtype=np.float64) - distribution[ids].sum(dtype=np.float64))))


def entropy(distribution: NDArray[Any]) -> float:
    """In nats."""
    p = distribution[distribution > 0].astype(np.float64)
    return rounded(max(0.0, -float((p * np.log(p)).sum())))


def residual(p: NDArray[Any], q: NDArray[Any], count: int) -> list[Entry]:
    """The likeliest tokens of norm(max(p - q, 0)); empty where the distributions are the same."""
    left = np.maximum(p.astype(np.float64) - q, 0)
    total = float(left.sum())
    return top(left / total, count) if total > 0 else []


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """The distributions [n, V] of logits [n, V]."""
    x = logits.astype(np.float64)
    x = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(x / x.sum(-1, keepdims=True))
