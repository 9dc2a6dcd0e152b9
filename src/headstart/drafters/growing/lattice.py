"""Drafts from one forward that guessed all places at once: a draft LM or an EAGLE head behind mask tokens.

Such a forward leaves a distribution for each depth of the draft, which does not depend on what is drafted above: a
lattice, of which a chain is one way through and a tree several. So what other drafters ask of a forward for every
level, the `GrowingChain`s and `GrowingTree`s of this package ask of the lattice, and the same lines draw from it, with
the same noise, after the same processors. Which distribution q is recorded:

- Guesses that do not know of each other: q(x_1 .. x_K) is the product of the rows, so that q of x_i given those before
  is row i itself.
- With a selector or a Markov head: the softmax of the corrected scores over the shortlist, given the tokens that were
  drafted before, and 0 elsewhere. That is the distribution the token is drawn from, so that is the row; the uncorrected
  one would break the rule.
- Trees of the likeliest nodes and greedy chains are point masses, and have none.

The likeliest n nodes are found best first: a node's chance is the product along its path, never above its parent's
(DDTree, arXiv:2604.12989; Medusa's tree, with what this request's distributions say instead of averages).

    lattice = Lattice(row, logits)              # [K, W], row i for the token i places after the first guess
    draft = grow_on(lattice, GrowingChain(row, budget))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.drafters import Row
from headstart.drafters.growing.grow import GrowingChain, grow_trees, scoring
from headstart.drafters.growing.ranks import best_first
from headstart.drafters.growing.tree import GrowingTree, TopK
from headstart.model.heads.shortlists import Shortlists
from headstart.rule.distribution import SamplingRow, distribution, greedy, process
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import Draft

WIDTH = 32
"""Candidates of each depth that the search for the likeliest nodes looks at, at most."""


class Selector(Protocol):
    """The part of a head that chooses among the likeliest tokens of a place by those drafted before it."""

    def shortlists(self, logits: Tensor, states: Tensor) -> Shortlists:
        """Of the places of one draft: logits [K, W], states [K, d]."""
        ...


class Lattice:
    """What one forward says of each depth of one request's draft.

    Args:
        row: the request.
        logits: [K, W], those of the token right after x0 first.
        vocabulary: of the logits, where that is a part of the target's; a draft that is grown here has the same.
        shortlists: what a selector or a Markov head made of the same logits, if there is one.
    """

    def __init__(
        self,
        row: Row,
        logits: Tensor,
        *,
        vocabulary: PartialVocabulary | None = None,
        shortlists: Shortlists | None = None,
    ) -> None:
        self.row = row
        self.vocabulary = vocabulary
        self._logits = logits
        self._shortlists = shortlists

    @property
    def ranks(self) -> bool:
        """Whether `likeliest` knows the likeliest nodes: no processor edits the distribution, and what a place's
        distribution depends on is at most the token before it."""
        return self.row.sampling_state.unedited and (self._shortlists is None or self._shortlists.by_pairs)

    @property
    def depth(self) -> int:
        """K, the deepest place that it knows of."""
        return len(self._logits)

    def logits_after(self, paths: Sequence[tuple[int, ...]]) -> Tensor:
        """[R, W]: the logits after draft tokens, as many in each path; -inf for what cannot be proposed there."""
        if self._shortlists is None:
            return self._logits[len(paths[0])].expand(len(paths), -1)
        return self._spread(paths, self._scores(paths), -math.inf)

    def distributions_after(self, paths: Sequence[tuple[int, ...]]) -> Tensor:
        """[R, W]: the distributions q after draft tokens, as many in each path."""
        state = self.row.sampling_state
        if not state.unedited:
            return distribution(self.logits_after(paths), [SamplingRow(state, path) for path in paths], self.vocabulary)
        if self._shortlists is None:
            return self._rows[len(paths[0])].expand(len(paths), -1)
        return self._spread(paths, distribution(self._scores(paths), [SamplingRow(state)] * len(paths)), 0.0)

    def likeliest_after(self, path: tuple[int, ...]) -> int:
        """The column of the likeliest token after draft tokens; -1 where the logits have no meaning."""
        if not self.row.sampling_state.unedited:
            return greedy(self.logits_after([path]), [SamplingRow(self.row.sampling_state, path)], self.vocabulary)[0]
        if self._shortlists is None:
            return self._likeliest[len(path)]
        return int(self._shortlists.places[len(path), int(self._scores([path])[0].argmax())])

    def likeliest(self, nodes: int, depth: int) -> Draft:
        """The tree of the likeliest nodes, at most `depth` deep; only where `ranks`."""
        depth = min(depth, self.depth)
        found, tokens = self._ranked(depth) if self._shortlists is None else self._ranked_pairs(depth)

        @cache
        def children(at: int, above: int) -> list[tuple[float, int]]:
            if at == depth:
                return []
            chances, places = (each[above if len(each) > 1 else 0].tolist() for each in found[at])
            return [(chance, place) for chance, place in zip(chances, places, strict=True) if chance > 0]

        order = best_first(children, nodes)
        return Draft(tuple(int(tokens[at.head][at.rank]) for at in order), tuple(at.parent for at in order))

    def _known_as(self, columns: Tensor) -> Tensor:
        """The target's ids of columns."""
        return columns if self.vocabulary is None else self.vocabulary.ids[columns.cpu()]

    # -- guesses that do not know of each other ------------------------------------------------------------------------

    @cached_property
    def _rows(self) -> Tensor:
        """[K, W]: the distribution at each depth."""
        return distribution(self._logits, [SamplingRow(self.row.sampling_state)] * self.depth)

    @cached_property
    def _likeliest(self) -> list[int]:
        columns: list[int] = self._logits.argmax(-1).tolist()
        return columns

    def _ranked(self, depth: int) -> tuple[list[_Ranked], Any]:
        """Of each depth the candidates, likeliest first, and the token of each [depth][candidate]."""
        chances, places = _chances(self._logits[:depth], self.row)
        tokens = self._known_as(places).tolist()
        ranks = np.arange(chances.shape[1])[None]
        return [(row[None], ranks) for row in chances.cpu().numpy()], tokens

    # -- with shortlists -----------------------------------------------------------------------------------------------

    @cached_property
    def _tokens(self) -> Tensor:
        """[K, S]: the candidates, as the target knows them."""
        assert self._shortlists is not None, "called only where there is a selector"
        return self._known_as(self._shortlists.places)

    def _scores(self, paths: Sequence[tuple[int, ...]]) -> Tensor:
        """[R, S]: the corrected logits of the candidates."""
        assert self._shortlists is not None, "called only where there is a selector"
        return self._shortlists.scores(len(paths[0]), [(self.row.tokens[-1], *path) for path in paths])

    def _spread(self, paths: Sequence[tuple[int, ...]], values: Tensor, elsewhere: float) -> Tensor:
        """[R, S] to [R, W]."""
        assert self._shortlists is not None, "called only where there is a selector"
        wide = values.new_full((len(paths), self._logits.shape[-1]), elsewhere)
        return wide.index_copy_(1, self._shortlists.places[len(paths[0])], values)

    def _ranked_pairs(self, depth: int) -> tuple[list[_Ranked], Any]:
        """As `_ranked`, where a candidate's chance depends on the one above."""
        assert self._shortlists is not None, "called only where there is a selector"
        tokens: list[list[int]] = self._tokens[:depth].tolist()
        above = [[self.row.tokens[-1]], *tokens[:-1]]
        scores = torch.cat([self._shortlists.scores(at, [(c,) for c in before]) for at, before in enumerate(above)])
        sizes = [len(before) for before in above]
        parts = (torch.split(each, sizes) for each in _chances(scores, self.row))
        return [(chances.numpy(), places.numpy()) for chances, places in zip(*parts, strict=True)], tokens


_Ranked = tuple[NDArray[Any], NDArray[Any]]
"""The chances and the numbers of the candidates at one depth, likeliest first [R, n]: below each candidate of the depth
above, or one row for all of them."""


def _chances(logits: Tensor, row: Row) -> tuple[Tensor, Tensor]:
    """The likeliest of each row of logits [R, n]: their probabilities [R, WIDTH], and their columns."""
    state = scoring(row.sampling_state)
    x = process(logits, [SamplingRow(state)] * len(logits))
    chances, places = x.softmax(-1).topk(min(WIDTH, x.shape[-1]))
    return chances, places


def grow_on(lattice: Lattice, growing: GrowingChain | GrowingTree) -> Draft:
    """Grow a draft that has not begun to its end, without a forward: as deep as the lattice at most, which a static
    shape must not exceed."""
    if isinstance(growing, GrowingChain):
        growing.resize(min(growing.budget, lattice.depth))
        return _chain(lattice, growing)
    if isinstance(growing.plan, TopK):
        if lattice.ranks:
            return lattice.likeliest(growing.budget, growing.plan.depth)
        growing.plan = TopK(growing.plan.width, min(growing.plan.depth, lattice.depth))
    if growing.draws:
        while not growing.done:
            growing.draw(lattice.distributions_after(growing.paths()).cpu().numpy())
    else:
        grow_trees([growing], lambda _: lattice.logits_after(growing.paths()))
    return growing.draft()


def _chain(lattice: Lattice, chain: GrowingChain) -> Draft:
    while not chain.done:
        path = tuple(chain.tokens)
        if lattice.row.sampling.greedy:
            chain.extend(lattice.likeliest_after(path))
            continue
        chain.extend(lattice.distributions_after([path])[0])
    return chain.draft()


def depth_of(growing: GrowingChain | GrowingTree) -> int:
    """How many guesses in a row a draft can have."""
    if isinstance(growing, GrowingChain):
        return growing.budget
    return min(growing.budget, growing.plan.depth)


def grow_block(
    growing: Sequence[GrowingChain | GrowingTree],
    logits: Tensor,
    states: Tensor,
    selector: Selector | None,
    vocabulary: PartialVocabulary | None,
) -> list[Draft]:
    """The drafts of several requests, from one forward that guessed all their places at once.

    logits: [R, W], `depth_of` rows for each draft. states: [R, d], of the same rows, which `selector` reads.
    """
    depths = [depth_of(each) for each in growing]
    drafts = []
    for each, rows, below in zip(growing, torch.split(logits, depths), torch.split(states, depths), strict=True):
        shortlists = None if selector is None else selector.shortlists(rows, below)
        drafts.append(grow_on(Lattice(each.row, rows, vocabulary=vocabulary, shortlists=shortlists), each))
    return drafts
