"""What is believed of a drafter's guesses: how many tokens a draft would bring, now, for this request.

The quality of guesses is a hidden state: one of ten acceptance rates, which can change with every token of the text,
as a text turns from repetition to something new. A round that accepted j of k guesses is evidence, a^j (1 - a) or a^k,
for each rate a. Between rounds the belief drifts back to a prior. So one long acceptance after a long drought is
believed at once, and so are two failures in a row after a long run, while a single failure is forgiven; a decayed mean
can do only one of the two. As a mixture, the belief also says that a guess is likelier to be right where the guesses
before it were, as measured acceptance does.

What a draft brings is linear in the belief: `SourcePrior.gains` holds the accepted tokens of every draft at every rate,
and a product with the belief gives those of every draft at once.

Trees of several sizes: at each node that a round tests, the first child is accepted with the rate a, and each further
one, where its elder siblings were not, with a share of it that is learnt from the ranks of accepted nodes. So a tree's
rounds are evidence for the same hidden rate, whatever its shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.drafters.growing.ranks import Ranks, outcomes
from headstart.theory.trees import likeliest_gains
from headstart.types import Draft

MAX_DEPTH = 32
"""Guesses beyond this depth are not told apart."""
RATES = (0.02, 0.15, 0.3, 0.45, 0.6, 0.72, 0.82, 0.9, 0.95, 0.985)


@dataclass(frozen=True)
class Memory:
    """How fast beliefs change. Fixed: nobody has to choose these."""

    change_per_token: float = 1 / 50
    """Chance that the quality is drawn anew from the prior."""
    even_share: float = 0.05
    """Share of the prior that stays evenly spread, so that nothing is ever thought impossible."""
    prior_rate: float = 0.02
    """Share of a prior that each round replaces, once there have been many."""
    prior_rounds: int = 8
    """Rounds that the first prior counts as; also rounds between two looks at what was learnt."""
    new_rounds: int = 3
    """Rounds up to which hardly anything is known of a source."""
    doubt_rounds: float = 20.0
    """Rounds' worth of doubt about depths that behave otherwise than the mixture says."""
    calibration: float = 1 - 1 / 200
    """What each counted round leaves of the calibration by depth."""
    calibrated_rounds: int = 2
    """One of so many rounds is counted: counting takes time."""
    coverage_rate: float = 0.15
    """How far one answer moves how often a source has a draft, for its request."""
    prior_coverage_rate: float = 0.05
    """The same for later requests."""


MEMORY = Memory()
GOOD_RATE = RATES.index(0.72)
"""From this rate on a source is good."""
MAX_RANK = 8
"""Siblings beyond this rank are not told apart."""

_A = np.array(RATES)
_ACCEPTED = _A[None, :] ** np.arange(MAX_DEPTH + 1)[:, None]  # [depth, rate]: all of so many guesses are accepted
_FAILED = _ACCEPTED * (1 - _A)  # so many are, and the next is not
_START = np.array([1.0, 1.0, 1.2, 1.5, 1.8, 2.0, 2.0, 1.6, 1.0, 0.6])  # moderate: 0.6 on average
_START /= _START.sum()
_CHANGED = (1 - (1 - MEMORY.change_per_token) ** np.arange(8 * MAX_DEPTH)).tolist()  # by tokens of text


class SourcePrior:
    """What the rounds of many requests showed of one source.

    Args:
        sizes: (nodes, depth) of the drafts it can make, fewest nodes first.
        trees: whether these are trees, so that breadth has to be learnt as well.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], *, trees: bool = False) -> None:
        self.weights: NDArray[Any] = _START
        """Belief [rate] to begin a request with, and to drift back to."""
        self.coverage = 0.8
        """How likely the source has a draft when it is asked."""
        self.promise = 1.0
        """0 to 1: how far this source has been known to be good at times."""
        self.rounds = 0
        self.trees = TreeGains(sizes) if trees else None
        self._depths = np.minimum([depth for _, depth in sizes], MAX_DEPTH)
        self._spread: NDArray[Any] = _START
        self._met = np.zeros(len(RATES))  # the sum of what rounds left believed that the prior has not learnt from
        self._unlearnt = 0
        self._seen = [0.0] * MAX_DEPTH
        self._expected = [0.0] * MAX_DEPTH
        self._refresh()

    @property
    def new(self) -> bool:
        """Whether hardly anything is known yet."""
        return self.rounds < MEMORY.new_rounds

    def learn(self, posterior: NDArray[Any]) -> None:
        """Move the prior towards what a round left believed: fast at first, then with a memory of 50 rounds."""
        self.rounds += 1
        self._met += posterior
        self._unlearnt += 1
        if self.rounds % MEMORY.prior_rounds == 0 or self.rounds < 2 * MEMORY.prior_rounds:
            rate = max(MEMORY.prior_rate, 1 / (self.rounds + MEMORY.prior_rounds))
            self._spread = self._spread + (1 - (1 - rate) ** self._unlearnt) * (
                self._met / self._unlearnt - self._spread
            )
            self._met = np.zeros(len(RATES))
            self._unlearnt = 0
            self.weights = (1 - MEMORY.even_share) * self._spread + MEMORY.even_share / len(RATES)
            self.promise = min(1.0, 4 * float(self._spread[GOOD_RATE:].sum()))
            self._refresh()

    def calibrate(self, weights: NDArray[Any], accepted: int, drafted: int) -> None:
        """Count, depth by depth, how often guesses were accepted and how often the belief [rate] expects it."""
        tested = min(accepted + 1, drafted)
        survival = _ACCEPTED[: tested + 1].dot(weights).tolist()
        for depth in range(tested):
            chance = survival[depth + 1] / survival[depth]
            self._expected[depth] = MEMORY.calibration * self._expected[depth] + chance
            self._seen[depth] = MEMORY.calibration * self._seen[depth] + (depth < accepted)

    def _refresh(self) -> None:
        """`gains` [size, rate]: accepted tokens of every draft at every rate."""
        if self.trees is not None:
            self.gains: NDArray[Any] = self.trees.gains * self.trees.lift
            return
        bias = (np.array(self._seen) + MEMORY.doubt_rounds) / (np.array(self._expected) + MEMORY.doubt_rounds)
        survival = np.cumprod(np.minimum(bias[:, None] * _A, 1.0), axis=0)
        self.gains = np.cumsum(survival, axis=0)[self._depths - 1]


class TreeGains:
    """What the trees of one source bring at each rate, learnt from the ranks of accepted nodes."""

    def __init__(self, sizes: Sequence[tuple[int, int]]) -> None:
        self.lift = 1.0
        """Accepted tokens for each that was expected: trees that follow the draft's own confidence bring more than the
        best static ones."""
        self._sizes = tuple(sizes)
        self._ranks = Ranks()
        self._due = MEMORY.prior_rounds
        self._seen = self._expected = 0.0
        self._tabulate()

    def learn(self, draft: Draft, path: tuple[int, ...], weights: NDArray[Any], nodes: int) -> NDArray[Any]:
        """A round's evidence, as factors of the rates [rate].

        Args:
            weights: what was believed [rate].
            nodes: the budget of the round.
        """
        size = max((place for place, (most, _) in enumerate(self._sizes) if most <= nodes), default=0)
        self._expected = MEMORY.calibration * self._expected + float(self.gains[size].dot(weights))
        self._seen = MEMORY.calibration * self._seen + len(path)
        self.lift = (self._seen + MEMORY.doubt_rounds) / (self._expected + MEMORY.doubt_rounds)
        evidence = np.ones(len(RATES))
        for rank, children in outcomes(draft, path):
            evidence *= self.accepted[min(rank, MAX_RANK)] if rank else self.missed[min(children, MAX_RANK)]
        self._ranks.learn(draft, path)
        if self._ranks.rounds >= self._due:
            self._due += min(self._ranks.rounds, 256)
            self._tabulate()
        return evidence

    def _tabulate(self) -> None:
        hazards = self._ranks.hazards[:MAX_RANK]
        shares = np.minimum.accumulate([1.0, *(hazard / hazards[0] for hazard in hazards[1:])])
        hazard = shares[:, None] * _A  # [rank, rate]
        self.missed = np.concatenate((np.ones((1, len(_A))), np.cumprod(1 - hazard, axis=0)))
        self.accepted = np.concatenate((np.zeros((1, len(_A))), self.missed[:-1] * hazard))
        nodes, depths = (max(column) for column in zip(*self._sizes, strict=True))
        gains = likeliest_gains(self.accepted[1:].T, nodes, depths)
        self.gains = np.stack([gains[:, depth - 1, count - 1] for count, depth in self._sizes])


class Belief:
    """Of one source, for one request."""

    __slots__ = ("_elapsed", "_weights", "coverage", "prior")

    def __init__(self, prior: SourcePrior) -> None:
        self.prior = prior
        self.coverage = prior.coverage
        self._weights = prior.weights
        self._elapsed = 0  # tokens of text that the weights have not drifted for

    @property
    def weights(self) -> NDArray[Any]:
        """The chance of each rate, as of now."""
        if self._elapsed:
            share = _CHANGED[min(self._elapsed, len(_CHANGED) - 1)]
            self._weights = self._weights + share * (self.prior.weights - self._weights)
            self._elapsed = 0
        return self._weights

    @property
    def chance(self) -> float:
        """How likely a guess that follows nothing but true text is accepted; of siblings, the first."""
        return float(_A.dot(self.weights))

    def gains(self) -> NDArray[Any]:
        """Accepted tokens that are expected of a draft of each size."""
        gains: NDArray[Any] = self.prior.gains.dot(self.weights)
        return gains

    def learn(self, accepted: int, drafted: int) -> None:
        """A round tested a chain of `drafted` guesses, and the first `accepted` held."""
        drafted = min(drafted, MAX_DEPTH)
        accepted = min(accepted, drafted)
        weights = self.weights
        if self.prior.rounds % MEMORY.calibrated_rounds == 0:
            self.prior.calibrate(weights, accepted, drafted)
        self._weigh(weights * (_ACCEPTED if accepted == drafted else _FAILED)[accepted])

    def learn_tree(self, draft: Draft, path: tuple[int, ...], nodes: int) -> None:
        """A round tested a tree, for which `nodes` nodes were asked, and accepted `path`."""
        assert self.prior.trees is not None, "only sources of trees are told of trees"
        weights = self.weights
        self._weigh(weights * self.prior.trees.learn(draft, path, weights, nodes))

    def _weigh(self, weights: NDArray[Any]) -> None:
        self._weights = weights / np.add.reduce(weights)
        self.prior.learn(self._weights)

    def answered(self, drafted: bool) -> None:
        """Asked, the source had a draft, or none."""
        self.coverage += MEMORY.coverage_rate * (drafted - self.coverage)
        self.prior.coverage += MEMORY.prior_coverage_rate * (drafted - self.prior.coverage)

    def drift(self, tokens: int) -> None:
        """The text went on by so many tokens."""
        self._elapsed += tokens
