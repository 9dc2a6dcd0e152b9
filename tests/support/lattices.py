"""Lattices whose distributions are small fractions, and noise that is enumerated, for both rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.drafters import Row
from headstart.drafters.growing.lattice import Lattice
from headstart.model.heads.shortlists import Selector, Shortlists, candidates
from headstart.rule.distribution import SamplingState
from headstart.rule.drafted import PartialDistribution, drafted_distributions
from headstart.rule.noise import Noise, Purpose
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import Budget, Draft, Sampling
from support.enumeration import Oracle
from support.rational_draft import EnumeratedNoise, rational

X0 = 1
"""The pending token, which the first guess follows."""


class Nothing:
    """A processor that edits nothing, so that a distribution counts as edited."""

    def after(self, tokens: Sequence[int]) -> Nothing:
        return self

    def edit(self, logits: NDArray[np.float32]) -> None:
        return


def row(vocab: int, *, noise: Any = None, rule: str = "exact", edited: bool = False, **sampling: Any) -> Row:
    processors: Any = (Nothing(),) if edited else ()
    distribution = SamplingState(
        Sampling(**{"temperature": 1.0, **sampling}), (X0,), vocab, frozenset(), processors=processors
    )
    purpose = Purpose.TOKEN if rule == "coupled" else Purpose.DRAFT
    return Row(0, (X0,), distribution, Noise(7) if noise is None else noise, purpose, budget=Budget(64))


@dataclass(frozen=True, slots=True, eq=False)
class Remembering(Shortlists):
    """All tokens, of which one is the likelier the more of the path is odd: as a recurrent Markov head has it."""

    by_pairs: ClassVar[bool] = False

    def scores(self, place: int, paths: Sequence[tuple[int, ...]]) -> torch.Tensor:
        more = [[1 + (sum(path[: place + 1]) + token) % 3 for token in self.places[place].tolist()] for path in paths]
        return self.logits[place] + torch.tensor(more).float().log()


class Weights:
    """What a forward says of each depth, as whole numbers: [K, V] of tokens, and [V, V] of pairs for a selector.

    known: the target's id of each draft token. remembers: whether guesses are corrected by the whole path instead.
    """

    def __init__(
        self,
        seed: int,
        depth: int,
        vocab: int,
        *,
        pairs: bool = False,
        known: Sequence[int] = (),
        remembers: bool = False,
    ) -> None:
        self.remembers = remembers
        rng = np.random.default_rng([seed, depth, vocab])
        self.vocab = vocab
        self.known = tuple(known) or tuple(range(vocab))
        self.tokens = rng.integers(1, 4, (depth, len(self.known)))
        self.pairs = rng.integers(1, 3, (vocab, len(self.known))) if pairs else None
        if self.pairs is not None:
            self.pairs[:, rng.integers(len(self.known))] = 1

    def lattice(self, for_: Row, *, top: int | None = None, selected: bool = True) -> Lattice:
        """top: candidates of a place; None is all. selected: whether a selector of these pairs corrects it."""
        logits = torch.from_numpy(self.tokens).float().log()
        shortlists: Shortlists | None = None
        if self.remembers and selected:
            shortlists = Remembering(*candidates(logits, len(self.known)))
        elif self.pairs is not None and selected:
            # a codebook of unit vectors and a state of ones: <A[p] * (W h), B[c]> is the logarithm of the pair's weight
            successors = torch.from_numpy(self.pairs.T.copy()).float().log()
            chooser = Selector(torch.eye(self.vocab), successors, torch.ones(self.vocab, 1), top or len(self.known))
            shortlists = chooser.shortlists(logits, torch.ones(len(logits), 1))
        all_of_it = self.known == tuple(range(self.vocab))
        vocabulary = None if all_of_it else PartialVocabulary(torch.tensor(self.known), self.vocab)
        return Lattice(for_, logits, vocabulary=vocabulary, shortlists=shortlists)

    def distribution(self, depth: int, before: int) -> list[Fraction]:
        """q after the token before, all candidates counted, written down once more."""
        weights = [Fraction(0)] * self.vocab
        for place, token in enumerate(self.known):
            pair = 1 if self.pairs is None else int(self.pairs[before, place])
            weights[token] = Fraction(int(self.tokens[depth, place]) * pair)
        return [weight / sum(weights) for weight in weights]


def exact_draw(oracle: Oracle, *, shared: bool = False) -> Any:
    """`draw_children`, answered by an oracle in exact numbers. shared: the nodes of a depth have one and the same race
    of the noise, which gives all of them the children of the first."""
    known: dict[int, list[int]] = {}

    def draw(_: Row, q: Any, depth: int, index: int, count: int, __: object = None) -> list[int]:
        rest = np.array([rational(x) for x in q], dtype=object)
        drawn: list[int] = list(known.get(depth, ()))[:count] if shared else []
        while len(drawn) < count and rest.sum() > 0:
            drawn.append(oracle.draw(rest))
            rest = rest.copy()
            rest[drawn[-1]] = Fraction(0)
        known.setdefault(depth, drawn)
        return drawn

    return draw


def rows_of(draft: Draft) -> list[Any] | None:
    """The recorded distributions as fractions."""
    if draft.q is None:
        return None
    return [_rational_distribution(each) for each in drafted_distributions(draft)]


def _rational_distribution(distribution: Any) -> Any:
    if isinstance(distribution, PartialDistribution):
        return PartialDistribution(distribution.known, _rational_distribution(distribution.weights))
    return np.array([rational(x) for x in distribution.tolist()], dtype=object)


class JudgedNoise(EnumeratedNoise):
    """The same for the rule as well, whose uniform draws the oracle decides."""

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(oracle)
        self._asked = oracle

    def uniform(self, *_: Any, **__: Any) -> Any:
        return _Coin(self._asked)


class _Coin:
    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def __lt__(self, chance: Any) -> bool:
        return self._oracle.uniform(chance)
