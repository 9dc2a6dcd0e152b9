"""Which of many combinations run in the fast suite: `rotated` is said where the test is, `spread` in long_tests.txt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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


def spread(cases: Sequence[Mapping[str, Any]], turns: int) -> set[int]:
    """The places of one of each `turns` cases that follow one another: the one whose parameters were met least. Each
    value of each parameter is met if so few cases can."""
    values = [[f"{name}={value!r}" for name, value in case.items()] for case in cases]
    met: Counter[str] = Counter()
    chosen = []
    for begin in range(0, len(cases), turns):
        those = range(begin, min(begin + turns, len(cases)))
        chosen.append(min(those, key=lambda place: sum(met[value] for value in values[place])))
        met.update(values[chosen[-1]])
    return {*chosen}
