"""How often the target takes the likeliest, second, ... guess, and the static trees that follow from it.

`Ranks` counts by rank among siblings, for trees of one drafter's distribution, and pacing. A round tests some nodes:
x0, and every accepted node that has children. Each either goes on to one of its children or ends there. A child of rank
b was tested where all of its elder siblings were passed over; counting hits among such tests (a hazard) is fair to
ranks that only few nodes have.

`Experience` counts by head and rank, for Medusa. With `accuracies[k][i]`, the chance that the i-th likeliest token of
head k is right where everything before it was, a node that takes ranks i_0, ..., i_k is accepted with about the product
of their accuracies. The best tree of n nodes is that of the n largest products: a node's product is never above its
parent's, so it is connected, and the trees of all sizes are prefixes of one order. `best_first` finds it for any
chances, also for those of one request's own distributions (`lattice`).

Source of the order: Medusa (arXiv:2401.10774, section 2.3.3).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headstart.types import Draft

MOST = 16
"""Ranks that are counted apart; later ones count as the last."""
PRIOR = (0.65, *(0.35 / rank**0.75 for rank in range(1, MOST)))
"""Hazards to begin with: a draft of moderate quality."""
_WEIGHT = 20.0  # tests that the prior counts as
_MEMORY = 1 - 1 / 1000  # per test


def outcomes(draft: Draft, path: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """(rank of the child that was accepted, or 0; children) of each node that a round tested."""
    below = (*path, None)
    for node, accepted in zip((-1, *path), below, strict=True):
        children = draft.children[node + 1]
        if children:
            yield (0 if accepted is None else children.index(accepted) + 1), len(children)


class Ranks:
    """Acceptance by rank, from the prior and what rounds have shown since."""

    def __init__(self) -> None:
        self._hits = [hazard * _WEIGHT for hazard in PRIOR]
        self._tests = [_WEIGHT] * MOST
        self.rounds = 0

    def learn(self, draft: Draft, path: tuple[int, ...]) -> None:
        for accepted, children in outcomes(draft, path):
            for rank in range(min(accepted or children, MOST)):
                self._tests[rank] = _MEMORY * self._tests[rank] + 1
                self._hits[rank] = _MEMORY * self._hits[rank] + (rank + 1 == accepted)
        self.rounds += 1

    @property
    def hazards(self) -> list[float]:
        """P(the child of rank b is accepted | its elder siblings are not), for b = 1, 2, ..."""
        return [hits / tests for hits, tests in zip(self._hits, self._tests, strict=True)]

    @property
    def acceptance(self) -> list[float]:
        """P(the child of rank b is accepted), for b = 1, 2, ...; they sum to at most 1."""
        left = 1.0
        chances = []
        for hazard in self.hazards:
            chances.append(left * hazard)
            left *= 1 - hazard
        return chances


WIDTH = 10
"""Guesses of a head that are considered."""
NODES = 63
"""Nodes of the largest tree."""

_FIRST, _DEEPER, _RANK = 0.55, 0.75, 2.0
_STRENGTH = 40.0
_KEPT = 1 - 1 / 2000
_FRESH = 32

Accuracies = Sequence[Sequence[float]]
"""[k][i]: how often the i-th guess of head k is right, among those times when its forerunners were."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node of the order."""

    parent: int
    """Its parent's place in the order, -1 for x0."""
    head: int
    """The head that guesses it, which is its depth, from 0."""
    rank: int
    """Its rank among that head's guesses, from 0."""
    chance: float
    """The chance that it is accepted."""


def usual_accuracies(heads: int, width: int) -> list[list[float]]:
    """Accuracies to expect of heads that have not been measured: the first is right in 55 % of the cases and each
    further one in three quarters as many; a second guess a quarter as often as a first, a third a ninth."""
    return [[_FIRST * _DEEPER**k / (i + 1) ** _RANK for i in range(width)] for k in range(heads)]


def grow(accuracies: Accuracies, nodes: int = NODES) -> tuple[Place, ...]:
    """The `nodes` most promising nodes, the best first; of equals, those higher up and of lower rank."""
    ranked = [sorted(((chance, i) for i, chance in enumerate(row)), key=lambda each: -each[0]) for row in accuracies]
    return best_first(lambda head, _: ranked[head] if head < len(ranked) else (), nodes)


def best_first(children: Callable[[int, int], Sequence[tuple[float, int]]], nodes: int) -> tuple[Place, ...]:
    """The `nodes` nodes of largest chance, the product of those along their path, the best first; of equals, those
    higher up, and among siblings in their order.

    children: (depth from 0, rank of the parent or -1 for x0) to (chance, rank) of each child, likeliest first.
    """
    order: list[Place] = []
    # (-chance, head, place among its siblings, parent): each node enters after its parent and its better sibling
    open_: list[tuple[float, int, int, int]] = []

    def enter(parent: int, head: int, among: int) -> None:
        below = children(head, order[parent].rank if parent >= 0 else -1)
        if among < len(below):
            above = order[parent].chance if parent >= 0 else 1.0
            heapq.heappush(open_, (-above * below[among][0], head, among, parent))

    enter(-1, 0, 0)
    while open_ and len(order) < nodes:
        value, head, among, parent = heapq.heappop(open_)
        rank = children(head, order[parent].rank if parent >= 0 else -1)[among][1]
        order.append(Place(parent, head, rank, -value))
        enter(parent, head, among + 1)
        enter(len(order) - 1, head + 1, 0)
    return tuple(order)


def sizes(
    order: Sequence[Place], counts: Sequence[int] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63)
) -> list[tuple[int, int]]:
    """(nodes, depth) of some prefixes of the order."""
    depth, found = 0, []
    for nodes, place in enumerate(order, start=1):
        depth = max(depth, place.head + 1)
        if nodes in counts or nodes == len(order):
            found.append((nodes, depth))
    return found


class Experience:
    """Accuracies that follow what is observed, and the order that belongs to them.

    They begin as `accuracies`, which count as much as 40 observations of each head, and forget slowly. The order is
    made again every 32 steps.
    """

    def __init__(self, accuracies: Accuracies) -> None:
        self.order = grow(accuracies)
        self._start = accuracies
        self._right = [[0.0] * len(row) for row in accuracies]
        self._seen = [0.0] * len(accuracies)
        self._steps = 0

    def learn(self, guesses: Sequence[Sequence[int]], tokens: Sequence[int], accepted: int) -> None:
        """What a step showed of the guesses [k][i]: the tokens that came, of which so many were accepted; one more
        was judged after them."""
        for head, token in enumerate(tokens[: min(len(guesses), accepted + 1)]):
            right = self._right[head] = [_KEPT * count for count in self._right[head]]
            self._seen[head] = _KEPT * self._seen[head] + 1
            for rank, guess in enumerate(guesses[head]):
                if guess == token:
                    right[rank] += 1
        self._steps += 1
        if self._steps % _FRESH == 0:
            self.order = grow(self.accuracies)

    @property
    def accuracies(self) -> list[list[float]]:
        return [
            [(_STRENGTH * first + count) / (_STRENGTH + seen) for first, count in zip(start, right, strict=True)]
            for start, right, seen in zip(self._start, self._right, self._seen, strict=True)
        ]
