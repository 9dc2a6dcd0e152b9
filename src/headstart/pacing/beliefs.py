"""What is believed of a drafter's guesses: how likely the first d of them are all accepted, now, for this request.

The quality of guesses is a hidden state: one of ten acceptance rates, which can change with every token of the text
(a text turns from repetition to something new). A round that accepted j of k guesses is evidence, a^j (1 - a) or
a^k, for each rate a; between rounds the belief drifts back to a prior. So one long acceptance after a
long drought is believed at once, two failures in a row after a long run too, and a single failure is forgiven:
what a decayed mean of any memory cannot do. Being a mixture, it also says that a guess whose forerunners were right is
likelier to be right, as measured acceptance does.

Trees of several sizes. At each node that a round tests, the eldest child is accepted with the rate a, and each further
one, where its elder siblings were not, with a share s of it that falls from sibling to sibling and is learnt from the
ranks of accepted nodes, from all requests. So a tree's rounds are evidence for the same hidden rate, whatever its
shape, and each rate says what the best tree of each size would bring: a smaller, a deeper or a bushier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.drafters.growing.ranks import Ranks, outcomes
from headstart.theory.trees import likeliest_gains
from headstart.types import Draft

RATES = (0.02, 0.15, 0.3, 0.45, 0.6, 0.72, 0.82, 0.9, 0.95, 0.985)
DEEPEST = 32
"""Guesses beyond this depth are not told apart."""

_GOOD = 5  # from this rate on a source is good

CHANGE = 1 / 50
"""Chance, per token of text, that the quality is drawn anew from the prior."""
_FLOOR = 0.05  # of the prior stays evenly spread, so that nothing is ever thought impossible
_PATIENCE = 20.0  # rounds' worth of doubt about depths that behave otherwise than the mixture says
_MEMORY = 1 - 1 / 200

_A = np.array(RATES)
_POWERS = _A[None, :] ** np.arange(DEEPEST + 1)[:, None]  # [depth, rate]
_FAILED = _POWERS * (1 - _A)
_FLOOR_EVEN = np.full(len(RATES), _FLOOR / len(RATES))
_FRESH = 8
_YOUNG = 3
_NEVER = 0.01  # deeper guesses than those that survive with this chance are not thought about
# Moderate: 0.6 on average, nothing excluded
_START = np.array([1.0, 1.0, 1.2, 1.5, 1.8, 2.0, 2.0, 1.6, 1.0, 0.6])
_START /= _START.sum()
_DRIFT = (1 - (1 - CHANGE) ** np.arange(8 * DEEPEST)).tolist()
_SIBLINGS = 8  # ranks beyond are not told apart


class Pool:
    """What the rounds of many requests said of one source: the prior, the depths, and how often it speaks.

    sizes: (nodes, depth) of its trees, where there are several; `trees` then says what they bring.
    """

    def __init__(self, limit: int = DEEPEST, sizes: Sequence[tuple[int, int]] = ()) -> None:
        self.powers = _POWERS[: limit + 1]
        self.prior: NDArray[Any] = _START
        self.speaks = 0.8
        self.promise = 1.0
        self._spread: NDArray[Any] = _START
        self._rounds = 0
        self._seen = [0.0] * DEEPEST
        self._expected = [0.0] * DEEPEST
        self.bias = [1.0] * DEEPEST
        self.trees = Trees(sizes) if len(sizes) > 1 else None

    @property
    def young(self) -> bool:
        """Whether hardly anything is known yet."""
        return self._rounds < _YOUNG

    def learn(self, posterior: NDArray[Any]) -> None:
        """Move the prior towards what a round left believed: fast at first, then with a memory of 50 rounds.

        promise, 0 to 1: how far this source has been known to be good at times.
        """
        self._rounds += 1
        rate = max(0.02, 1 / (self._rounds + 8))
        self._spread = self._spread + rate * (posterior - self._spread)
        if self._rounds % _FRESH == 0 or self._rounds < 2 * _FRESH:
            self.prior = (1 - _FLOOR) * self._spread + _FLOOR_EVEN
            self.promise = min(1.0, 4 * float(self._spread[_GOOD:].sum()))

    def heard(self, spoke: bool) -> None:
        self.speaks += 0.05 * (spoke - self.speaks)

    def calibrate(self, kept: Sequence[float], accepted: int, drafted: int) -> None:
        """Depth by depth, how often guesses were accepted against how often the mixture said so."""
        expected, seen, bias = self._expected, self._seen, self.bias
        for depth in range(min(accepted + 1, drafted)):
            expected[depth] = _MEMORY * expected[depth] + kept[depth]
            seen[depth] = _MEMORY * seen[depth] + (depth < accepted)
            bias[depth] = (seen[depth] + _PATIENCE) / (expected[depth] + _PATIENCE)


class Trees:
    """What the trees of one source bring at each rate, learnt from the ranks of accepted nodes.

    gains: [size, rate], accepted tokens. accepted: [rank, rate], P(the child of that rank is accepted), from 1 on.
    missed: [children, rate], P(none of so many is). lift: what is accepted, for each token that was expected: trees
    that follow the draft's own confidence bring more than the best static ones.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]]) -> None:
        self.sizes = tuple(sizes)
        self.lift = 1.0
        self._ranks = Ranks()
        self._due = _FRESH
        self._seen = self._hoped = 0.0
        self._tabulate()

    def expected(self, weights: NDArray[Any]) -> list[float]:
        """Accepted tokens of each size."""
        found: list[float] = (self.gains.dot(weights) * self.lift).tolist()
        return found

    def learn(self, draft: Draft, path: tuple[int, ...], weights: NDArray[Any], nodes: int) -> NDArray[Any]:
        """A round's evidence, as factors of the rates [rate]. weights: what was believed; nodes: asked for."""
        size = max((place for place, (most, _) in enumerate(self.sizes) if most <= nodes), default=0)
        self._hoped = _MEMORY * self._hoped + float(self.gains[size].dot(weights))
        self._seen = _MEMORY * self._seen + len(path)
        self.lift = (self._seen + _PATIENCE) / (self._hoped + _PATIENCE)
        evidence = np.ones(len(RATES))
        for rank, children in outcomes(draft, path):
            evidence *= self.accepted[min(rank, _SIBLINGS)] if rank else self.missed[min(children, _SIBLINGS)]
        self._ranks.learn(draft, path)
        if self._ranks.rounds >= self._due:
            self._due += min(self._ranks.rounds, 256)
            self._tabulate()
        return evidence

    def _tabulate(self) -> None:
        hazards = self._ranks.hazards[:_SIBLINGS]
        shares = np.minimum.accumulate([1.0, *(hazard / hazards[0] for hazard in hazards[1:])])
        hazard = shares[:, None] * _A  # [rank, rate]
        self.missed = np.concatenate((np.ones((1, len(_A))), np.cumprod(1 - hazard, axis=0)))
        self.accepted = np.concatenate((np.zeros((1, len(_A))), self.missed[:-1] * hazard))
        nodes, depths = (max(column) for column in zip(*self.sizes, strict=True))
        gains = likeliest_gains(self.accepted[1:].T, nodes, depths)
        self.gains = np.stack([gains[:, depth - 1, count - 1] for count, depth in self.sizes])


class Belief:
    """Of one source, for one request."""

    __slots__ = ("_elapsed", "_kept", "_pool", "_survival", "speaks", "weights")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.weights = pool.prior
        self.speaks = pool.speaks
        self._elapsed = 0  # tokens of text that the weights have not drifted for
        self._survival: list[float] | None = None
        self._kept: list[float] = []

    def survival(self) -> list[float]:
        """P(the first d guesses are all accepted) for d = 1, 2, ... up to the limit, or to where it is nil."""
        if self._survival is None or self._elapsed:
            self._survival = self._survive()
        return self._survival

    @property
    def chance(self) -> float:
        """P(a guess that follows nothing but true text is accepted); of siblings, the eldest."""
        self._catch_up()
        return float(_A.dot(self.weights))

    def gains(self) -> list[float]:
        """Accepted tokens that are expected of a tree of each size, where the source has several."""
        self._catch_up()
        return [] if self._pool.trees is None else self._pool.trees.expected(self.weights)

    def _catch_up(self) -> None:
        if self._elapsed:
            share = _DRIFT[min(self._elapsed, len(_DRIFT) - 1)]
            self.weights = self.weights + share * (self._pool.prior - self.weights)
            self._elapsed = 0

    def _survive(self) -> list[float]:
        self._catch_up()
        means = self._pool.powers.dot(self.weights).tolist()
        chance = 1.0
        chances: list[float] = []
        kept: list[float] = []
        before = means[0]
        for after, bias in zip(means[1:], self._pool.bias, strict=False):
            step = after / before
            kept.append(step)
            before = after
            step *= bias
            if step < 1:
                chance *= step
            chances.append(chance)
            if chance < _NEVER:
                break
        self._kept = kept
        return chances

    def learn(self, accepted: int, drafted: int) -> None:
        """A round tested `drafted` depths, and the first `accepted` held."""
        self.survival()
        drafted = min(drafted, DEEPEST)
        accepted = min(accepted, drafted)
        self._pool.calibrate(self._kept, accepted, min(drafted, len(self._kept)))
        self._weigh((_POWERS if accepted == drafted else _FAILED)[accepted])

    def learn_tree(self, draft: Draft, path: tuple[int, ...], nodes: int) -> None:
        """A round tested a tree, for which `nodes` nodes were asked, and accepted `path`."""
        assert self._pool.trees is not None, "only told to sources of several sizes"
        self._catch_up()
        self._weigh(self._pool.trees.learn(draft, path, self.weights, nodes))

    def _weigh(self, evidence: NDArray[Any]) -> None:
        weights = self.weights * evidence
        weights /= np.add.reduce(weights)
        self.weights = weights
        self._pool.learn(weights)
        self._survival = None

    def heard(self, spoke: bool) -> None:
        """Asked, it had something to say, or not."""
        self.speaks += 0.15 * (spoke - self.speaks)
        self._pool.heard(spoke)

    def drift(self, tokens: int) -> None:
        """The text went on by so many tokens."""
        self._elapsed += tokens
