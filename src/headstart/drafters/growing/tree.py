"""One tree of guesses while it grows, level by level, from a distribution of the drafter's own.

There are two plans for a tree:

`TopK`, dynamic (EAGLE-2, arXiv:2406.16858): every level expands the `width` likeliest nodes of the last one, `width`
children each; at the end all candidates are ranked by the log-probability of their paths and the best `budget` kept.
A node is never likelier than its parent, so what is kept is a tree. Its nodes are point masses, exact by the walk rule
for greedy and for sampled requests.

`Shape`, static (Sequoia, arXiv:2402.12374; SpecInfer, arXiv:2305.09781): how many children a node has is fixed before
anything is drawn, and they are drawn without replacement: the likeliest in the race of the distribution against
exponential noise (Gumbel top-k), so that each child has the distribution left over by its elder siblings. Under rule
"coupled" the noise is the target's own at that position. A node whose distribution has run out of tokens gets fewer
children. For a greedy request the children are the likeliest tokens, as point masses.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.drafters import Row
from headstart.model.packed import Segment
from headstart.rule.noise import Purpose
from headstart.rule.softmax import softmax
from headstart.rule.vocabulary import PartialVocabulary
from headstart.theory.trees import Shape
from headstart.types import Draft


@dataclass(frozen=True, slots=True)
class TopK:
    """Grow the likeliest nodes."""

    width: int
    """Nodes that are expanded in each level, and children of each."""
    depth: int
    """Levels."""


class GrowingTree:
    """One request's tree while it grows.

    tokens: the nodes that have been fed to the drafter or are about to be, those above first. Nodes that get no
        children are never fed, and not among them.
    parents: the parent of each, an index into the same lists; -1 for x0.
    fresh: the nodes whose children come next: (-1,) at first, for x0; after that always the last of `tokens`; ()
        once the tree is grown.

    Args:
        budget: most nodes of the draft.
        plan: how the tree grows.
        room: most nodes that may be fed, where the drafter's cache has room for no more. They may be more than
            `budget`: of those expanded early some are displaced later.
        memory: what the drafter keeps of the request.
        vocabulary: of the drafter's distributions [W], where that is a part of the target's.
    """

    def __init__(
        self,
        row: Row,
        budget: int,
        plan: TopK | Shape,
        room: int | None = None,
        memory: Any = None,
        vocabulary: PartialVocabulary | None = None,
    ) -> None:
        self.memory = memory
        self.vocabulary = vocabulary
        self.row = row
        self.budget = budget
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.fresh: tuple[int, ...] = (-1,) if budget > 0 else ()
        self.logits: list[Tensor] = []
        """By level, the drafter's logits [R, W] after what was fresh then: after x0, then after `tokens` in order."""
        self.plan = plan
        self._room = sys.maxsize if room is None else max(0, room)
        self._nodes: list[_Node] = []
        self._best: list[_Node] = []  # of `TopK`: the likeliest so far, at most `budget`
        self._open: list[_Node | None] = [None] * len(self.fresh)  # the nodes of `fresh`
        self._depth = 0
        if isinstance(plan, Shape) and len(plan) > budget:
            raise ValueError(f"a tree of {len(plan)} nodes for a budget of {budget}")
        if isinstance(plan, Shape) and not len(plan):
            self.fresh, self._open = (), []

    @property
    def held(self) -> int:
        """How many of `tokens` have been fed: all but the fresh ones."""
        return len(self.tokens) - (len(self.fresh) if self.tokens else 0)

    @property
    def done(self) -> bool:
        return not self.fresh

    @property
    def growing(self) -> tuple[tuple[int, int], ...]:
        """(token, index of its parent) of the tokens whose children come next; none at first."""
        return tuple((self.tokens[node], self.parents[node]) for node in self.fresh if node >= 0)

    @property
    def draws(self) -> bool:
        """Whether children are drawn from the drafter's distribution; else they are its likeliest tokens."""
        return isinstance(self.plan, Shape) and not self.row.sampling.greedy

    def is_like(self, other: GrowingTree) -> bool:
        """Whether it grows as another does: trees of two sizes need not begin alike."""
        return (self.budget, self.plan) == (other.budget, other.plan)

    def segment(self, slot: int) -> Segment:
        """The fresh nodes as rows of a forward, on a slot that holds the text up to x0 (so not for the first level)."""
        draft = Draft(tuple(self.tokens), tuple(self.parents))
        return Segment(slot, (), draft, judged=len(self.fresh), held=self.held)

    def draft(self) -> Draft:
        """The tree as it is proposed."""
        nodes = self._drafted
        places = {-1: -1, **{node.number: place for place, node in enumerate(nodes)}}
        tokens = tuple(node.token for node in nodes)
        parents = tuple(places[node.parent] for node in nodes)
        # under rule "coupled" the walk decides without distributions
        if not nodes or not self.draws or self.row.purpose is Purpose.TOKEN:
            return Draft(tokens, parents)
        ids = None if self.vocabulary is None else self.vocabulary.ids
        return Draft(tokens, parents, torch.from_numpy(self.distributions()), vocabulary=ids)

    @property
    def _drafted(self) -> list[_Node]:
        """The nodes of the draft, in its order."""
        return self._best if isinstance(self.plan, TopK) else self._nodes

    def fed(self) -> list[int]:
        """Of each node of the draft, its index in `tokens`; -1 for one that gets no children there."""
        return [node.fed for node in self._drafted]

    def distributions(self) -> NDArray[Any]:
        """Of drawn nodes, the distribution that each was drawn from given its elder siblings, in the order of the draft
        [N, W]."""
        drawn, before = list[NDArray[Any] | None](), -2
        for node in self._nodes:
            drawn.append(None if node.parent == before else node.distribution)
            before = node.parent
        found = softmax().siblings(drawn, [node.column for node in self._nodes])
        if found is not None:
            return found
        first = self._nodes[0].distribution
        assert first is not None, "called for drawn nodes only"
        rows = np.empty((len(self._nodes), len(first)), first.dtype)
        for _, siblings in groupby(self._nodes, key=lambda node: node.parent):
            family = list(siblings)
            begin, q = family[0].number, family[0].distribution
            assert q is not None, "as above"
            distributions_of_children(q, [node.column for node in family], rows[begin : begin + len(family)])
        return rows

    # -- growing ------------------------------------------------------------------------------------------------------

    def paths(self) -> list[tuple[int, ...]]:
        """The draft tokens from below x0 down to each fresh node."""
        return [() if node is None else node.path for node in self._open]

    def wanted(self) -> list[int]:
        """How many children each fresh node is to have."""
        if isinstance(self.plan, TopK):
            return [min(self.plan.width, self.budget)] * len(self._open)
        return [len(self._places(node)) for node in self._open]

    def _places(self, parent: _Node | None) -> Sequence[int]:
        """Of a node's children, in the shape; the likeliest nodes have none there."""
        if isinstance(self.plan, TopK):
            return (-1,) * min(self.plan.width, self.budget)
        return self.plan.children[0 if parent is None else parent.place + 1]

    def rank(self, columns: Sequence[Sequence[int]], scores: Sequence[Sequence[float]]) -> None:
        """The likeliest tokens after each fresh node, as columns of its distribution, and their log-probabilities,
        likeliest first."""
        found = []
        least = self._best[-1].score if len(self._best) >= self.budget else -math.inf
        for parent, count, ids, values in zip(self._open, self.wanted(), columns, scores, strict=True):
            above = 0.0 if parent is None else parent.score
            children = []
            for column, value in zip(islice(ids, count), values, strict=False):
                score = above + min(value, 0.0)  # rounding must not make a child likelier than its parent
                # -inf has probability 0, and a NaN has no meaning; nor does a node that is not among the best any more
                if not value > -math.inf or score < least:
                    break
                children.append((column, score, None))
            found.append(children)
        if isinstance(self.plan, TopK) and sum(map(len, found)) > self.budget:  # most would be made and never kept
            least = sorted((score for children in found for _, score, _ in children), reverse=True)[self.budget - 1]
            found = [[child for child in children if child[1] >= least] for children in found]
        self._born(found)

    def draw(self, distributions: Sequence[NDArray[Any]] | NDArray[Any]) -> None:
        """Draw the children of each fresh node from its distribution [W]."""
        found = []
        for index, (count, q) in enumerate(zip(self.wanted(), distributions, strict=True)):
            found.append(
                [(column, 0.0, q) for column in draw_children(self.row, q, self._depth, index, count, self.vocabulary)]
            )
        self._born(found)

    def _born(self, found: Sequence[Sequence[tuple[int, float, NDArray[Any] | None]]]) -> None:
        """Take in a level's nodes (column, score, distribution), and choose those of them that get children."""
        self._depth += 1
        begin = len(self._nodes)
        for parent, children in zip(self._open, found, strict=True):
            above, number = ((), -1) if parent is None else (parent.path, parent.number)
            for place, (column, score, q) in zip(self._places(parent), children, strict=False):
                token = column if self.vocabulary is None else self.vocabulary.tokens[column]
                rank = (-score, self._depth, len(self._nodes))
                path = (*above, token)
                self._nodes.append(_Node(len(self._nodes), number, token, column, score, rank, place, path, q))
        new = self._nodes[begin:]
        if isinstance(self.plan, TopK):
            chosen = self._expandable(self.plan, new)
        else:
            chosen = [node for node in new if self.plan.children[node.place + 1]]
        chosen = chosen[: max(0, self._room - len(self.tokens))]
        self._open = list(chosen)
        first = len(self.tokens)
        for node in chosen:
            node.fed = len(self.tokens)
            self.tokens.append(node.token)
            self.parents.append(self._nodes[node.parent].fed if node.parent >= 0 else -1)
        self.fresh = tuple(range(first, len(self.tokens)))

    def _expandable(self, plan: TopK, new: Sequence[_Node]) -> list[_Node]:
        """The `width` likeliest, without those whose children could not be among the best `budget` any more."""
        self._best = sorted((*self._best, *new), key=_RANK)[: self.budget]
        if self._depth >= plan.depth:
            return []
        best = {node.number for node in self._best[: self.budget - 1]}  # a child ranks behind its parent
        return [node for node in sorted(new, key=_RANK)[: plan.width] if node.number in best]


@dataclass(slots=True)
class _Node:
    """A node that has been met, whether or not the draft keeps it."""

    number: int
    """Its place among all nodes met."""
    parent: int
    """The number of its parent, -1 for x0."""
    token: int
    column: int
    """Of its distribution, where the distribution is over a part of the vocabulary; else the token."""
    score: float
    """The log-probability of its path."""
    rank: tuple[float, int, int]
    """Likeliest first, and equals by depth, since rounding may give a child its parent's very score."""
    place: int
    """Its place in the shape."""
    path: tuple[int, ...]
    """The tokens from below x0 down to its own."""
    distribution: NDArray[Any] | None
    """The distribution [W] of its parent's children, where they are drawn."""
    fed: int = -1
    """Its index in `GrowingTree.tokens`."""


_RANK = attrgetter("rank")


# -- children that are drawn -----------------------------------------------------------------------------------------


_NODES = 1 << 32
"""The distance between the lanes of a round's noise: one lane for each node that has children drawn."""


def draw_children(
    row: Row, q: NDArray[Any], depth: int, index: int, count: int, vocabulary: PartialVocabulary | None = None
) -> list[int]:
    """Up to `count` different columns of q [V], in drawing order: the first in the race of q against the noise. A
    column is a token, unless `vocabulary` says which.

    depth: of their parent (0: x0). index: tells apart the nodes of one depth, whose children must be drawn
    independently. Under rule "coupled" all of them have the noise of the position, as the target will.
    """
    start = len(row.tokens)
    if row.purpose is Purpose.DRAFT:
        return row.noise.first(q, start + depth, row.purpose, start + index * _NODES, count)
    tokens = None if vocabulary is None else vocabulary.numbers  # the target's noise belongs to tokens
    return row.noise.first(q, start + depth, row.purpose, 0, count, tokens)


def distributions_of_children(q: NDArray[Any], tokens: Sequence[int], rows: NDArray[Any] | None = None) -> NDArray[Any]:
    """For each child the distribution it was drawn from: q [V] without its elder siblings, with sum 1 again.

    rows [N, V]: where they are written.
    """
    rows = np.empty((len(tokens), len(q)), q.dtype) if rows is None else rows
    for row, before, token in zip(rows, (q, *rows), (-1, *tokens), strict=False):
        row[:] = before
        if token >= 0:
            row[token] = 0
            row /= row.sum()
    return rows
