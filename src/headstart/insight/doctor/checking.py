"""Predictions put to the test: the candidate at its recommended setting against plain decoding, in turn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from headstart.engine.engine import Engine
from headstart.insight.doctor.measuring import by_prompt, warm_up
from headstart.insight.doctor.prediction import Prediction, Timing, over_prompts, predict
from headstart.insight.doctor.verdict import Checked
from headstart.insight.measure import Round
from headstart.insight.statistics import Interval
from headstart.prompt_sets import PromptItem
from headstart.types import Sampling

PAUSE = 5.0
"""Times the median of a drafter's steps from which a step's seconds are cut: none takes so long by itself."""


def check_candidate(
    engines: Mapping[str, Engine],
    prediction: Prediction,
    timing: Timing,
    items: Sequence[PromptItem],
    sampling: Sampling,
    seconds: float,
    *,
    tree: bool,
    same: bool,
) -> Checked:
    """Measured speedup over the engine "plain" of the engine "fixed", with fixed drafts of the predicted size, and of
    the engine "adaptive" where there is one. All but the plain one are fresh.

    Raises:
        HeadstartError: the drafter gave up.
    """
    begin = time.monotonic()
    for name, engine in engines.items():
        if name != "plain":
            warm_up(engine, items[0], sampling)
    rounds = by_prompt(engines, items, sampling, begin + seconds)
    return Checked(
        speedup=ratio(rounds["plain"], rounds["fixed"]),
        given=predict(timing, rounds["fixed"], prediction.k, tree=tree).speedup.value,
        adaptive=ratio(rounds["plain"], rounds["adaptive"]) if "adaptive" in rounds else None,
        prompts=len(rounds["plain"]),
        same=same,
    )


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
