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

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.drafters.growing.ranks import Ranks, outcomes
from headstart.pacing.constants import (
    CHANGE,
    DOUBT_ROUNDS,
    EVEN_SHARE,
    MAX_DEPTH,
    NEW_SOURCE_SHARE,
    PRECISION,
    PRIOR_ROUNDS,
    RATES,
    SETTLED_STEPS,
)
from headstart.pacing.corrections import running_share
from headstart.theory.trees import likeliest_gains
from headstart.types import Draft

_RATES = np.array(tuple(RATES))
# [depth][rate]: all of so many guesses are accepted; so many are, and the next is not
_ACCEPTED = [[rate**depth for rate in RATES] for depth in range(MAX_DEPTH + 1)]
_FAILED = [[rate**depth * (1 - rate) for rate in RATES] for depth in range(MAX_DEPTH + 1)]
_START = [share / sum(RATES.values()) for share in RATES.values()]
MEAN_RATE = sum(map(mul, RATES, _START))
"""Chance that a guess of an unknown source is accepted."""
_GOOD = [rate > MEAN_RATE for rate in RATES]
_GOOD_AT_FIRST = sum(map(mul, _GOOD, _START))


class SourcePrior:
    """What the rounds of many requests showed of one source.

    Args:
        sizes: (nodes, depth) of the drafts it can make, fewest nodes first.
        trees: whether these are trees, so that breadth has to be learnt as well.
        right: guesses in a row that it is taken to have had right before its first round.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], *, trees: bool = False, right: int = 0) -> None:
        self.weights = _scaled(list(map(mul, _START, _ACCEPTED[right])))
        """Belief [rate] to begin a request with, and to drift back to."""
        self._coverage = [NEW_SOURCE_SHARE, NEW_SOURCE_SHARE]  # after an answer without a draft, and after one with
        self._answers = [0, 0]
        self.promise = 1.0
        """0 to 1: how good this source is known to be, beside one of which nothing is known."""
        self.rounds = 0
        self.trees = TreeGains(sizes) if trees else None
        self._levels = np.minimum([depth for _, depth in sizes], MAX_DEPTH) - 1  # of each size's last
        self._spread = self.weights
        self._met: list[Sequence[float]] = []  # what rounds left believed that the prior has not learnt from
        self._seen = [0.0] * MAX_DEPTH
        self._expected = [0.0] * MAX_DEPTH
        self._due = self._counted = False  # whether to compute gains anew, if anything was counted since they were
        self._gains = self._bring()

    def learn(self, posterior: Sequence[float]) -> None:
        """Move the prior towards what a round left believed: fast at first, then with a memory of 50 rounds."""
        self.rounds += 1
        self._met.append(posterior)
        if self.rounds % PRIOR_ROUNDS == 0 or self.rounds < 2 * PRIOR_ROUNDS:
            count = len(self._met)
            share = 1 - (1 - max(CHANGE, 1 / (self.rounds + PRIOR_ROUNDS))) ** count
            means = [sum(met) / count for met in zip(*self._met, strict=True)]
            self._met.clear()
            self._spread = [old + share * (new - old) for old, new in zip(self._spread, means, strict=True)]
            self.weights = [(1 - EVEN_SHARE) * each + EVEN_SHARE / len(RATES) for each in self._spread]
            self.promise = min(1.0, sum(map(mul, _GOOD, self._spread)) / _GOOD_AT_FIRST)
            self._due = True

    def coverage(self, drafted: bool, steps: int) -> float:
        """How likely the source has a draft when it is asked, by whether it had one for this request before: the mean
        of so many steps (of a chain with two states, whose deviation from its long-run share decays by a factor)."""
        never, again = self._coverage
        decay = again - never
        if steps == 1 or decay > 1 - PRECISION:
            return self._coverage[drafted]
        usual = never / (1 - decay)
        return usual + (self._coverage[drafted] - usual) * (1 - decay**steps) / (steps * (1 - decay))

    @property
    def answers(self) -> int:
        """How often the source was asked."""
        return sum(self._answers)

    def answered(self, before: bool, drafted: bool) -> None:
        """Asked, the source had a draft, or none. before: whether it had one for this request before."""
        share = running_share(self._answers[before])
        self._coverage[before] += share * (drafted - self._coverage[before])
        self._answers[before] += 1

    def calibrate(self, weights: Sequence[float], accepted: int, drafted: int) -> None:
        """Count, depth by depth, how often guesses were accepted and how often the belief [rate] expects it."""
        tested = min(accepted + 1, drafted)
        survival = [sum(map(mul, likely, weights)) for likely in _ACCEPTED[: tested + 1]]
        for depth in range(tested):
            chance = survival[depth + 1] / survival[depth]
            self._expected[depth] = (1 - CHANGE) * self._expected[depth] + chance
            self._seen[depth] = (1 - CHANGE) * self._seen[depth] + (depth < accepted)
        self._counted = True

    @property
    def gains(self) -> NDArray[Any]:
        """[size, rate]: accepted tokens of every draft at every rate."""
        if self._due:
            self._due = False
            if self._counted or self.trees is not None:
                self._gains = self._bring()
                self._counted = False
        return self._gains

    def _bring(self) -> NDArray[Any]:
        if self.trees is not None:
            return self.trees.gains * self.trees.lift
        seen, expected = np.array((self._seen, self._expected)) + DOUBT_ROUNDS
        gains: NDArray[Any] = (seen / expected)[:, None] * _RATES
        np.minimum(gains, 1.0, out=gains)
        np.multiply.accumulate(gains, out=gains)
        np.add.accumulate(gains, out=gains)
        return gains.take(self._levels, axis=0)


class TreeGains:
    """What the trees of one source bring at each rate, learnt from the ranks of accepted nodes."""

    def __init__(self, sizes: Sequence[tuple[int, int]]) -> None:
        self.lift = 1.0
        """Accepted tokens for each that was expected: trees that follow the draft's own confidence bring more than the
        best static ones."""
        self._sizes = tuple(sizes)
        self._nodes = [nodes for nodes, _ in sizes]
        self._ranks = Ranks()
        self._due = PRIOR_ROUNDS
        self._seen = self._expected = 0.0
        self._tabulate()

    def learn(self, draft: Draft, path: tuple[int, ...], weights: Sequence[float], nodes: int) -> Sequence[float]:
        """A round's evidence, as factors of the rates [rate]. Ten numbers, on which NumPy takes longer than a list.

        Args:
            weights: what was believed [rate].
            nodes: the budget of the round.
        """
        size = max(0, bisect_right(self._nodes, nodes) - 1)
        self._expected = (1 - CHANGE) * self._expected + sum(map(mul, self._expectations[size], weights))
        self._seen = (1 - CHANGE) * self._seen + len(path)
        self.lift = (self._seen + DOUBT_ROUNDS) / (self._expected + DOUBT_ROUNDS)
        evidence: Sequence[float] = [1.0] * len(RATES)
        last = len(self._missed) - 1
        for rank, children in outcomes(draft, path):
            factors = self._accepted[min(rank, last)] if rank else self._missed[min(children, last)]
            evidence = list(map(mul, evidence, factors))
        self._ranks.learn(draft, path)
        if self._ranks.rounds >= self._due:
            self._due += self._ranks.rounds
            self._tabulate()
        return evidence

    def _tabulate(self) -> None:
        hazards = self._ranks.hazards
        shares = np.minimum.accumulate([1.0, *(hazard / hazards[0] for hazard in hazards[1:])])
        hazard = shares[:, None] * _RATES  # [rank, rate]
        missed = np.concatenate((np.ones((1, len(RATES))), np.cumprod(1 - hazard, axis=0)))
        accepted = np.concatenate((np.zeros((1, len(RATES))), missed[:-1] * hazard))
        self._missed, self._accepted = missed.tolist(), accepted.tolist()
        nodes, depths = (max(column) for column in zip(*self._sizes, strict=True))
        gains = likeliest_gains(accepted[1:].T, nodes, depths)
        self.gains = np.stack([gains[:, depth - 1, count - 1] for count, depth in self._sizes])
        self._expectations = self.gains.tolist()


class Belief:
    """Of one source, for one request."""

    __slots__ = ("_drafted", "_elapsed", "_weights", "prior")

    def __init__(self, prior: SourcePrior) -> None:
        self.prior = prior
        self._weights = prior.weights
        self._elapsed = 0  # tokens of text that the weights have not drifted for
        self._drafted = False  # whether the source had a draft when it was last asked

    @property
    def weights(self) -> list[float]:
        """The chance of each rate, as of now. Ten numbers, on which NumPy takes longer than a list."""
        if self._elapsed:
            kept = (1 - CHANGE) ** self._elapsed
            drawn = 1 - kept
            pairs = zip(self._weights, self.prior.weights, strict=True)
            self._weights = [kept * old + drawn * new for old, new in pairs]
            self._elapsed = 0
        return self._weights

    def coverage(self, steps: int = 1) -> float:
        """How likely the source has a draft when it is asked now, or the mean of the next so many steps."""
        return self.prior.coverage(self._drafted, steps)

    @property
    def chance(self) -> float:
        """How likely a guess that follows nothing but true text is accepted; of siblings, the first."""
        found: float = sum(map(mul, RATES, self.weights))
        return found

    def gains(self) -> NDArray[Any]:
        """Accepted tokens that are expected of a draft of each size."""
        gains: NDArray[Any] = self.prior.gains.dot(self.weights)
        return gains

    def learn(self, accepted: int, drafted: int) -> None:
        """A round tested a chain of `drafted` guesses, and the first `accepted` held."""
        drafted = min(drafted, MAX_DEPTH)
        accepted = min(accepted, drafted)
        weights = self.weights
        if self.prior.rounds % SETTLED_STEPS == 0:
            self.prior.calibrate(weights, accepted, drafted)
        self._weigh(map(mul, weights, (_ACCEPTED if accepted == drafted else _FAILED)[accepted]))

    def learn_tree(self, draft: Draft, path: tuple[int, ...], nodes: int) -> None:
        """A round tested a tree, for which `nodes` nodes were asked, and accepted `path`."""
        assert self.prior.trees is not None, "only sources of trees are told of trees"
        weights = self.weights
        self._weigh(map(mul, weights, self.prior.trees.learn(draft, path, weights, nodes)))

    def _weigh(self, weights: Iterable[float]) -> None:
        self._weights = _scaled(list(weights))
        self.prior.learn(self._weights)

    def answered(self, drafted: bool) -> None:
        """Asked, the source had a draft, or none."""
        self.prior.answered(self._drafted, drafted)
        self._drafted = drafted

    def drift(self, tokens: int) -> None:
        """The text went on by so many tokens."""
        self._elapsed += tokens


def _scaled(weights: Sequence[float]) -> list[float]:
    """The same, with a sum of 1."""
    total = sum(weights)
    return [weight / total for weight in weights]
