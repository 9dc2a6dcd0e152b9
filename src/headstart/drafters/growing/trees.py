"""Trees of several requests grown together, one forward of the drafter a level; see `chains` for chains, and `tree`
for what one tree is.

Contract of a drafter's `forward`: given trees, it returns the logits [R, W] after each tree's `fresh` nodes, tree by
tree, in order, over the vocabulary of the trees, which is the same:

    def _level(self, live):
        segments = [tree.segment(tree.row.slot) for tree in live]
        return self.runner.forward(segments, self.cache).logits

    grow_trees(trees, self._level)
    return [tree.draft() for tree in trees]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from headstart.drafters.growing.tree import GrowingTree
from headstart.rule.distribution import SamplingRow, SamplingState, distribution, process
from headstart.types import Sampling

_TEMPERATURE_1 = Sampling(temperature=1.0)
G = TypeVar("G", bound=GrowingTree)


def grow_trees(trees: Sequence[G], forward: Callable[[Sequence[G]], Tensor]) -> None:
    """Grow every tree to its end. forward: see the contract above."""
    live = [tree for tree in trees if not tree.done]
    while live:
        extend_trees(live, forward(live))
        live = [tree for tree in live if not tree.done]


def extend_trees(trees: Sequence[GrowingTree], logits: Tensor) -> None:
    """Grow every tree by one level, from the logits [R, W] after its fresh nodes, tree by tree."""
    spans = list(_spans(trees))
    drawn = [(tree, span) for tree, span in spans if tree.draws]
    ranked = [(tree, span) for tree, span in spans if not tree.draws]
    for tree, span in spans:
        tree.logits.append(logits[span])
    if ranked:
        _grow_likeliest(_rows(logits, ranked), [tree for tree, _ in ranked])
    if drawn:
        _grow_drawn(_rows(logits, drawn), [tree for tree, _ in drawn])


def _spans(trees: Sequence[G]) -> Iterator[tuple[G, slice]]:
    """Each tree's rows of the logits."""
    begin = 0
    for tree in trees:
        yield tree, slice(begin, begin + len(tree.fresh))
        begin += len(tree.fresh)


def _rows(logits: Tensor, trees: Sequence[tuple[GrowingTree, slice]]) -> Tensor:
    """The rows of these trees alone."""
    if sum(span.stop - span.start for _, span in trees) == len(logits):
        return logits
    return torch.cat([logits[span] for _, span in trees])


def _grow_likeliest(logits: Tensor, trees: Sequence[GrowingTree]) -> None:
    if all(tree.row.sampling_state.unedited and tree.row.sampling.greedy for tree in trees):
        x = logits.float()
    else:
        states = ((scoring(tree.row.sampling_state), tree.paths()) for tree in trees)
        rows = [SamplingRow(state, path) for state, paths in states for path in paths]
        x = process(logits, rows, trees[0].vocabulary)
    most = max(max(tree.wanted()) for tree in trees)
    chances, places = x.softmax(-1).topk(min(most, x.shape[1]))  # logsumexp takes ten times as long where x is -inf
    scores, columns = chances.log().tolist(), places.tolist()
    for tree, span in list(_spans(trees)):
        tree.rank(columns[span], scores[span])


def _grow_drawn(logits: Tensor, trees: Sequence[GrowingTree]) -> None:
    rows = [SamplingRow(tree.row.sampling_state, path) for tree in trees for path in tree.paths()]
    distributions = distribution(logits, rows, trees[0].vocabulary).cpu().numpy()
    for tree, span in list(_spans(trees)):
        tree.draw(distributions[span])


def scoring(state: SamplingState) -> SamplingState:
    """The processors by which guesses are scored. A greedy distribution has no second choice, so for a greedy request
    it is the distribution at temperature 1, after bias and penalties."""
    return state.filtered(_TEMPERATURE_1) if state.sampling.greedy else state
