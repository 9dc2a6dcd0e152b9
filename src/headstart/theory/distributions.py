"""Acceptance from the distributions themselves: p the target's, q the draft's, both after every processor.

A token drawn from q is accepted with probability sum_x min(p(x), q(x)) = 1 - TV(p, q), and no exact rule that looks at
one token does better. Sources: Leviathan et al. (arXiv:2211.17192), section 3.2, corollary 3.6; Daliri, Musco, Suresh,
"Coupling without communication and drafter-invariant speculative decoding" (2024); block verification:
arXiv:2403.10444.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from headstart.base.errors import InvalidOption
from headstart.theory.values import Array, Real, numbers, plain, whole

_SUM_TOLERANCE = 1e-3  # distributions in 16 bits add up to 1 no better than this
_MOST_STATES = 2_000_000


def acceptance(p: ArrayLike, q: ArrayLike) -> Real:
    """alpha = sum_x min(p(x), q(x)); p and q are [..., V] and broadcast.

    Raises:
        InvalidOption: a negative probability, a distribution that does not add up to 1, or two sizes of V.
    """
    target, draft = _distribution("p", p), _distribution("q", q)
    _same_vocabulary(target, draft)
    return plain(np.minimum(np.minimum(target, draft).sum(-1), 1.0))


def coupled_acceptance(p: ArrayLike, q: ArrayLike) -> Real:
    """Acceptance under rule "coupled", where p and q take their token with the same exponential noise.

    With E_y the noise, token x is argmin E_y/p(y) and argmin E_y/q(y) at once if E_y > E_x max(p(y)/p(x), q(y)/q(x))
    for all other y, which has probability 1 / sum_y max(p(y)/p(x), q(y)/q(x)); alpha is the sum over x. It is at
    least (1 - TV) / (1 + TV), the `coupled_floor` of what rule "exact" accepts, and never above 1 - TV.
    """
    target, draft = _distribution("p", p), _distribution("q", q)
    _same_vocabulary(target, draft)
    target, draft = np.broadcast_arrays(target, draft)
    alpha = np.zeros(target.shape[:-1])
    for x in range(target.shape[-1]):  # [..., V] at a time, not [..., V, V]
        px, qx = target[..., x], draft[..., x]
        both = np.minimum(px, qx) > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            rivals = np.maximum(target / px[..., None], draft / qx[..., None]).sum(-1)
            alpha += np.where(both, 1 / rivals, 0.0)
    return plain(np.minimum(alpha, 1.0))


def coupled_floor(alpha: ArrayLike) -> Real:
    """(1 - TV) / (1 + TV) = alpha / (2 - alpha): the least rule "coupled" accepts where rule "exact" accepts alpha."""
    a = numbers("alpha", alpha, low=0, high=1)
    return plain(a / (2 - a))


def acceptance_at(p_logits: ArrayLike, q_logits: ArrayLike, temperatures: ArrayLike) -> Real:
    """alpha when both models sample at temperature T: sum_x min(softmax(p/T), softmax(q/T)).

    Logits are [..., V], -inf forbids a token; the result is [..., *shape of temperatures]. At T = 0 both distributions
    are their likeliest token (the first of equals), and alpha is 0 or 1. A high T flattens both distributions, so alpha
    tends to 1 as T grows (where both allow the same tokens); between, it can fall and rise.

    Raises:
        InvalidOption: a temperature below 0, logits that are nan, or two sizes of V.
    """
    target, draft = _logits("p_logits", p_logits), _logits("q_logits", q_logits)
    _same_vocabulary(target, draft)
    return _at_each(temperatures, lambda t: np.minimum(softmax(target, t), softmax(draft, t)).sum(-1))


def point_acceptance_at(p_logits: ArrayLike, q_logits: ArrayLike, temperatures: ArrayLike) -> Real:
    """alpha where the draft is a point mass, the draft model's likeliest token at every temperature: p of that token.

    This holds for greedy drafts, trees of likeliest tokens, and n-gram and suffix matches. Shapes and errors are those
    of `acceptance_at`.
    """
    target, draft = _logits("p_logits", p_logits), _logits("q_logits", q_logits)
    _same_vocabulary(target, draft)
    target, draft = np.broadcast_arrays(target, draft)
    guess = draft.argmax(-1)[..., None]
    return _at_each(temperatures, lambda t: np.take_along_axis(softmax(target, t), guess, axis=-1)[..., 0])


def _at_each(temperatures: ArrayLike, alpha: Callable[[float], Array]) -> Real:
    """[..., *shape of temperatures]: alpha [...] at each of them."""
    heat = numbers("temperatures", temperatures, low=0)
    alphas = np.minimum(np.stack([alpha(t) for t in heat.reshape(-1)], axis=-1), 1.0)
    return plain(alphas.reshape((*alphas.shape[:-1], *heat.shape)))


def block_tokens(p: ArrayLike, q: ArrayLike, k: int) -> float:
    """Tokens per round of block verification, where p and q, [V], are the same at every position.

    A path is kept to position i with probability w_i = min(w_{i-1} p(x_i)/q(x_i), 1), w_0 = 1, so E = 1 + sum_i E[w_i].
    Judged token by token it is kept with the product of min(p/q, 1), and w_i is never less: with r_i = p(x_i)/q(x_i),
    min(w r, 1) >= w min(r, 1) for w <= 1. So block verification never emits fewer tokens than `expected_tokens`.
    """
    target, draft = _distribution("p", p), _distribution("q", q)
    if target.shape != draft.shape or target.ndim != 1:
        raise InvalidOption(
            f"p and q have shapes {list(target.shape)} and {list(draft.shape)}",
            hint="give one distribution each, over one vocabulary",
        )
    drawn = draft > 0
    ratio, chance = target[drawn] / draft[drawn], draft[drawn]
    weights: Array = np.ones(1)
    masses: Array = np.ones(1)
    tokens = 1.0
    for _ in range(int(whole("k", k))):
        # Many paths have the same weight (the order of their tokens does not matter), up to the last digits.
        reached = np.minimum(np.outer(weights, ratio), 1.0).round(12).reshape(-1)
        if reached.size > _MOST_STATES:
            raise InvalidOption(
                f"k={k} over {len(ratio)} tokens are too many paths to enumerate", hint="take a smaller k or vocabulary"
            )
        weights, where = np.unique(reached, return_inverse=True)
        masses = np.bincount(where, np.outer(masses, chance).reshape(-1)).astype(np.float64)
        tokens += float(weights @ masses)
    return tokens


def _distribution(name: str, value: ArrayLike) -> Array:
    distribution = numbers(name, value, low=0)
    if distribution.ndim == 0 or distribution.shape[-1] == 0 or (abs(distribution.sum(-1) - 1) > _SUM_TOLERANCE).any():
        raise InvalidOption(f"{name} is no distribution", hint=f"{name} is [..., V]: probabilities that add up to 1")
    return distribution


def _logits(name: str, value: ArrayLike) -> Array:
    try:
        logits = np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError):
        logits = np.empty(())
    if logits.ndim == 0 or not np.isfinite(logits.max(-1, initial=-np.inf)).all():
        raise InvalidOption(f"{name} are no logits", hint=f"{name} is [..., V]; not nan, and not all of a row -inf")
    return logits


def _same_vocabulary(p: Array, q: Array) -> None:
    if p.shape[-1] != q.shape[-1]:
        raise InvalidOption(
            f"p has {p.shape[-1]} tokens, q has {q.shape[-1]}",
            hint="compare distributions over one vocabulary: give the tokens that one lacks probability 0",
        )


def softmax(logits: Array, temperature: float) -> Array:
    """Distributions [..., V] of logits [..., V]; at temperature 0 one-hot on the first of the greatest."""
    if temperature == 0:
        greedy: Array = np.eye(logits.shape[-1])[logits.argmax(-1)]
        return greedy
    rises = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    distribution: Array = rises / rises.sum(-1, keepdims=True)
    return distribution
