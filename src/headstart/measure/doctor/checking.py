"""What a drafter brought, from texts of its engine and of the target alone, written in turn."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from headstart.engine.in_turn import Text
from headstart.measure.doctor.prediction import over_prompts
from headstart.theory.statistics import Interval

PAUSE = 5.0
"""Times the median of a drafter's steps from which a step's seconds are cut: none takes so long by itself."""


def ratio(plain: Sequence[Text], drafted: Sequence[Text]) -> Interval:
    """Tokens per second over those of the target alone; by prompt, so that pairs stay pairs."""
    units = np.array([(*_total(one), *_total(other)) for one, other in zip(plain, drafted, strict=True)], dtype=float)
    return over_prompts(units, _speedup)


def _total(text: Text) -> tuple[int, float]:
    """Tokens after the first, and seconds with the reading; a step that another process held up counts as a slow one,
    not as all of the pause."""
    seconds = text.reading
    for source in {one.source for one in text.rounds}:
        mine = [one.seconds for one in text.rounds if one.source == source]
        most = PAUSE * median(mine)
        seconds += sum(min(each, most) for each in mine)
    return sum(one.tokens for one in text.rounds), seconds


def _speedup(units: Any) -> float:
    tokens, seconds, drafted_tokens, drafted_seconds = np.asarray(units).sum(0)
    if not tokens or not drafted_seconds:
        return float("nan")
    return float((drafted_tokens / drafted_seconds) / (tokens / seconds))
