"""How often the target takes a node's first, second, ... child: what trees are shaped and paced by.

A round tests some nodes: x0, and every accepted node that has children. Each either goes on to one of its children or
ends there. A child of rank b was tested where all of its elder siblings were passed over; counting hits among such
tests (a hazard) is fair to ranks that only few nodes have.
"""

from __future__ import annotations

from collections.abc import Iterator

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
