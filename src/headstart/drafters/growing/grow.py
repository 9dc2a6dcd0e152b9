"""Chains and trees of several requests grown together, from a distribution of the drafter's own: one forward of the
drafter for a token of each chain, or for a level of each tree. `tree` says what one tree is.

Contract of a drafter's `forward`: given trees, it returns the logits [R, W] after each tree's `fresh` nodes, tree by
tree, in order, over the vocabulary of the trees, which is the same:

    def _level(self, live):
        segments = [tree.segment(tree.row.slot) for tree in live]
        return self.runner.forward(segments, self.cache).logits

    grow_trees(trees, self._level)
    return [tree.draft() for tree in trees]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.options import check_number
from headstart.drafters import Row
from headstart.drafters.growing.tree import GrowingTree
from headstart.rule.distribution import SamplingRow, SamplingState, distribution, greedy, on_host, process
from headstart.rule.noise import Purpose
from headstart.rule.softmax import chosen, softmax
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import Draft, Sampling


@dataclass(frozen=True, slots=True)
class Residual:
    """How much is left to the target on the tokens for which drafts are made ahead: Saguaro's sampling.

    Where a drawn token is rejected, the bonus token is drawn from what the target has more of than the draft,
    max(p - q, 0). A draft that draws its likeliest tokens a little less often leaves more of that on just those tokens,
    and they are the ones for which the next drafts are made: more outcomes are foreseen, for some acceptance. The
    distribution that a token is drawn from is still the one that it is judged with, so the target's distribution is
    kept whatever the shares.

    Source: Saguaro (arXiv:2603.03251).

    Raises:
        InvalidOption: a number out of its range.
    """

    share: float
    """C: of its probability, what each of the likeliest tokens keeps, before the distribution is made to sum to 1
    again."""
    tokens: int = 4
    """How many of the likeliest tokens."""

    def __post_init__(self) -> None:
        check_number("draft_residual", self.share, above=0, high=1)
        check_number("tokens", self.tokens, low=1, integer=True)

    def lower(self, q: Tensor) -> Tensor:
        """The distribution [V] that is drawn from instead of q [V]."""
        likeliest = q.topk(min(self.tokens, len(q))).indices
        lowered = q.clone()
        lowered[likeliest] *= self.share
        return lowered / lowered.sum()


class GrowingChain:
    """One request's chain while it grows, to `budget` tokens.

    memory: what the drafter keeps of the request. residual: what drawn tokens leave to the target, if anything.
    vocabulary: of its distributions [W], where that is a part of the target's.
    """

    def __init__(
        self,
        row: Row,
        budget: int,
        memory: Any = None,
        residual: Residual | None = None,
        vocabulary: PartialVocabulary | None = None,
    ) -> None:
        self._residual = None if row.sampling.greedy or row.purpose is not Purpose.DRAFT else residual
        self.row = row
        self.budget = budget
        self.memory = memory
        self.vocabulary = vocabulary
        self.tokens: list[int] = []
        self.logits: list[Tensor] = []
        """[i]: the drafter's logits [1, W] after x0 and i tokens."""
        self._distributions: list[NDArray[Any]] = []

    def extend(self, q: NDArray[Any] | Tensor | int) -> None:
        """Draw the next token from q [W], or take the one that a greedy distribution leaves: its column.

        The chain ends where q is no distribution, since the logits are broken or every token is forbidden."""
        if isinstance(q, int):
            column = max(q, 0)  # broken logits (-1): any guess will do
            token = column if self.vocabulary is None else self.vocabulary.tokens[column]
        else:
            if self._residual is not None:
                q = self._residual.lower(torch.as_tensor(q))
            if isinstance(q, Tensor):
                q = q.cpu().numpy()
            if not math.isfinite(q[0]):  # softmax spreads a NaN over its whole row
                self.budget = len(self.tokens)
                return
            token = self.row.draw(q, len(self.tokens), self.vocabulary)
            self._distributions.append(q)
        self.tokens.append(token)

    @property
    def done(self) -> bool:
        return len(self.tokens) >= self.budget

    @property
    def growing(self) -> tuple[tuple[int, int], ...]:
        """(token, index of its parent) of the tokens whose children come next: the last, or none at first."""
        return ((self.tokens[-1], len(self.tokens) - 2),) if self.tokens else ()

    def resize(self, budget: int) -> None:
        """Make it the chain of another budget, which begins alike: no draw looks ahead."""
        self.budget = budget
        del self.tokens[budget:], self._distributions[budget:], self.logits[budget:]

    def fed(self) -> list[int]:
        """Of each token, its index: a chain is fed as it is drafted."""
        return list(range(len(self.tokens)))

    def draft(self) -> Draft:
        if self.row.sampling.greedy or not self.tokens:
            return Draft.chain(self.tokens)
        ids = None if self.vocabulary is None else self.vocabulary.ids
        return Draft.chain(self.tokens, torch.from_numpy(np.stack(self._distributions)), ids)


_Chain = TypeVar("_Chain", bound=GrowingChain)


def grow_chains(chains: Sequence[_Chain], forward: Callable[[Sequence[_Chain]], Tensor]) -> None:
    """Extend every chain to its budget.

    forward: feeds each chain's last token (at first, whatever its request has not fed yet) and returns the logits
    [B, W] after them, over the vocabulary of the chains, which is the same.
    """
    live = [chain for chain in chains if not chain.done]
    while live:
        extend_chains(live, forward(live))
        live = [chain for chain in live if not chain.done]


def extend_chains(chains: Sequence[GrowingChain], logits: Tensor) -> None:
    """Extend every chain by one token, drawn from the distribution of its row of the logits [B, W]."""
    rows = [SamplingRow(chain.row.sampling_state, tuple(chain.tokens)) for chain in chains]
    all_greedy = all(chain.row.sampling.greedy for chain in chains)
    vocabulary = chains[0].vocabulary
    distributions: Any = (greedy if all_greedy else drawn_from)(logits, rows, vocabulary)
    for index, (chain, q) in enumerate(zip(chains, distributions, strict=True)):
        chain.logits.append(logits[index : index + 1])
        chain.extend(q)


_TEMPERATURE_1 = Sampling(temperature=1.0)
_Tree = TypeVar("_Tree", bound=GrowingTree)


def grow_trees(trees: Sequence[_Tree], forward: Callable[[Sequence[_Tree]], Tensor]) -> None:
    """Grow every tree to its end. forward: see the contract above."""
    live = [tree for tree in trees if not tree.done]
    while live:
        extend_trees(live, forward(live))
        live = [tree for tree in live if not tree.done]


def extend_trees(trees: Sequence[GrowingTree], logits: Tensor) -> None:
    """Grow every tree by one level, from the logits [R, W] after its fresh nodes, tree by tree."""
    parts = _parts(logits, trees)
    for tree, part in zip(trees, parts, strict=True):
        tree.logits.append(part)
    for draws, grow in ((False, _grow_likeliest), (True, _grow_drawn)):
        some = [tree for tree in trees if tree.draws is draws]
        if len(some) == len(trees):
            grow(logits, trees)
        elif some:
            grow(torch.cat([tree.logits[-1] for tree in some]), some)


def _parts(rows: Any, trees: Sequence[GrowingTree]) -> Sequence[Any]:
    """Each tree's part of rows: one after each of its fresh nodes, tree by tree."""
    if len(trees) == 1:  # the usual case, with little time for a level
        return (rows,)
    ends = list(accumulate(len(tree.fresh) for tree in trees))
    return [rows[begin:end] for begin, end in zip((0, *ends), ends, strict=False)]


def _grow_likeliest(logits: Tensor, trees: Sequence[GrowingTree]) -> None:
    if all(tree.row.sampling_state.unedited and tree.row.sampling.greedy for tree in trees):
        x = logits if logits.dtype == torch.float32 else logits.float()
    else:
        rows = [row for tree in trees for row in _rows(tree, scoring(tree.row.sampling_state))]
        x = process(logits, rows, trees[0].vocabulary)
    if x.is_cpu:
        given = np.ascontiguousarray((x.detach() if x.requires_grad else x).numpy())
        for tree, part in zip(trees, _parts(given, trees), strict=True):
            tree.rank(softmax().likeliest(part, tree.wanted()))
        return
    wanted = [tree.wanted() for tree in trees]
    # logsumexp takes ten times as long where x is -inf
    chances, places = x.softmax(-1).topk(min(max(each.width for each in wanted), x.shape[1]))
    columns, scores = _parts(places.tolist(), trees), _parts(chances.log().tolist(), trees)
    for each in zip(trees, columns, scores, wanted, strict=True):
        each[0].rank(chosen(*each[1:]))


def _grow_drawn(logits: Tensor, trees: Sequence[GrowingTree]) -> None:
    rows = [row for tree in trees for row in _rows(tree, tree.row.sampling_state)]
    distributions = drawn_from(logits, rows, trees[0].vocabulary)
    for tree, part in zip(trees, _parts(distributions, trees), strict=True):
        tree.draw(part)


def _rows(tree: GrowingTree, state: SamplingState) -> Sequence[SamplingRow]:
    """Those after a tree's fresh nodes, with the tokens above them where a processor may ask for them."""
    if state.unedited:
        return (SamplingRow(state),) * len(tree.fresh)
    return [SamplingRow(state, path) for path in tree.paths()]


def drawn_from(
    logits: Tensor, rows: Sequence[SamplingRow], vocabulary: PartialVocabulary | None
) -> NDArray[np.float32]:
    """The distributions [R, W] of logits on any device, on the host."""
    if logits.is_cpu:
        return on_host(logits, rows, vocabulary)
    found: NDArray[np.float32] = distribution(logits, rows, vocabulary).cpu().numpy()
    return found


def scoring(state: SamplingState) -> SamplingState:
    """The processors by which guesses are scored. A greedy distribution has no second choice, so for a greedy request
    it is the distribution at temperature 1, after bias and penalties."""
    return state.filtered(_TEMPERATURE_1) if state.sampling.greedy else state
