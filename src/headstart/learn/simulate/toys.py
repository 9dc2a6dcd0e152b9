"""Pairs to experiment with: a dial for agreement, an acceptance made to measure, and text that changes character."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number
from headstart.learn.simulate.distributions import Floats
from headstart.learn.simulate.models import TableModel
from headstart.theory.distributions import softmax


def dial_logits(
    a: float, shape: Sequence[int] = (1000,), *, vocab: int = 10, boost: float = 2.0, noise: float = 0.5, seed: int = 0
) -> tuple[Floats, Floats]:
    """Logits [*shape, V] of a target, and of a draft that agrees with it to the degree `a` in [0, 1].

    Target: N(0, 1), and `boost` more on one token (which one is drawn). Draft: a * target + (1 - a) * N(0, noise
    squared). The published row of mean acceptances for a = 0 .2 .4 .6 .8 .9 .95 1 is about .53 .63 .72 .82 .92 .96 .98
    1.00, with noise written "N(0, .5)". Read as a standard deviation of 0.5 (the default here) every figure comes out
    to within 0.015 (.53 .62 .71 .81 .91 .96 .98 1.00 over very many draws); read as a variance, the second to fourth
    are short by .03 to .04.
    """
    check_number("a", a, low=0, high=1)
    check_number("vocab", vocab, low=2, integer=True)
    check_number("noise", noise, low=0)
    rng = np.random.default_rng(seed)
    target = rng.normal(0, 1, (*shape, vocab))
    favourite = rng.integers(0, vocab, tuple(shape))
    target += boost * (np.arange(vocab) == favourite[..., None])
    return target, a * target + (1 - a) * rng.normal(0, noise, target.shape)


def dial_acceptance(a: float, *, draws: int = 1000, temperature: float = 1.0, seed: int = 0) -> float:
    """Mean acceptance, sum of min(p, q), over `draws` independent pairs of the dial."""
    check_number("draws", draws, low=1, integer=True)
    check_number("temperature", temperature, low=0)
    p, q = (softmax(logits, temperature) for logits in dial_logits(a, (draws,), seed=seed))
    return float(np.minimum(p, q).sum(axis=-1).mean())


def dial_pair(
    a: float, *, vocab: int = 10, order: int = 1, temperature: float = 1.0, seed: int = 0
) -> tuple[TableModel, TableModel]:
    """Target and draft tables: an independent draw of the dial in each of the V**order contexts."""
    check_number("order", order, low=0, integer=True)
    check_number("temperature", temperature, low=0)
    p, q = (softmax(logits, temperature) for logits in dial_logits(a, (vocab,) * order, vocab=vocab, seed=seed))
    return TableModel(p), TableModel(q)


def planted_pair(
    alpha: float | Sequence[float], *, vocab: int = 10, seed: int = 0, target: TableModel | None = None
) -> tuple[TableModel, TableModel]:
    """A pair whose acceptance is exactly `alpha` in every context, or alpha[t] after token t.

    The target never emits the last token; the draft proposes it with probability 1 - alpha, and otherwise draws from
    the target's distribution: sum of min(p, q) = alpha. So acceptance is independent from token to token, as the
    textbook formulas assume.

    target: an order-1 table that gives the last token probability 0; a random one by default.

    Raises:
        InvalidOption: an alpha outside [0, 1], not one or V of them, or a target that emits the last token.
    """
    check_number("vocab", vocab, low=2, integer=True)
    if target is None:
        logits = np.random.default_rng(seed).normal(0, 1, (vocab, vocab))
        logits[:, -1] = -np.inf
        target = TableModel(softmax(logits, 1.0))
    if target.order != 1 or target.table[:, -1].any():
        raise InvalidOption(
            "the target cannot carry a planted draft", hint="order 1, and probability 0 for the last token"
        )
    rates = np.asarray(alpha, dtype=np.float64)
    if rates.shape not in ((), (target.vocab,)) or not ((rates >= 0) & (rates <= 1)).all():
        raise InvalidOption(f"alpha={alpha!r} is out of range", hint=f"one number of 0 to 1, or {target.vocab} of them")
    share = np.broadcast_to(rates, target.vocab)[:, None]
    return target, TableModel(share * target.table + (1 - share) * np.eye(target.vocab)[-1])


def changing_pair(
    easy: float = 0.95, hard: float = 0.3, *, stay: float = 0.98, half: int = 5, seed: int = 0
) -> tuple[TableModel, TableModel]:
    """Text that changes between an easy and a hard kind, with an acceptance for each.

    Tokens 0..half-1 are easy text, the next `half` hard; each token stays in its kind with probability `stay`. The
    draft is accepted with probability `easy` or `hard`, by the kind of the token before. V = 2 * half + 1.
    """
    check_number("stay", stay, low=0, high=1)
    check_number("half", half, low=1, integer=True)
    kinds = softmax(np.random.default_rng(seed).normal(0, 1, (2 * half, 2, half)), 1.0)
    chances = np.array([[stay, 1 - stay]] * half + [[1 - stay, stay]] * half)
    table = np.zeros((2 * half + 1, 2 * half + 1))
    table[:-1, :-1] = (kinds * chances[..., None]).reshape(2 * half, 2 * half)
    table[-1, 0] = 1.0  # never reached by the target; a draft may ask what follows its own wrong token
    return planted_pair([easy] * half + [hard] * (half + 1), target=TableModel(table))
