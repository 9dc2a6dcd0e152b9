"""A drafter as pacing sees it: what it can draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from headstart.pacing.constants import MAX_DEPTH
from headstart.rule.row import Row


class Source:
    """A drafter that can be turned up and down by itself.

    Args:
        name: the drafter's.
        limit: the most nodes that it may be asked for.
        sizes: (nodes, depth) of the trees that it can draft, fewest nodes first; empty for chains, which have any
            length.
        may_draft: whether it is to be asked for a request; None is always.
        same_model: whether it is the target itself at a lower precision.

    Raises:
        ValueError: a limit below 1.
    """

    def __init__(
        self,
        name: str,
        limit: int,
        sizes: Sequence[tuple[int, int]] = (),
        may_draft: Callable[[Row], bool] | None = None,
        *,
        same_model: bool = False,
    ) -> None:
        if limit < 1:
            raise ValueError("a source that may draft nothing is none")
        self.name = name
        self.may_draft = may_draft
        self.same_model = same_model
        self.drafts_trees = bool(sizes)
        self.sizes = tuple(sizes) or tuple((k, k) for k in range(1, min(limit, MAX_DEPTH) + 1))
        self.nodes, self.depths = (np.array(column) for column in zip(*self.sizes, strict=True))
        self.limit = int(self.nodes[-1])
        fitting = self.nodes.searchsorted(np.arange(self.limit + 1), side="right")
        self._levels = [0 if not count else int(self.depths[count - 1]) for count in fitting]

    @property
    def smallest(self) -> tuple[int, int]:
        """Nodes and depth of its smallest draft."""
        return self.sizes[0]

    def size(self, nodes: int) -> tuple[int, int]:
        """(nodes, depth) of a draft for which so many nodes were asked: what drafting it costs grows with both."""
        nodes = min(nodes, self.limit)
        return nodes, self._levels[nodes]
