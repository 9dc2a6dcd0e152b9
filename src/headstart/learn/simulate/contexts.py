"""Contexts met so far, numbered, and the distributions after them in tables: what lets many streams move in lockstep.

A model of any kind is asked once per context; everything after that is indexing. Contexts that agree in all that
matters to both models (see `order`) are one, so a table model soon has all of its contexts numbered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import InvalidPrompt
from headstart.learn.simulate.distributions import Floats, Ints
from headstart.learn.simulate.models import Model, ask, order_of

MEMORY = 2**28
"""Bytes of contexts and distributions that are kept; past that all but the streams' present contexts are forgotten."""

Number = TypeVar("Number", bound=np.generic)

_NEVER = 2.0  # in a cumulative distribution: above every uniform number


class Contexts:
    """Numbers for contexts. Number i's continuation by token t is `children[i, t]`, -1 until it is asked for."""

    def __init__(self, vocab: int, order: int | None) -> None:
        self.vocab, self.order = vocab, order
        self._tuples: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._children: NDArray[np.int32] = np.full((0, vocab), -1, dtype=np.int32)
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._tuples)

    def __getitem__(self, number: int) -> tuple[int, ...]:
        return self._tuples[number]

    @property
    def memory(self) -> int:
        return self._children.nbytes + 8 * self._tokens

    def number(self, context: Sequence[int]) -> int:
        whole = tuple(int(t) for t in context)
        kept = whole if self.order is None else whole[len(whole) - min(self.order, len(whole)) :]
        if kept not in self._numbers:
            self._numbers[kept] = len(self._tuples)
            self._tuples.append(kept)
            self._tokens += len(kept)
            self._children = grown(self._children, len(self._tuples), -1)
        return self._numbers[kept]

    def follow(self, numbers: Ints, tokens: Ints) -> Ints:
        """The contexts [B] that `tokens` [B] make of `numbers` [B]."""
        edges = numbers * self.vocab + tokens
        found = self._children.ravel().take(edges)
        if found.min(initial=0) < 0:
            for edge in np.unique(edges[found < 0]).tolist():
                parent, token = divmod(edge, self.vocab)
                child = self.number((*self._tuples[parent], token))
                self._children[parent, token] = child
            found = self._children.ravel().take(edges)
        return found.astype(np.int64)

    def keep(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Forget all contexts but `numbers` [B]: which those were, ascending, and each one's new number [B]."""
        kept, renumbered = np.unique(numbers, return_inverse=True)
        tuples = [self._tuples[i] for i in kept.tolist()]
        self._tuples, self._tokens = tuples, sum(map(len, tuples))
        self._numbers = {context: i for i, context in enumerate(tuples)}
        self._children = grown(np.full((0, self.vocab), -1, dtype=np.int32), len(tuples), -1)
        return kept, renumbered.astype(np.int64)


class Distributions:
    """One model's distributions after numbered contexts, filled as needed. `calls` counts contexts it was asked
    about."""

    def __init__(self, model: Model, contexts: Contexts, role: str) -> None:
        self._model, self._contexts, self._role = model, contexts, role
        self._width = 1 << (contexts.vocab - 1).bit_length()
        self._known: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self._distribution: Floats = np.zeros((0, contexts.vocab))
        self._cumulative: Floats = np.zeros((0, self._width))
        self._best: Ints = np.zeros(0, dtype=np.int64)
        self.calls = 0

    @property
    def memory(self) -> int:
        return self._distribution.nbytes + self._cumulative.nbytes

    def require(self, numbers: Ints) -> None:
        """Ask the model about those of `numbers` it was not asked about yet."""
        self.cover()
        known = self._known.take(numbers)
        if known.all():
            return
        missing = np.unique(numbers[~known])
        contexts = [self._contexts[i] for i in missing.tolist()]
        distributions = ask(self._model, contexts, self._contexts.vocab, self._role)
        cumulative = np.full((len(distributions), self._width), _NEVER)
        sums = distributions.cumsum(axis=1)
        # from the last possible token on nothing is skipped, so a rounded sum below 1 does no harm
        cumulative[:, : distributions.shape[1]] = np.where(sums >= sums[:, -1:], _NEVER, sums)
        self._distribution[missing], self._cumulative[missing] = distributions, cumulative
        self._best[missing] = distributions.argmax(axis=1)
        self._known[missing] = True
        self.calls += len(missing)

    def rows(self, numbers: Ints) -> Floats:
        """[B, V]; zeros for a context that was never required."""
        return self._distribution.take(numbers, axis=0)

    def of(self, numbers: Ints, tokens: Ints) -> Floats:
        """The probability [B] of each token."""
        return self._distribution.ravel().take(numbers * self._contexts.vocab + tokens)

    def best(self, numbers: Ints) -> Ints:
        """The likeliest token [B]."""
        return self._best.take(numbers)

    def top(self, numbers: Ints) -> Floats:
        """The likeliest token's probability [B]."""
        return self.of(numbers, self.best(numbers))

    def draw(self, numbers: Ints, uniforms: Floats) -> Ints:
        """One token [B] of each distribution, by inverse transform: a binary search in all rows at once."""
        start = numbers * self._width - 1
        found = np.zeros(len(numbers), dtype=np.int64)
        flat, step = self._cumulative.ravel(), self._width // 2
        while step:
            found += step * (flat.take(start + found + step) <= uniforms)
            step //= 2
        return found

    def keep(self, kept: Ints) -> None:
        """Forget all contexts but `kept`, which get the numbers 0, 1, ..."""
        self._known, self._best = self._known[kept], self._best[kept]
        self._distribution, self._cumulative = self._distribution[kept], self._cumulative[kept]

    def cover(self) -> None:
        """Make room for all numbered contexts, so that any may be looked at."""
        size = len(self._contexts)
        self._known, self._best = grown(self._known, size, False), grown(self._best, size, 0)
        self._distribution, self._cumulative = grown(self._distribution, size, 0), grown(self._cumulative, size, _NEVER)


def forget(contexts: Contexts, heads: Ints, *distributions: Distributions) -> Ints:
    """If contexts and distributions take more than MEMORY, drop all but the contexts `heads` [B]; returns their numbers
    [B]."""
    if contexts.memory + sum(one.memory for one in distributions) <= MEMORY:
        return heads
    for one in distributions:
        one.cover()
    kept, renumbered = contexts.keep(heads)
    for one in distributions:
        one.keep(kept)
    return renumbered


def grown(array: NDArray[Number], size: int, fill: float) -> NDArray[Number]:
    """`array` with at least `size` rows, the new ones `fill`; with some to spare, so that growing stays cheap."""
    if len(array) >= size:
        return array
    result = np.full((max(size, len(array) * 3 // 2), *array.shape[1:]), fill, dtype=array.dtype)
    result[: len(array)] = array
    return result


def shared(
    target: Model, draft: Model | None, prompt: Sequence[int]
) -> tuple[Contexts, Distributions, Distributions | None, int]:
    """Contexts for a pair (or a target alone), its distributions, and the prompt's number. V is the width of the
    target's distribution.

    Raises:
        InvalidDistribution: the target's distribution after the prompt is none.
        InvalidPrompt: a token of the prompt is not in the vocabulary.
    """
    start = tuple(int(t) for t in prompt)
    orders = [order_of(target)] + ([] if draft is None else [order_of(draft)])
    order = None if None in orders else max(o for o in orders if o is not None)
    window = start if order is None else start[max(0, len(start) - order) :]
    vocab = ask(target, [window], None, "target").shape[1]
    if any(not 0 <= token < vocab for token in start):
        raise InvalidPrompt(f"prompt {start[-8:]} has tokens outside 0..{vocab - 1}", hint="give token ids")
    contexts = Contexts(vocab, order)
    distributions = None if draft is None else Distributions(draft, contexts, "draft")
    return contexts, Distributions(target, contexts, "target"), distributions, contexts.number(start)
