"""What a candidate should bring, from measured costs and measured rounds. No clock and no model here.

A step takes draft + forward + the rest. The shape of each comes from the costs (seconds of n rows, seconds of a draft
of d levels), its level from the rounds that were measured: plain ones at one row, drafted ones at their width, a
straight line between. The speedup is then a sum over rounds, those in which the drafter was silent included:

    tokens * seconds of a plain step / sum over rounds of (draft + forward + rest)

which, for a drafter that always drafts k tokens, is `theory.speedup_by_position`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import theory
from headstart.insight.doctor.acceptance import Round, conditional, recut, shares, whole_goes_on
from headstart.insight.statistics import Interval, bootstrap
from headstart.pacing.costs import Costs, DraftCost, Prices

BATCHES = (1, 2, 4, 8, 16, 32, 64)
_HALVINGS = 60
_RESAMPLES = 400
ENOUGH = 4
"""Prompts from which on an interval is given."""

Rounds = Sequence[Sequence[Round]]
"""By prompt."""


@dataclass(frozen=True, slots=True)
class SourceTiming:
    """What drafted rounds of one source were found to take. width: rows of a usual one. forward: its forward's seconds
    over those that the costs say. rest: seconds outside draft and forward. cost: of drafts, as measured in rounds."""

    cost: DraftCost
    width: int
    forward: float
    rest: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a step. costs: shapes. level: a plain step's forward over what the costs say. rest: a plain step's
    seconds outside the forward. ask: seconds of a drafter that is asked and stays silent."""

    costs: Costs
    level: float
    rest: float
    ask: float = 0.0
    sources: Mapping[str, SourceTiming] = field(default_factory=dict)
    _prices: Prices = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_prices", Prices(self.costs, ()))

    @property
    def plain(self) -> float:
        """Of decoding without a drafter."""
        return self.forward("", 1) + self.rest

    def draft(self, source: str, depth: float, requests: float = 1) -> float:
        """Seconds to draft so many levels, for so many requests that ask for a draft at a time."""
        if source not in self.sources:
            return self.ask
        cost = self.sources[source].cost
        return (cost.start + cost.token * depth) * (1 + cost.growth * max(0.0, requests - 1))

    def forward(self, source: str, rows: float, batch: int = 1) -> float:
        seconds = self.level * self._prices.forward(batch, rows)
        if source in self.sources:
            seconds *= 1 + (self.sources[source].forward - 1) * self._reach(source, rows / batch)
        return seconds

    def outside(self, source: str, rows: float) -> float:
        """Seconds outside draft and forward: the law, the rule, the text. Grows with rows, in batches too."""
        if source not in self.sources:
            return self.rest
        one = self.sources[source]
        return self.rest + max(0.0, one.rest - self.rest) * (rows - 1) / max(1, one.width - 1)

    def step(self, source: str, rows: int, depth: int) -> float:
        return self.draft(source, depth) + self.forward(source, rows) + self.outside(source, rows)

    def _reach(self, source: str, rows: float) -> float:
        """How far these rows are on the way from a plain step to a usual one of the source, 0 to 1."""
        return min(1.0, (rows - 1) / max(1, self.sources[source].width - 1))


def fit(costs: Costs, plain: Sequence[Round], drafted: Sequence[Round]) -> Timing:
    """Timing from the costs and measured rounds: medians, since other work on a machine only ever adds time."""
    if not plain:
        raise ValueError("there is no plain round to compare with")
    prices = Prices(costs, ())
    rest = median(one.seconds - one.draft - one.verify for one in plain)
    level = median(one.verify for one in plain) / prices.forward(1, 1)
    silent = [one.draft for one in drafted if not one.speaks]
    sources = {}
    for source in dict.fromkeys(one.source for one in drafted if one.speaks):
        mine = [one for one in drafted if one.source == source]
        expected = [level * prices.forward(1, 1 + one.drafted) for one in mine]
        found = median(one.verify / seconds for one, seconds in zip(mine, expected, strict=True))
        # More rows than one never take less than a plain step; where they seem to, the plain ones were held up
        least = level * prices.forward(1, 1) / median(expected)
        sources[source] = SourceTiming(
            cost=_cost(costs.drafts.get(source, DraftCost()), mine),
            width=1 + round(median(one.drafted for one in mine)),
            forward=max(least, found),
            rest=median(one.seconds - one.draft - one.verify for one in mine),
        )
    return Timing(costs, level, rest, median(silent) if silent else 0.0, sources)


def _cost(found: DraftCost, rounds: Sequence[Round]) -> DraftCost:
    """The costs, scaled so that drafts take what they took in rounds."""
    seconds = median(one.draft for one in rounds)
    expected = median(found.start + found.token * one.depth for one in rounds)
    if expected <= 0:
        return DraftCost(start=seconds, growth=found.growth)
    factor = seconds / expected
    return DraftCost(found.start * factor, found.token * factor, found.read * factor, found.growth)


@dataclass(frozen=True, slots=True)
class Member:
    """One source's part in a prediction. share: of the rounds that it drafts in. alpha: the acceptance per token that
    would bring as many tokens per drafted round if all positions were alike. c: seconds per drafted level over those of
    a plain step. break_even: the alpha below which its drafts cost more than they bring; NaN if even sure guesses do.
    acceptance: conditional, by position; counts: (accepted, tested) behind it."""

    share: float
    alpha: float
    c: float
    break_even: float
    acceptance: tuple[float, ...]
    counts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Prediction:
    """With drafts of k tokens (nodes of a tree): the speedup over plain decoding at batch 1, its interval over prompts;
    tokens per target forward; the speedup by batch size."""

    k: int
    depth: int
    speedup: Interval
    tokens_per_forward: float
    members: Mapping[str, Member]
    batches: Mapping[int, float]

    @property
    def speaks(self) -> float:
        """Share of the rounds with a draft."""
        return sum(member.share for member in self.members.values())


def predict(timing: Timing, rounds: Rounds, k: int, *, tree: bool = False) -> Prediction:
    """What the measured rounds say about drafts of k. Rounds of trees are taken as they are: k must be theirs."""
    flat = [one for prompt in rounds for one in prompt]
    weight = 0.0 if tree else whole_goes_on(flat)
    ways = [(1.0, rounds)] if tree else [(1 - weight, _recut(rounds, k, joined=False))]
    if weight > 0:
        ways.append((weight, _recut(rounds, k, joined=True)))
    totals = np.array([_prompt_totals(timing, [(w, cut[i]) for w, cut in ways]) for i in range(len(rounds))])
    totals = totals.reshape(-1, 3)
    speedup = over_prompts(totals, lambda units: _ratio(timing, units))
    tokens, _, count = totals.sum(0)
    weighted = [(w, one) for w, cut in ways for prompt in cut for one in prompt]
    whole = sum(w for w, _ in weighted)
    members = {}
    for source in dict.fromkeys(one.source for _, one in weighted if one.speaks):
        mine = [(w, one) for w, one in weighted if one.source == source]
        members[source] = _member(timing, source, mine, whole)
    depth = max((one.depth for one in flat), default=0) if tree else k
    batches = {batch: _at_batch(timing, weighted, batch) for batch in BATCHES}
    return Prediction(k, depth, speedup, float(tokens / count) if count else 1.0, members, batches)


def over_prompts(units: Sequence[Any] | NDArray[Any], statistic: Callable[[Any], float]) -> Interval:
    """A speedup and its interval over prompts (95%, bootstrap); too few prompts say nothing about others."""
    if len(units) < ENOUGH:
        return Interval(statistic(units)) if len(units) else Interval(math.nan)
    return bootstrap(units, statistic, resamples=_RESAMPLES, scale="log")


def _recut(rounds: Rounds, k: int, *, joined: bool) -> list[list[Round]]:
    return [recut(prompt, k, joined=joined) for prompt in rounds]


def _prompt_totals(timing: Timing, ways: Sequence[tuple[float, Sequence[Round]]]) -> tuple[float, float, float]:
    """Of one prompt: tokens, predicted seconds, rounds."""
    tokens = sum(w * one.tokens for w, rounds in ways for one in rounds)
    seconds = sum(w * timing.step(one.source, 1 + one.drafted, one.depth) for w, rounds in ways for one in rounds)
    return tokens, seconds, sum(w * len(rounds) for w, rounds in ways)


def _ratio(timing: Timing, units: Any) -> float:
    tokens, seconds, _ = np.asarray(units).sum(0)
    return float(tokens * timing.plain / seconds) if seconds > 0 else math.nan


def _member(timing: Timing, source: str, mine: Sequence[tuple[float, Round]], whole: float) -> Member:
    rounds = [one for w, one in mine if w > 0]
    counts = conditional(rounds)
    weight = sum(w for w, _ in mine)
    emitted = sum(w * (one.accepted + 1) for w, one in mine) / weight
    depth = sum(w * one.depth for w, one in mine) / weight
    levels = max(1, round(depth))
    c = timing.draft(source, depth) / max(depth, 1.0) / timing.plain
    rows = 1 + sum(w * one.drafted for w, one in mine) / weight
    return Member(
        share=weight / whole,
        alpha=alike(emitted, levels),
        c=c,
        break_even=_break_even(timing, source, levels, c, rows),
        acceptance=shares(counts),
        counts=counts,
    )


def _break_even(timing: Timing, source: str, levels: int, c: float, rows: float) -> float:
    """Of drafts of so many levels that take so many rows; for a chain that is one more than its levels."""
    wide = (timing.forward(source, rows) + timing.outside(source, rows)) / timing.plain
    return float(theory.break_even_alpha(levels, c, {1: 1.0, levels + 1: wide}))


def alike(tokens: float, k: int) -> float:
    """The alpha for which a draft of k brings so many tokens per round: `theory.expected_tokens` turned round."""
    low, high = 0.0, 1.0
    if tokens >= k + 1:
        return 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if theory.expected_tokens(middle, k) < tokens else (low, middle)
    return low


def _at_batch(timing: Timing, weighted: Sequence[tuple[float, Round]], batch: int) -> float:
    """The speedup where so many requests are decoded at once, all like these."""
    whole = sum(w for w, _ in weighted)
    if whole <= 0:
        return 1.0
    tokens = sum(w * one.tokens for w, one in weighted) / whole
    drafted = sum(w * one.drafted for w, one in weighted) / whole
    seconds = 0.0
    widest, most = "", 0.0
    for source in dict.fromkeys(one.source for _, one in weighted):
        mine = [(w, one) for w, one in weighted if one.source == source]
        share = sum(w for w, _ in mine) / whole
        depth = sum(w * one.depth for w, one in mine) / (share * whole)
        asked = 1 - (1 - share) ** batch  # that at least one of them has it draft
        seconds += asked * timing.draft(source, depth, share * batch / asked)
        if source and share > most:
            widest, most = source, share
    rows = batch * (1 + drafted)
    seconds += timing.forward(widest, rows, batch) + timing.outside(widest, rows)
    plain = timing.forward("", batch, batch) + timing.outside(widest, batch)
    return tokens * plain / seconds
