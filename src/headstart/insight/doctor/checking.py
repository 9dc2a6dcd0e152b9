"""What a drafter brought, from rounds of a run and rounds of plain decoding between them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from headstart.insight.doctor.prediction import over_prompts
from headstart.insight.measure import Round
from headstart.insight.statistics import Interval

PAUSE = 5.0
"""Times the median of a drafter's steps from which a step's seconds are cut: none takes so long by itself."""


def ratio(plain: Sequence[Sequence[Round]], drafted: Sequence[Sequence[Round]]) -> Interval:
    """Tokens per second over plain decoding's, after the first token; by prompt, so that pairs stay pairs."""
    units = np.array([(*_total(one), *_total(other)) for one, other in zip(plain, drafted, strict=True)], dtype=float)
    return over_prompts(units, _speedup)


def _total(rounds: Sequence[Round]) -> tuple[int, float]:
    """Tokens and seconds; a step that another process held up counts as a slow one, not as all of the pause."""
    seconds = 0.0
    for source in {one.source for one in rounds}:
        mine = [one.seconds for one in rounds if one.source == source]
        most = PAUSE * median(mine)
        seconds += sum(min(each, most) for each in mine)
    return sum(one.tokens for one in rounds), seconds


def _speedup(units: Any) -> float:
    tokens, seconds, drafted_tokens, drafted_seconds = np.asarray(units).sum(0)
    if not tokens or not drafted_seconds:
        return float("nan")
    return float((drafted_tokens / drafted_seconds) / (tokens / seconds))
