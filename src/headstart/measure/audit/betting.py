"""Bets against a claimed distribution: a bettor who gets rich has disproved it.

For each token drawn after a prefix with distribution p, a bettor names, from the past alone, a payoff g >= 0 over the
classes of that prefix with mean at most 1 under p; its capital is multiplied by g of what came out. If every token does
follow its p, capital is a nonnegative martingale that begins at 1, and by Ville's inequality it ever reaches 1/level
with probability at most `level`: whenever one looks, however often, and whatever the bettor thought up (Shafer 2021,
"Testing by betting"; Shekhar and Ramdas 2023, "Nonparametric two-sample testing by betting"; Waudby-Smith and Ramdas
2023, "Estimating means of bounded random variables by betting"). The mean of several capitals is a capital, too, so
bettors who know different bugs are pooled without any correction.

Tolerance d: if distributions may be off by total variation d, E g is at most 1 + d (max g - min g); payoffs are divided
    by that.

Bets are fixed for a block of draws and learn from it afterwards. R audits run side by side: one of them real, or many
simulated ones over the same prefixes. Shapes: R audits, n draws of a block, C classes, J scores, B bins, T variants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.measure.audit.prefixes import BUCKETS, SCORES, Block, Floats, Ints

TILTS = (-1.0, -0.3, -0.1, 0.1, 0.3, 1.0, 3.0)
"""Log-odds by which a property is bet to be favoured; a mixture needs no knowledge of the right one."""
RANKS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""First rank of each bin."""
CAP = 4.0
"""Most that a learnt payoff multiplies or divides, before it is normalised."""
EXPECTED = 4.0
"""Visits that a prefix must be expected to get to be learnt about on its own."""
TRACKED = 200
"""The most such prefixes."""


Sets = NDArray[np.bool_]


class Bettor(ABC):
    """One kind of bet, in T variants."""

    strategy: str
    variants: int

    @abstractmethod
    def payoffs(self, block: Block, drawn: Ints) -> Floats:
        """[R, T]: the log of what the block's draws [R, n] multiply each capital by."""

    def learn(self, block: Block, drawn: Ints) -> None:  # noqa: B027  fixed bets are mixed, not learnt
        """Take in the draws of a block that has been bet on."""

    @abstractmethod
    def favoured(self, block: Block, variant: int) -> Sets:
        """[n, C]: the classes on which this variant of the first audit's bets gain."""


class Tilted(Bettor):
    """g = exp(t s) / E exp(t s): the distribution leans towards a score s, or (t < 0) away from it."""

    variants = len(TILTS)

    def __init__(self, score: int, tolerance: float) -> None:
        self.strategy = SCORES[score][0]
        self._score = score
        self._tolerance = tolerance

    def payoffs(self, block: Block, drawn: Ints) -> Floats:
        scores = block.scores[:, self._score]
        tilts = np.array(TILTS)
        grown = np.exp(scores[:, :, None] * tilts)  # [n, C, T]
        norm = np.einsum("nc,nct->nt", block.p, grown)
        if self._tolerance:
            norm = norm + self._tolerance * (grown.max(1) - grown.min(1))
        met = scores[np.arange(len(block)), drawn].sum(1, dtype=np.float64)
        gains: Floats = met[:, None] * tilts - np.log(norm).sum(0)
        return gains

    def favoured(self, block: Block, variant: int) -> Sets:
        return _above_mean(block.p, np.exp(TILTS[variant] * block.scores[:, self._score]))


class Impossible(Bettor):
    """Tokens of probability 0. Several draws are wanted for proof: one could be a tie at a cut, broken otherwise."""

    strategy = "impossible"
    STAKES = np.array([1.0, 10.0, 100.0])
    variants = len(STAKES)

    def __init__(self, tolerance: float) -> None:
        self._cost = np.log1p(tolerance * self.STAKES)

    def payoffs(self, block: Block, drawn: Ints) -> Floats:
        hits = (drawn == block.p.shape[1] - 1).sum(1)
        gains: Floats = hits[:, None] * np.log1p(self.STAKES) - len(block) * self._cost
        return gains

    def favoured(self, block: Block, variant: int) -> Sets:  # noqa: ARG002  all bet on the same
        found = np.zeros(block.p.shape, dtype=np.bool_)
        found[:, -1] = True
        return found


class Learnt(Bettor):
    """Bins of classes, over all prefixes: g is how often a bin came up so far over how often it should have.

    Bins are ranks in the distribution (strategy "ranks") or token ids ("ids"). Variants: how many expected draws it
    takes to believe half of what is seen.
    """

    PRIORS = (30.0, 300.0)
    variants = len(PRIORS)

    def __init__(self, strategy: str, audits: int, tolerance: float) -> None:
        self.strategy = strategy
        self._tolerance = tolerance
        self._bins = len(RANKS) if strategy == "ranks" else BUCKETS + 1
        self._seen = np.zeros((audits, self._bins))
        self._expected = np.zeros(self._bins)

    def payoffs(self, block: Block, drawn: Ints) -> Floats:
        labels = self._labels(block)
        masses = _masses(block.p, labels, self._bins)  # [n, B]
        mine = labels[np.arange(len(block)), drawn]  # [R, n]
        found = np.empty((len(drawn), self.variants))
        for variant, prior in enumerate(self.PRIORS):
            ratios = self._ratios(prior)
            norm = ratios @ masses.T
            if self._tolerance:
                norm += self._tolerance * (ratios.max(1) - ratios.min(1))[:, None]
            found[:, variant] = np.log(np.take_along_axis(ratios, mine, 1) / norm).sum(1)
        return found

    def learn(self, block: Block, drawn: Ints) -> None:
        labels = self._labels(block)
        mine = labels[np.arange(len(block)), drawn]
        self._seen += _counts(mine, self._bins)
        self._expected += _masses(block.p, labels, self._bins).sum(0)

    def favoured(self, block: Block, variant: int) -> Sets:
        return _above_mean(block.p, self._ratios(self.PRIORS[variant])[0][self._labels(block)])

    def _ratios(self, prior: float) -> Floats:
        """[R, B]"""
        ratios: Floats = np.clip((self._seen + prior) / (self._expected + prior), 1 / CAP, CAP)
        return ratios

    def _labels(self, block: Block) -> Ints:
        """[n, C]"""
        if self.strategy == "ids":
            return block.buckets
        ranks = np.searchsorted(RANKS, np.arange(block.p.shape[1]), side="right") - 1
        return np.broadcast_to(ranks, block.p.shape)


class AtPrefix(Bettor):
    """The tokens that came up too often at this very prefix: the joint distribution of the first tokens.

    g = (count + k p) / ((visits + k) p), the odds of Polya's urn with k imagined draws, a variant each.
    """

    strategy = "prefixes"
    PRIORS = (30.0, 300.0, 3000.0)
    variants = len(PRIORS)

    def __init__(self, audits: int, tolerance: float, expected: float) -> None:
        """expected: completions of one ask, to tell which prefixes will be met again."""
        self._audits = audits
        self._tolerance = tolerance
        self._expected = expected
        self._counts: dict[int, Floats] = {}

    def payoffs(self, block: Block, drawn: Ints) -> Floats:
        found = np.zeros((len(drawn), self.variants))
        for number, where in self._known(block).items():
            p, counts = block.p[where[0]], self._counts[number]
            for variant, prior in enumerate(self.PRIORS):
                grown = np.log(self._odds(p, counts, prior))
                found[:, variant] += np.take_along_axis(grown, drawn[:, where], 1).sum(1)
        return found

    def learn(self, block: Block, drawn: Ints) -> None:
        classes = block.p.shape[1]
        for prefix in block.prefixes:
            if prefix.mass * self._expected >= EXPECTED and len(self._counts) < TRACKED:
                self._counts.setdefault(prefix.number, np.zeros((self._audits, classes)))
        for number, where in self._known(block).items():
            self._counts[number] += _counts(drawn[:, where], classes)

    def favoured(self, block: Block, variant: int) -> Sets:
        found = np.zeros(block.p.shape, dtype=np.bool_)
        for number, where in self._known(block).items():
            found[where] = self._odds(block.p[where[0]], self._counts[number][:1], self.PRIORS[variant])[0] > 1
        return found

    def _known(self, block: Block) -> dict[int, list[int]]:
        where: dict[int, list[int]] = {}
        for i, prefix in enumerate(block.prefixes):
            if prefix.number in self._counts:
                where.setdefault(prefix.number, []).append(i)
        return where

    def _odds(self, p: Floats, counts: Floats, prior: float) -> Floats:
        """[R, C]; 1 for classes of probability 0, which another bettor looks after."""
        visits = counts.sum(1, keepdims=True)
        odds: Floats = np.divide(counts + prior * p, (visits + prior) * p, out=np.ones_like(counts), where=p > 0)
        if not self._tolerance:
            return odds
        odds = np.clip(odds, 1 / CAP, CAP)
        spread = odds.max(1, keepdims=True) - odds.min(1, keepdims=True)
        tolerated: Floats = odds / ((odds * p).sum(1, keepdims=True) + self._tolerance * spread)
        return tolerated


class Pool:
    """All bettors with equal shares: a strategy's capital is the mean of its variants', the pool's that of its
    strategies'."""

    def __init__(self, bettors: Sequence[Bettor], audits: int) -> None:
        self.bettors = bettors
        self._logs = [np.zeros((audits, bettor.variants)) for bettor in bettors]
        self.strategies = tuple(dict.fromkeys(bettor.strategy for bettor in bettors))

    @classmethod
    def of(cls, audits: int, *, tolerance: float, expected: float, knows_draft: bool) -> Pool:
        """The bettors for what is known to go wrong; one for a draft's distribution only where that is known."""
        scores = [i for i, (strategy, _) in enumerate(SCORES) if knows_draft or strategy != "guesses"]
        bettors: list[Bettor] = [Tilted(i, tolerance) for i in scores]
        bettors += [Learnt("ranks", audits, tolerance), Learnt("ids", audits, tolerance)]
        bettors += [AtPrefix(audits, tolerance, expected), Impossible(tolerance)]
        return cls(bettors, audits)

    def bet(self, block: Block, drawn: Ints) -> None:
        """Bet on the draws [R, n] of a block, then learn from them."""
        for logs, bettor in zip(self._logs, self.bettors, strict=True):
            logs += bettor.payoffs(block, drawn)
            bettor.learn(block, drawn)

    def by_strategy(self) -> dict[str, Floats]:
        """Log capital [R] of each strategy."""
        parts: dict[str, list[Floats]] = {strategy: [] for strategy in self.strategies}
        for logs, bettor in zip(self._logs, self.bettors, strict=True):
            parts[bettor.strategy].append(logs)
        return {strategy: _log_mean(np.concatenate(logs, 1)) for strategy, logs in parts.items()}

    def total(self) -> Floats:
        """Log capital [R] of all together: the evidence."""
        return _log_mean(np.stack(list(self.by_strategy().values()), 1))

    def favoured(self, block: Block) -> Sets:
        """[n, C]: the classes that come up too often by the first audit's richest bettor."""
        best = max(range(len(self._logs)), key=lambda i: self._logs[i][0].max())
        return self.bettors[best].favoured(block, int(self._logs[best][0].argmax()))


def _log_mean(logs: Floats) -> Floats:
    """Log of the mean of exp over the last axis."""
    top = logs.max(-1, keepdims=True)
    mean: Floats = (top + np.log(np.exp(logs - top).mean(-1, keepdims=True)))[..., 0]
    return mean


def _above_mean(p: Floats, payoffs: Floats) -> Sets:
    """[n, C]: where a payoff is above its mean under p."""
    above: Sets = payoffs > (p * payoffs).sum(1, keepdims=True)
    return above


def _masses(p: Floats, labels: Ints, bins: int) -> Floats:
    """p [n, C] summed by label: [n, bins]."""
    rows = np.arange(len(p))[:, None] * bins
    masses = np.bincount((rows + labels).ravel(), weights=p.ravel(), minlength=len(p) * bins)
    return np.asarray(masses, dtype=np.float64).reshape(len(p), bins)


def _counts(labels: Ints, bins: int) -> Floats:
    """How often each label occurs in each row of [R, n]: [R, bins]."""
    rows = np.arange(len(labels))[:, None] * bins
    counts = np.bincount((rows + labels).ravel(), minlength=len(labels) * bins)
    return np.asarray(counts, dtype=np.float64).reshape(-1, bins)
