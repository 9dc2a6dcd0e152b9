"""The children of one node, drawn without replacement, and the distribution that each of them was drawn from.

Source: Gumbel top-k, as in SpecInfer (arXiv:2305.09781) and Sequoia (arXiv:2402.12374).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.drafters import Row
from headstart.rule.noise import Purpose
from headstart.rule.vocabulary import PartialVocabulary

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
    left = min(count, int(np.count_nonzero(q > 0)))  # nothing at all where q is NaN
    start = len(row.tokens)
    lane = start + index * _NODES if row.purpose is Purpose.DRAFT else 0
    wide = vocabulary is not None and row.purpose is not Purpose.DRAFT  # the target's noise belongs to tokens
    race = vocabulary.spread(q, 0) if vocabulary is not None and wide else q.copy()
    first: list[int] = []
    while len(first) < left:  # whoever wins once the winner has left would have been second
        first.append(row.noise.draw(race, start + depth, row.purpose, lane))
        race[first[-1]] = 0
    return first if vocabulary is None or not wide else vocabulary.columns_of(first)


def distributions_of_children(q: NDArray[Any], tokens: Sequence[int]) -> list[NDArray[Any]]:
    """For each child the distribution [V] it was drawn from: q without its elder siblings, with sum 1 again."""
    rows = [q]
    for token in tokens[:-1]:
        rest = rows[-1].copy()
        rest[token] = 0
        rest /= rest.sum()
        rows.append(rest)
    return rows[: len(tokens)]
