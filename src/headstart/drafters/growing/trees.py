"""Trees grown level by level from a law of the drafter's own, for several requests at once: the tree twin of `drawing`.

Two ways of growing:

`TopK`, dynamic (EAGLE-2, arXiv:2406.16858): every level expands the `width` likeliest nodes of the last one, `width`
children each; at the end all candidates are ranked by the log-probability of their paths and the best `budget` kept.
A node is never likelier than its parent, so what is kept is a tree. Its nodes are point masses, exact by the walk rule
for greedy and for sampled requests.

`Shape`, static (Sequoia, arXiv:2402.12374; SpecInfer, arXiv:2305.09781): how many children a node has is fixed before
anything is drawn, and they are drawn without replacement: the likeliest in the race of the law against exponential
noise (Gumbel top-k), so that each child has the law left over by its elder siblings. Under rule "coupled" the noise is
the target's own at that position. A node whose law has run out of tokens gets fewer children. For a greedy request the
children are the likeliest tokens, as point masses.

Contract of a drafter's `forward`: given guesses, it returns the logits [R, V] after each guess's `fresh` nodes, guess
by guess, in order. A drafter subclasses `Guess` to keep data of its own with it:

    class _Guess(Guess):
        def __init__(self, context, budget, way, row): ...

    def _next(self, live):
        segments = [guess.segment(guess.row.slot) for guess in live]
        return self.runner.forward(segments, self.cache).logits

    grow(guesses, self._next)
    return [guess.draft() for guess in guesses]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.drafters import Row
from headstart.model.packed import Segment
from headstart.rule.law import LawRow, LawState, law, process
from headstart.rule.noise import Purpose
from headstart.theory.trees import Shape
from headstart.types import Draft, Sampling

_NODES = 1 << 32
"""Lanes of a round's noise lie so far apart: one for each node that has children drawn."""
_TEMPERATURE_1 = Sampling(temperature=1.0)


@dataclass(frozen=True, slots=True)
class TopK:
    """Grow the likeliest nodes. width: nodes that are expanded in each level, and children of each. depth: levels."""

    width: int
    depth: int


class GrowingTree:
    """One request's tree while it grows.

    tokens, parents: the nodes that have been fed to the drafter or are about to be, those above first (parents are
    indices into the same lists, -1: x0). Nodes that get no children are never fed, and not among them. fresh: the nodes
    whose children come next: (-1,) at first, for x0; after that always the last of `tokens`; () once the tree is grown.

    Args:
        budget: most nodes of the draft.
        way: how it grows.
        room: most nodes that may be fed, where the drafter's cache has room for no more. They may be more than
            `budget`: of those expanded early some are displaced later.
    """

    def __init__(self, row: Row, budget: int, plan: TopK | Shape, room: int | None = None) -> None:
        self.row = row
        self.budget = budget
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.fresh: tuple[int, ...] = (-1,) if budget > 0 else ()
        self._plan = plan
        self._room = sys.maxsize if room is None else max(0, room)
        self._nodes: list[_Node] = []
        self._best: list[_Node] = []  # of `TopK`: the likeliest so far, at most `budget`
        self._open: list[_Node | None] = [None] * len(self.fresh)  # whom `fresh` are
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
    def draws(self) -> bool:
        """Whether children are drawn from the drafter's law; else they are its likeliest tokens."""
        return isinstance(self._plan, Shape) and not self.row.sampling.greedy

    def segment(self, slot: int) -> Segment:
        """The fresh nodes as rows of a forward, on a slot that holds the text up to x0 (so not for the first level)."""
        draft = Draft(tuple(self.tokens), tuple(self.parents))
        return Segment(slot, (), draft, judged=len(self.fresh), held=self.held)

    def draft(self) -> Draft:
        """The tree as it is proposed."""
        nodes = self._best if isinstance(self._plan, TopK) else self._nodes
        places = {-1: -1, **{node.number: place for place, node in enumerate(nodes)}}
        tokens = tuple(node.token for node in nodes)
        parents = tuple(places[node.parent] for node in nodes)
        # under rule "coupled" the walk decides, and nobody asks for laws
        if not nodes or not self.draws or self.row.purpose is Purpose.TOKEN:
            return Draft(tokens, parents)
        return Draft(tokens, parents, torch.from_numpy(np.stack(self.laws())))

    def laws(self) -> list[NDArray[Any]]:
        """Of drawn nodes, the law [V] that each was drawn from given its elder siblings, in the order of the draft."""
        rows = []
        for _, siblings in groupby(self._nodes, key=lambda node: node.parent):
            family = list(siblings)
            assert family[0].law is not None, "only asked of drawn nodes"
            rows += laws_of_children(family[0].law, [node.token for node in family])
        return rows

    # -- growing ------------------------------------------------------------------------------------------------------

    def paths(self) -> list[tuple[int, ...]]:
        """The draft tokens from below x0 down to each fresh node."""
        return [() if node is None else node.path for node in self._open]

    def wanted(self) -> list[int]:
        """How many children each fresh node is to have."""
        return [len(self._places(node)) for node in self._open]

    def _places(self, parent: _Node | None) -> Sequence[int]:
        """Of a node's children, in the shape; the likeliest nodes have none there."""
        if isinstance(self._plan, TopK):
            return (-1,) * min(self._plan.width, self.budget)
        return self._plan.children[0 if parent is None else parent.place + 1]

    def rank(self, tokens: Sequence[Sequence[int]], scores: Sequence[Sequence[float]]) -> None:
        """The likeliest tokens after each fresh node, and their log-probabilities, likeliest first."""
        found = []
        least = self._best[-1].score if len(self._best) >= self.budget else -math.inf
        for parent, count, ids, values in zip(self._open, self.wanted(), tokens, scores, strict=True):
            above = 0.0 if parent is None else parent.score
            children = []
            for token, value in zip(islice(ids, count), values, strict=False):
                score = above + min(value, 0.0)  # rounding must not make a child likelier than its parent
                # -inf has probability 0, and a NaN says nothing; nor does a node that is not among the best any more
                if not value > -math.inf or score < least:
                    break
                children.append((token, score, None))
            found.append(children)
        self._born(found)

    def draw(self, laws: Sequence[NDArray[Any]] | NDArray[Any]) -> None:
        """Draw the children of each fresh node from its law [V]."""
        found = []
        for index, (count, q) in enumerate(zip(self.wanted(), laws, strict=True)):
            found.append([(token, 0.0, q) for token in draw_children(self.row, q, self._depth, index, count)])
        self._born(found)

    def _born(self, found: Sequence[Sequence[tuple[int, float, NDArray[Any] | None]]]) -> None:
        """Take in a level's nodes, and choose those of them that get children."""
        self._depth += 1
        begin = len(self._nodes)
        for parent, children in zip(self._open, found, strict=True):
            above, number = ((), -1) if parent is None else (parent.path, parent.number)
            for place, (token, score, q) in zip(self._places(parent), children, strict=False):
                rank = (-score, self._depth, len(self._nodes))
                self._nodes.append(_Node(len(self._nodes), number, token, score, rank, place, (*above, token), q))
        new = self._nodes[begin:]
        chosen = self._expandable(new) if isinstance(self._plan, TopK) else self._with_children(new)
        chosen = chosen[: max(0, self._room - len(self.tokens))]
        self._open = list(chosen)
        first = len(self.tokens)
        for node in chosen:
            node.fed = len(self.tokens)
            self.tokens.append(node.token)
            self.parents.append(self._nodes[node.parent].fed if node.parent >= 0 else -1)
        self.fresh = tuple(range(first, len(self.tokens)))

    def _with_children(self, new: Sequence[_Node]) -> Sequence[_Node]:
        assert isinstance(self._plan, Shape), "only asked of one"
        return [node for node in new if self._plan.children[node.place + 1]]

    def _expandable(self, new: Sequence[_Node]) -> Sequence[_Node]:
        """The `width` likeliest, without those whose children could not be among the best `budget` any more."""
        assert isinstance(self._plan, TopK), "only asked of one"
        self._best = sorted((*self._best, *new), key=_RANK)[: self.budget]
        if self._depth >= self._plan.depth:
            return []
        best = {node.number for node in self._best[: self.budget - 1]}  # a child ranks behind its parent
        return [node for node in sorted(new, key=_RANK)[: self._plan.width] if node.number in best]


@dataclass(slots=True)
class _Node:
    """number, parent: among all nodes met. score: log-probability of its path. rank: likeliest first, and equals by
    depth, since rounding may give a child its parent's very score. place: in the shape. path: tokens from below x0 down
    to its own. law: [V], of its parent's children, where they are drawn. fed: its index in `Guess.tokens`."""

    number: int
    parent: int
    token: int
    score: float
    rank: tuple[float, int, int]
    place: int
    path: tuple[int, ...]
    law: NDArray[Any] | None
    fed: int = -1


_RANK = attrgetter("rank")
G = TypeVar("G", bound=GrowingTree)


def grow_trees(guesses: Sequence[G], forward: Callable[[Sequence[G]], Tensor]) -> None:
    """Grow every guess to its end. forward: see the contract above."""
    live = [guess for guess in guesses if guess.fresh]
    while live:
        logits = forward(live)
        drawn = [(guess, span) for guess, span in _spans(live) if guess.draws]
        ranked = [(guess, span) for guess, span in _spans(live) if not guess.draws]
        if ranked:
            _grow_likeliest(logits, ranked)
        if drawn:
            _grow_drawn(logits, drawn)
        live = [guess for guess in live if guess.fresh]


def _spans(guesses: Sequence[G]) -> Iterator[tuple[G, slice]]:
    """Each guess's rows of the logits."""
    begin = 0
    for guess in guesses:
        yield guess, slice(begin, begin + len(guess.fresh))
        begin += len(guess.fresh)


def _rows(logits: Tensor, guesses: Sequence[tuple[GrowingTree, slice]]) -> Tensor:
    if sum(span.stop - span.start for _, span in guesses) == len(logits):
        return logits
    return torch.cat([logits[span] for _, span in guesses])


def _grow_likeliest(logits: Tensor, guesses: Sequence[tuple[GrowingTree, slice]]) -> None:
    x = _rows(logits, guesses)
    if all(guess.row.law.unedited and guess.row.sampling.greedy for guess, _ in guesses):
        x = x.float()
    else:
        states = [_scoring(guess.row.law) for guess, _ in guesses]
        paths = [
            [LawRow(state, path) for path in guess.paths()] for state, (guess, _) in zip(states, guesses, strict=True)
        ]
        x = process(x, list(chain.from_iterable(paths)))
    most = max(max(guess.wanted()) for guess, _ in guesses)
    values, ids = x.topk(min(most, x.shape[1]))
    scores = (values - x.logsumexp(-1, keepdim=True)).tolist()
    tokens = ids.tolist()
    begin = 0
    for guess, span in guesses:
        end = begin + span.stop - span.start
        guess.rank(tokens[begin:end], scores[begin:end])
        begin = end


def _grow_drawn(logits: Tensor, guesses: Sequence[tuple[GrowingTree, slice]]) -> None:
    rows = [LawRow(guess.row.law, path) for guess, _ in guesses for path in guess.paths()]
    laws = law(_rows(logits, guesses), rows).cpu().numpy()
    begin = 0
    for guess, span in guesses:
        end = begin + span.stop - span.start
        guess.draw(laws[begin:end])
        begin = end


def _scoring(state: LawState) -> LawState:
    """The processors by which guesses are scored. A greedy law has no second choice, so for a greedy request it is
    the law at temperature 1, after bias and penalties."""
    return state.filtered(_TEMPERATURE_1) if state.sampling.greedy else state


def draw_children(row: Row, q: NDArray[Any], depth: int, index: int, count: int) -> list[int]:
    """Up to `count` different tokens from q [V], in drawing order: the first in the race of q against the noise.

    depth: of their parent (0: x0). index: tells apart the nodes of one depth, whose children must be drawn
    independently. Under rule "coupled" all of them have the noise of the position, as the target will.
    """
    support = np.flatnonzero(q > 0)  # nothing at all where q is NaN
    start = len(row.tokens)
    lane = start + index * _NODES if row.purpose is Purpose.DRAFT else 0
    if support.size <= 1:
        return [int(token) for token in support[:count]]
    noise = row.noise.exponentials(start + depth, row.purpose, lane, q.shape[0], support)
    race = q[support].astype(np.float64) / noise
    if count < support.size:
        first = np.argpartition(-race, count - 1)[:count]
        first = first[np.argsort(-race[first], kind="stable")]
    else:
        first = np.argsort(-race, kind="stable")
    return [int(token) for token in support[first]]


def laws_of_children(q: NDArray[Any], tokens: Sequence[int]) -> list[NDArray[Any]]:
    """For each child the law [V] it was drawn from: q without its elder siblings, with sum 1 again."""
    rows = [q]
    for token in tokens[:-1]:
        rest = rows[-1].copy()
        rest[token] = 0
        rest /= rest.sum()
        rows.append(rest)
    return rows[: len(tokens)]
