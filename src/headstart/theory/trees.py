"""Which static tree to draft: nodes, depth and shape, from measured acceptance and measured costs.

P[b - 1] is the probability that the target's token is a node's b-th child, whatever the node. A tree emits, in
expectation, one token (the bonus) and of each node the product of the ranks' probabilities along its path. Sequoia's
dynamic programme finds the best tree: T[m][l][b], the tokens expected of m nodes (their root counts as one) of at most
l levels (the root's counts, too) whose root has b children, is

    T[m][l][1] = 1 + P_1 max_b T[m-1][l-1][b],    T[m][l][b] = max_y T[y][l][b-1] + P_b max_c T[m-y][l-1][c].

Source: Sequoia (arXiv:2402.12374), section 4.1. The root here is the pending token x0, which is no node of a draft: a
tree of n nodes below is one of n + 1 there, and d levels are d + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import InvalidOption
from headstart.types import children_of, depths_of

_NOTHING = -np.inf


@dataclass(frozen=True)
class Shape:
    """A static tree below x0."""

    parents: tuple[int, ...] = ()
    """parents[i] < i is the parent of node i, -1 for a child of x0."""
    ranks: tuple[int, ...] = ()
    """ranks[i] is 1 for an eldest child, 2 for the next, and so on; elder siblings come first."""
    expected: float = 1.0
    """The expected tokens of a step with this tree, the bonus included."""

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """1 for a child of x0, 2 for its children, and so on."""
        return depths_of(self.parents)

    @property
    def depth(self) -> int:
        return max(self.depths, default=0)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """children[i + 1]: the nodes below node i, eldest first; children[0] those below x0."""
        return children_of(self.parents)


class Table:
    """The dynamic programme for up to `nodes` nodes and `depth` levels, every smaller tree included."""

    def __init__(self, acceptance: Sequence[float], nodes: int, depth: int) -> None:
        if not acceptance or any(not 0 <= p <= 1 for p in acceptance):
            raise InvalidOption(
                f"acceptance by rank must be probabilities, not {acceptance}",
                hint="give the chance that the target's token is a node's first child, its second, ...",
            )
        if nodes < 0 or depth < 0:
            raise InvalidOption(f"no tree has {nodes} nodes and {depth} levels", hint="give numbers from 0 on")
        self._acceptance = tuple(acceptance)
        m, ranks = nodes + 1, min(len(acceptance), max(nodes, 1))
        # value[l][m][b], best[l][m] over b, and the split y that T[m][l][b] came from
        self._value = np.full((depth + 1, m + 1, ranks + 1), _NOTHING)
        self._best = np.full((depth + 1, m + 1), _NOTHING)
        self._split = np.zeros((depth + 1, m + 1, ranks + 1), dtype=np.int64)
        self._value[:, 1, 0] = 1.0
        self._best[0, 1] = 1.0
        for level in range(1, depth + 1):
            self._fill(level, ranks)

    def _fill(self, level: int, ranks: int) -> None:
        value, below = self._value[level], self._best[level - 1]
        sizes = np.arange(len(below))
        rest = sizes[:, None] - sizes[None, :]  # m - y
        subtree = np.where(rest > 0, below[np.maximum(rest, 0)], _NOTHING)
        for b in range(1, ranks + 1):
            p = self._acceptance[b - 1]
            with np.errstate(invalid="ignore"):
                gained = np.where(np.isfinite(subtree), p * subtree, _NOTHING)
            sums = value[None, :, b - 1] + gained
            self._split[level, :, b] = sums.argmax(1)
            value[:, b] = sums.max(1)
        self._best[level] = value.max(1)

    def expected(self, nodes: int, depth: int) -> float:
        """Tokens emitted by the best tree of at most `nodes` nodes and `depth` levels."""
        return float(self._best[depth, : nodes + 2].max())

    def shape(self, nodes: int, depth: int) -> Shape:
        """The best tree of at most `nodes` nodes and `depth` levels."""
        m = int(self._best[depth, : nodes + 2].argmax())
        parents: list[int] = []
        ranks: list[int] = []
        # Level by level, so that a tree is in the order in which it is drafted: (node, nodes below and itself)
        waiting = [(-1, m)]
        for level in range(depth, 0, -1):
            born: list[tuple[int, int]] = []
            for node, size in waiting:
                for rank, part in enumerate(self._parts(size, level), start=1):
                    born.append((len(parents), part))
                    parents.append(node)
                    ranks.append(rank)
            waiting = born
        return Shape(tuple(parents), tuple(ranks), float(self._best[depth, m]))

    def _parts(self, size: int, level: int) -> list[int]:
        """The sizes of the subtrees of the best tree of `size` nodes, eldest child first."""
        parts: list[int] = []
        for b in range(int(self._value[level, size].argmax()), 0, -1):
            smaller = int(self._split[level, size, b])
            parts.append(size - smaller)
            size = smaller
        return parts[::-1]


def best_tree(acceptance: Sequence[float], nodes: int, depth: int) -> Shape:
    """The static tree of at most `nodes` nodes and `depth` levels that emits most tokens."""
    return Table(acceptance, nodes, depth).shape(nodes, depth)


def tree_tokens(acceptance: Sequence[float], shape: Shape) -> float:
    """Tokens that a step with this tree emits: the sum over its nodes of the chance of their paths, and the bonus."""
    chances: list[float] = []
    for parent, rank in zip(shape.parents, shape.ranks, strict=True):
        p = acceptance[rank - 1] if rank <= len(acceptance) else 0.0
        chances.append(p * (chances[parent] if parent >= 0 else 1.0))
    return 1.0 + sum(chances)


def likeliest_gains(acceptance: NDArray[Any], nodes: int, depth: int) -> NDArray[Any]:
    """Accepted tokens expected of the best trees, for several acceptances at once; [A, depth, nodes].

    acceptance: [A, B], by rank, falling from rank to rank. Then the best tree of n nodes simply has the n likeliest
    ones, since a node is never likelier than its parent or its elder sibling: no dynamic programme is needed.
    """
    count = acceptance.shape[0]
    level = np.ones((count, 1))
    met = np.zeros((count, 0))
    gains = np.empty((count, depth, nodes))
    for at in range(depth):
        level = (level[:, :, None] * acceptance[:, None, :]).reshape(count, -1)
        level = -np.sort(-level, axis=1)[:, :nodes]
        met = -np.sort(-np.concatenate((met, level), axis=1), axis=1)[:, :nodes]
        total = np.cumsum(met, axis=1)
        gains[:, at, : total.shape[1]] = total
        gains[:, at, total.shape[1] :] = total[:, -1:]
    return gains
