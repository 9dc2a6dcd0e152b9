"""Models as the simulator sees them: any callable from a context to a distribution.

    distribution = model(context)      # context: a tuple of token ids; distribution: [V], anything np.asarray takes

Two optional attributes make one faster; neither changes its distribution:

    model.distributions(contexts)      # contexts: [n, L] int64, n of equal length; gives [n, V]
    model.order               # n: only the last n tokens matter, so only they are passed, and contexts that share
                              # them are asked about once; absent or None: everything matters

At the end are pairs to experiment with: a dial for agreement, an acceptance made to measure, and text that changes
character.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from headstart.base.errors import InvalidOption, InvalidPrompt
from headstart.base.options import check_number
from headstart.learn.simulate.distributions import Floats, Ints, InvalidDistribution, as_floats, checked
from headstart.theory.distributions import softmax


class Model(Protocol):
    """What every model is; see the module's docstring for what it may also have."""

    def __call__(self, context: tuple[int, ...], /) -> ArrayLike: ...


def order_of(model: Model) -> int | None:
    """How many last tokens matter to the model; None if all do."""
    order = getattr(model, "order", None)
    if order is not None:
        check_number("order", order, low=0, integer=True)
        order = int(order)
    return order


def ask(model: Model, contexts: Sequence[tuple[int, ...]], vocab: int | None, role: str) -> Floats:
    """The model's distributions [n, V] after `contexts`, checked; in as few calls as its batched form allows.

    Raises:
        InvalidDistribution: it gave something else.
    """
    batched = getattr(model, "distributions", None)
    if batched is None:
        return np.concatenate([checked([_distribution(model, c, role)], [c], vocab, role) for c in contexts])
    rows: list[Floats] = [np.empty(0)] * len(contexts)
    for length in sorted({len(c) for c in contexts}):
        which = [i for i, c in enumerate(contexts) if len(c) == length]
        same = [contexts[i] for i in which]
        found = batched(np.array(same, dtype=np.int64).reshape(len(same), length))
        for i, distribution in zip(which, checked(found, same, vocab, role), strict=True):
            rows[i] = distribution
    return np.stack(rows)


def _distribution(model: Model, context: tuple[int, ...], role: str) -> Floats:
    distribution = as_floats(model(context), [context], role)
    if distribution.ndim != 1 or distribution.size == 0:
        raise InvalidDistribution(
            f"the {role} gave a distribution of shape {distribution.shape}",
            hint=f"give [V] after context {context[-8:]}",
        )
    return distribution


@dataclass(frozen=True, eq=False)
class TableModel:
    """A Markov model: one distribution for every possible sequence of the last `order` tokens.

    table: [V, ..., V, V], `order` axes for the last tokens (oldest first) and one for the next. A context shorter
    than that is read as if token 0 came before it.
    """

    table: Floats

    def __post_init__(self) -> None:
        table = np.asarray(self.table, dtype=np.float64)
        if table.ndim < 1 or len(set(table.shape)) != 1:
            raise InvalidOption(f"a table of shape {table.shape} is no model", hint="every axis must have V entries")
        object.__setattr__(self, "table", table)

    @property
    def order(self) -> int:
        return self.table.ndim - 1

    @property
    def vocab(self) -> int:
        return int(self.table.shape[-1])

    def __call__(self, context: tuple[int, ...], /) -> Floats:
        distribution: Floats = self.distributions(np.array([context], dtype=np.int64).reshape(1, len(context)))[0]
        return distribution

    def distributions(self, contexts: Ints) -> Floats:
        if contexts.size and not 0 <= contexts.min() <= contexts.max() < self.vocab:
            raise InvalidPrompt(
                f"a context has tokens outside 0..{self.vocab - 1}", hint="prompts are lists of token ids below V"
            )
        missing = max(0, self.order - contexts.shape[1])
        padded = np.pad(contexts, ((0, 0), (missing, 0)))
        last = padded[:, padded.shape[1] - self.order :]
        found: Floats = np.broadcast_to(self.table[tuple(last.T)], (len(contexts), self.vocab))
        return found


def random_table(vocab: int = 10, order: int = 1, *, seed: int = 0, spread: float = 1.0) -> TableModel:
    """A table model of V tokens whose logits are N(0, spread squared) in each of its V**order contexts."""
    check_number("vocab", vocab, low=2, integer=True)
    check_number("order", order, low=0, integer=True)
    check_number("spread", spread, low=0)
    rng = np.random.default_rng(seed)
    return TableModel(softmax(rng.normal(0, spread, (vocab,) * (order + 1)), 1.0))


@dataclass(frozen=True, eq=False)
class LogitsModel:
    """See `from_logits`."""

    function: Callable[[Any], ArrayLike]
    temperature: float
    batched: bool
    order: int | None

    def __call__(self, context: tuple[int, ...], /) -> Floats:
        one = np.array([context], dtype=np.int64).reshape(1, len(context))
        distribution: Floats = (
            self._distributions(one) if self.batched else self._softmax([self.function(context)], [context])
        )[0]
        return distribution

    @property
    def distributions(self) -> Callable[[Ints], Floats] | None:
        return self._distributions if self.batched else None

    def _distributions(self, contexts: Ints) -> Floats:
        return self._softmax(self.function(contexts), [tuple(c) for c in contexts.tolist()])

    def _softmax(self, logits: Any, contexts: Sequence[tuple[int, ...]]) -> Floats:
        rows = as_floats(logits, contexts, "function of logits")
        if rows.ndim != 2 or len(rows) != len(contexts) or rows.shape[1] == 0:
            raise InvalidDistribution(
                f"the function gave logits of shape {rows.shape if self.batched else rows.shape[1:]}",
                hint=f"give those of the next token alone, [V] for one context, after {contexts[0][-8:]}",
            )
        for row, context in zip(rows, contexts, strict=True):
            if np.isnan(row).any() or row.max() in (np.inf, -np.inf):
                raise InvalidDistribution(
                    "the function gave logits that make no distribution (NaN, +infinity, or nothing but -infinity)",
                    hint=f"it was asked about context {context[-8:]} (its last tokens)",
                )
        return softmax(rows, self.temperature)


def from_logits(
    function: Callable[[Any], ArrayLike], temperature: float = 1.0, *, batched: bool = False, order: int | None = None
) -> LogitsModel:
    """A model from a function of any framework that gives the next token's logits.

    Args:
        function: takes a tuple of token ids, gives logits [V]; anything np.asarray takes. -infinity forbids a token.
        temperature: divides the logits; 0 makes the distribution one-hot: greedy decoding.
        batched: the function takes [n, L] int64 instead and gives [n, V].
        order: see the module's docstring.
    """
    check_number("temperature", temperature, low=0)
    return LogitsModel(function, float(temperature), batched, order)


@dataclass(frozen=True, eq=False)
class Tempered:
    """See `at_temperature`."""

    model: Model
    temperature: float

    @property
    def order(self) -> int | None:
        return order_of(self.model)

    def __call__(self, context: tuple[int, ...], /) -> Floats:
        distribution: Floats = self._tempered([context])[0]
        return distribution

    def distributions(self, contexts: Ints) -> Floats:
        return self._tempered([tuple(c) for c in contexts.tolist()])

    def _tempered(self, contexts: Sequence[tuple[int, ...]]) -> Floats:
        with np.errstate(divide="ignore"):
            return softmax(np.log(ask(self.model, contexts, None, "model")), self.temperature)


def at_temperature(model: Model, temperature: float) -> Tempered:
    """The model whose distributions are the given one's to the power 1 / temperature, renormalised; 0 is greedy."""
    check_number("temperature", temperature, low=0)
    return Tempered(model, float(temperature))


def greedy(model: Model) -> Tempered:
    """The model that puts everything on its likeliest token (the first of several)."""
    return at_temperature(model, 0.0)


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
