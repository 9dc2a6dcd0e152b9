"""Which of many combinations run in the fast suite: each value of the first axes once, the last axis taking turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest


def rotated(
    axes: Sequence[Sequence[Any]],
    turns: Sequence[tuple[Any, ...]],
    slow: Callable[..., bool] = lambda *combination: False,
) -> list[Any]:
    """Parameters for every combination of `axes` with every one of `turns`: (*combination, *turn).

    Of each combination one turn is fast, the next one's for the next combination, so that every turn is met; the others
    are marked slow. slow: of a combination, whether all its turns are, since another fast test shows the same of it.
    """
    return [
        pytest.param(
            *combination, *turn, marks=pytest.mark.slow if number % len(turns) != place or slow(*combination) else ()
        )
        for number, combination in enumerate(product(*axes))
        for place, turn in enumerate(turns)
    ]
