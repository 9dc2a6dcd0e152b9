"""How the rows of a forward pass through a state that changes with every token: in which order, and what they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headstart.types import Draft


@dataclass(frozen=True, slots=True)
class Store:
    """A plane that is to be written: the text's state after the first `visits` visits."""

    visits: int
    plane: int
    tag: int
    before: tuple[int, ...]
    """The last taps - 1 inputs of that text, the oldest first."""


@dataclass(slots=True)
class Walk:
    """How the rows of one segment pass through the states of its slot, in every recurrent layer alike.

    A visit is one application of a layer's function to an input. Inputs are numbered: the segment's rows, then the
    logged rows of `logged`, then the taps - 1 that the source plane has kept. Those that are rows have an output.
    Visits are in an order in which each node of a draft follows its parent, with only the parent's other descendants
    between them. Numbers lie flat, because a step has little time for anything else.
    """

    slot: int
    rows: tuple[int, int]
    """Where the segment's rows stand in the forward: from, to."""
    source: int | None
    """The plane to begin with; None for the empty text, whose state and kept inputs are zeros."""
    logged: list[int]
    """Indices of the log."""
    inputs: list[int]
    """[visits, taps]: what the convolution of each visit sums: inputs along its path, its own last."""
    depths: list[int]
    """Of each visit: 0 for one of the text, which changes the state in place; a draft's node of depth d makes state d
    of state d - 1 (and of the text's, for d = 1)."""
    stores: list[Store]
    written: range
    """The rows of the segment that are logged."""
    places: list[int]
    """The indices of the log that they go to."""
    before: tuple[list[int | None], int, int | None]
    """What was known of the slot: see `CutPoints.known`."""

    @property
    def fed(self) -> int:
        """Rows of the segment."""
        return self.rows[1] - self.rows[0]


def windows(path: Sequence[int], before: int) -> list[int]:
    """Of each number of a path but the first `before` ones: so many numbers before it, and itself, all in a row."""
    found: list[int] = []
    for end in range(before + 1, len(path) + 1):
        found += path[end - before - 1 : end]
    return found


def visit_nodes(
    draft: Draft, nodes: Sequence[int], held: int, last: Sequence[int], inputs: list[int], depths: list[int]
) -> None:
    """Add the visits of a draft's nodes, each after its parent. nodes: the input of each. last: the text's last."""
    needed = set(range(held, len(draft)))  # the nodes that are fed, and what lies above them
    for node in range(held, len(draft)):
        parent = draft.parents[node]
        while parent >= 0 and parent not in needed:
            needed.add(parent)
            parent = draft.parents[parent]
    waiting = [(node, list(last)) for node in reversed(draft.children[0])]
    while waiting:
        node, before = waiting.pop()
        if node not in needed:
            continue
        path = [*before, nodes[node]]
        inputs += path
        depths.append(draft.depths[node])
        waiting += [(child, path[1:]) for child in reversed(draft.children[node + 1])]
