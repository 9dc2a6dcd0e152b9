"""Which of many combinations run: each value of the first axes once in the fast suite, the last axis taking turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest


def rotated(
    axes: Sequence[Sequence[Any]],
    turns: Sequence[tuple[Any, ...]],
    slow: Callable[..., bool] = lambda *combination: False,
    most: int = 0,
) -> list[Any]:
    """Parameters for every combination of `axes` with some of `turns`: (*combination, *turn).

    Of each combination one turn is fast, the next one's for the next value of any axis, so that every turn is met; the
    others are marked slow. slow: of a combination, whether all its turns are, since another fast test shows the same of
    it. most: of how many turns each combination has any, fast and slow together; 0 is all of them. They lie as far
    apart as can be, so that values beside each other have all of them between them.
    """
    most = most or len(turns)
    chosen = [step * max(1, len(turns) // most) for step in range(most)]
    found = []
    for indices in product(*(range(len(axis)) for axis in axes)):
        combination = [axis[index] for axis, index in zip(axes, indices, strict=True)]
        for place, turn in enumerate(turns):
            apart = (place - sum(indices)) % len(turns)
            if apart in chosen:
                marks = pytest.mark.slow if apart or slow(*combination) else ()
                found.append(pytest.param(*combination, *turn, marks=marks))
    return found
