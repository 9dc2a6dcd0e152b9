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
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.drafters import Row
from headstart.model.packed import Segment
from headstart.rule.noise import Purpose
from headstart.rule.softmax import Likeliest, Wanted, softmax
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
        # of each node that was met, whether or not the draft keeps it, by its number:
        self._tokens: list[int] = []
        self._columns: list[int] = []  # of its distribution, which may be over a part of the vocabulary; or the token
        self._above: list[int] = []  # the number of its parent, -1 for x0
        self._fed: list[int] = []  # its index in `tokens`, -1 where it is not there
        self._places: list[int] = []  # its place in the shape, if there is one
        self._drawn: list[NDArray[Any]] = []  # the distribution [W] of its parent's children, where they are drawn
        self._best: list[_Ranked] = []  # of `TopK`: the likeliest so far, at most `budget`
        self._open = [-1] * len(self.fresh)  # the numbers of the nodes of `fresh`
        self._scores = [0.0] * len(self.fresh)  # of `TopK`: the log-probabilities of their paths
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
        numbers, above = self._drafted, self._above
        places = {-1: -1, **{number: place for place, number in enumerate(numbers)}}
        tokens = tuple([self._tokens[number] for number in numbers])
        parents = tuple([places[above[number]] for number in numbers])
        # under rule "coupled" the walk decides without distributions
        if not self._drawn or self.row.purpose is Purpose.TOKEN:
            return Draft(tokens, parents)
        ids = None if self.vocabulary is None else self.vocabulary.ids
        return Draft(tokens, parents, torch.from_numpy(self.distributions()), vocabulary=ids)

    @property
    def _drafted(self) -> Sequence[int]:
        """The numbers of the draft's nodes, in its order."""
        return [number for _, _, number in self._best] if isinstance(self.plan, TopK) else range(len(self._tokens))

    def fed(self) -> list[int]:
        """Of each node of the draft, its index in `tokens`; -1 for one that gets no children there."""
        return [self._fed[number] for number in self._drafted]

    def distributions(self) -> NDArray[Any]:
        """Of drawn nodes, the distribution that each was drawn from given its elder siblings, in the order of the draft
        [N, W]."""
        above, drawn = self._above, self._drawn
        first = [None if here == before else q for here, before, q in zip(above, (-2, *above), drawn, strict=False)]
        found = softmax().siblings(first, self._columns)
        if found is not None:
            return found
        rows = np.empty((len(drawn), len(drawn[0])), drawn[0].dtype)
        for _, family in groupby(range(len(drawn)), key=above.__getitem__):
            begin, *others = family
            end = begin + 1 + len(others)
            distributions_of_children(drawn[begin], self._columns[begin:end], rows[begin:end])
        return rows

    # -- growing ------------------------------------------------------------------------------------------------------

    def paths(self) -> list[tuple[int, ...]]:
        """The draft tokens from below x0 down to each fresh node."""
        return [self._path(number) for number in self._open]

    def _path(self, number: int) -> tuple[int, ...]:
        return () if number < 0 else (*self._path(self._above[number]), self._tokens[number])

    def wanted(self) -> Wanted:
        """Which of the likeliest tokens after the fresh nodes it can use."""
        if isinstance(self.plan, TopK):
            # who is not among the best any more will not be among them at the end
            least = -self._best[-1][0] if len(self._best) >= self.budget else -math.inf
            return Wanted(min(self.plan.width, self.budget), self._scores, least, self.budget)
        count = max(len(self._below(number)) for number in self._open)
        return Wanted(count, [0.0] * len(self._open), -math.inf, count * len(self._open))

    def _below(self, number: int) -> tuple[int, ...]:
        """The places of a node's children in the shape."""
        assert isinstance(self.plan, Shape), "other trees have none"
        return self.plan.children[0 if number < 0 else self._places[number] + 1]

    def rank(self, found: Likeliest) -> None:
        """Take in the likeliest tokens after the fresh nodes, those that are `wanted`, as columns."""
        rows, columns, scores = found
        self._depth += 1
        if isinstance(self.plan, TopK):
            numbers = self._meet([self._open[row] for row in rows], columns)
            new = [(-score, self._depth, number) for score, number in zip(scores, numbers, strict=True)]
            self._best = sorted(self._best + new)[: self.budget]
            self._expand_likeliest(self.plan)
            return
        begin, places = len(self._tokens), [iter(self._below(number)) for number in self._open]
        for row, column in zip(rows, columns, strict=True):
            place = next(places[row], None)
            if place is not None:
                self._places.append(place)
                self._meet([self._open[row]], [column])
        self._expand_shape(begin)

    def draw(self, distributions: Sequence[NDArray[Any]] | NDArray[Any]) -> None:
        """Draw the children of each fresh node from its distribution [W]."""
        begin = len(self._tokens)
        for index, (number, q) in enumerate(zip(self._open, distributions, strict=True)):
            places = self._below(number)
            columns = draw_children(self.row, q, self._depth, index, len(places), self.vocabulary)
            self._places += places[: len(columns)]
            self._drawn += [q] * len(columns)
            self._meet([number] * len(columns), columns)
        self._depth += 1
        self._expand_shape(begin)

    def _meet(self, above: Sequence[int], columns: Sequence[int]) -> range:
        """Number nodes below those of these numbers."""
        begin, vocabulary = len(self._tokens), self.vocabulary
        self._tokens += columns if vocabulary is None else [vocabulary.tokens[column] for column in columns]
        self._columns += columns
        self._above += above
        self._fed += [-1] * len(columns)
        return range(begin, len(self._tokens))

    def _expand_likeliest(self, plan: TopK) -> None:
        """The `width` likeliest of the last level get children, without those whose children could not be among the
        best `budget` any more: a child ranks behind its parent."""
        if self._depth >= plan.depth:
            self._expand([])
            return
        likeliest = [each for each in self._best[: self.budget - 1] if each[1] == self._depth][: plan.width]
        self._expand([number for _, _, number in likeliest])
        self._scores = [-score for score, _, _ in likeliest[: len(self._open)]]

    def _expand_shape(self, begin: int) -> None:
        """The nodes from this number on get the children that they have in the shape."""
        self._expand([number for number in range(begin, len(self._tokens)) if self._below(number)])

    def _expand(self, numbers: Sequence[int]) -> None:
        """Make these nodes the fresh ones, as far as there is room."""
        first = len(self.tokens)
        self._open = list(numbers[: max(0, self._room - first)])
        self.fresh = tuple(range(first, first + len(self._open)))
        for index, number in zip(self.fresh, self._open, strict=True):
            above = self._above[number]
            self._fed[number] = index
            self.tokens.append(self._tokens[number])
            self.parents.append(self._fed[above] if above >= 0 else -1)


_Ranked = tuple[float, int, int]
"""Of a node: less the log-probability of its path, its depth and its number. So the likeliest come first, and equals by
depth, since rounding may give a child its parent's very score."""


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
