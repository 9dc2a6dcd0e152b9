"""What a candidate should bring, from measured costs and measured rounds. No clock and no model here.

The speedup is that of whole answers, with the reading of the prompt and the rounds without a draft:

    (reading + tokens * seconds of a step without a draft) / (reading with the drafter + sum of the rounds' seconds)

Without the reading, and for a drafter that always drafts k tokens, it is `theory.speedup_by_position`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import theory
from headstart.engine.in_turn import Round, Text
from headstart.measure.doctor.acceptance import conditional, recut, shares, whole_goes_on
from headstart.theory import DraftCost, StepCosts
from headstart.theory.statistics import Interval, bisect, bootstrap

BATCHES = (1, 2, 4, 8, 16, 32, 64)
_RESAMPLES = 400
ENOUGH = 4
"""Prompts from which on an interval is given."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Costs of steps as they were found in rounds."""

    plain: StepCosts
    """Of steps without a draft; its only draft cost, under the source "", is that of asking a drafter in vain."""
    sources: Mapping[str, StepCosts] = field(default_factory=dict)
    """Of steps with a draft of that source."""

    def of(self, source: str) -> StepCosts:
        """Of steps with a draft of this source; one that never drafted here costs what it costs to ask it in vain."""
        found = self.sources.get(source, self.plain)
        return found if source in found.drafts else replace(found, drafts={source: found.drafts[""]})

    def step(self, source: str, rows: float, depth: float) -> float:
        """Seconds of a step with a draft of this source, or of "", nobody."""
        return self.of(source).step(rows, drafts={source: (depth, 1)})


def fit(costs: StepCosts, plain: Sequence[Round], drafted: Sequence[Round]) -> Timing:
    """Timing from the costs and measured rounds: medians, since other work on a machine only ever adds time.

    The shapes are those of `costs`. Their levels come from the rounds: plain ones at one row, drafted ones at their
    usual number of rows, a straight line between.
    """
    if not plain:
        raise ValueError("there is no plain round to compare with")
    rest = median(map(_outside, plain))
    level = median(one.parts.verify for one in plain) / costs.forward(1)
    # With what deciding takes, which steps without a drafter have not
    in_vain = [one.parts.draft + max(0.0, _outside(one) - rest) for one in drafted if not one.nodes]
    asked = DraftCost(start=median(in_vain) if in_vain else 0.0)
    of_plain = _levelled(costs, level, {"": asked}, rest)
    sources = {}
    for source in dict.fromkeys(one.source for one in drafted if one.nodes):
        mine = [one for one in drafted if one.source == source]
        expected = [level * costs.forward(1 + one.nodes) for one in mine]
        found = median(one.parts.verify / seconds for one, seconds in zip(mine, expected, strict=True))
        # More rows than one never take less than a plain step; where they seem to, the plain ones were held up
        least = level * costs.forward(1) / median(expected)
        width = 1 + round(median(one.nodes for one in mine))
        further = max(0.0, median(map(_outside, mine)) - rest) / max(1, width - 1)
        drafts = {source: _cost(costs.drafts.get(source, DraftCost()), mine)}
        sources[source] = _levelled(
            costs, level, drafts, rest, factor=max(least, found), width=width, row_overhead=further
        )
    return Timing(of_plain, sources)


def _levelled(
    costs: StepCosts,
    level: float,
    drafts: Mapping[str, DraftCost],
    overhead: float,
    *,
    factor: float = 1.0,
    width: int = 1,
    row_overhead: float = 0.0,
) -> StepCosts:
    """The costs at the level of the rounds: forwards of one row times `level`, those of `width` and more times `factor`
    besides, a straight line between."""
    rows = []
    for n in range(1, max(width, costs.rows[-1][0]) + 2):
        reach = min(1.0, (n - 1) / max(1, width - 1))
        rows.append((n, level * costs.forward(n) * (1 + (factor - 1) * reach)))
    return StepCosts(tuple(rows), level * costs.request, drafts, max(0.0, overhead), row_overhead)


def _outside(one: Round) -> float:
    """Seconds outside draft and forward."""
    return one.seconds - one.parts.draft - one.parts.verify


def _cost(found: DraftCost, rounds: Sequence[Round]) -> DraftCost:
    """The costs, scaled so that drafts take what they took in rounds; what rounds hid and slowed is in these times.

    Drafts that are made ahead take nearly nothing or all of their time, so that their mean counts, and no median.
    """
    middle = fmean if found.hidden else median
    found = replace(found, hidden=0.0, slowing=0.0)
    seconds = middle(one.parts.draft for one in rounds)
    expected = median(found.seconds(one.depth) for one in rounds)
    if expected <= 0:
        return DraftCost(start=seconds, growth=found.growth)
    return found.scaled(seconds / expected)


@dataclass(frozen=True, slots=True)
class Member:
    """One source's part in a prediction."""

    share: float
    """The share of the rounds that it drafts in."""
    alpha: float
    """The acceptance that would bring as many tokens per drafted round if all positions were alike."""
    c: float
    """Seconds per drafted level over those of a plain step."""
    break_even_alpha: float
    """The alpha below which its drafts cost more than they bring; NaN if even a perfect draft would not pay."""
    acceptance: tuple[float, ...]
    """Conditional acceptance by position."""
    accepted_of_tested: tuple[tuple[int, int], ...]
    """The counts behind the acceptance."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """With drafts of k tokens (nodes of a tree; the usual number where pacing chooses): the speedup of whole answers
    over decoding without a drafter at batch 1, its interval over prompts; tokens per target forward; the speedup by
    batch size, after the first token."""

    k: int
    depth: int
    speedup: Interval
    tokens_per_forward: float
    members: Mapping[str, Member]
    batches: Mapping[int, float]

    @property
    def drafting(self) -> float:
        """Share of the rounds with a draft."""
        return sum(member.share for member in self.members.values())


def predict(
    timing: Timing, texts: Mapping[int, Text], plain: Mapping[int, Text], k: int | None, *, tree: bool = False
) -> Prediction:
    """What the measured texts say about drafts of k. Rounds of trees, and of a pacing that chooses (k None), are taken
    as they are. texts, plain: with the drafter and of the target alone, by the prompt's place. Of `plain` only the
    reading counts; where it has a prompt not, the target reads that as much faster as the others."""
    rounds = [text.rounds for text in texts.values()]
    flat = [one for prompt in rounds for one in prompt]
    if tree or k is None:
        cuts = [(1.0, rounds)]
    else:
        joined = whole_goes_on(flat)
        cuts = [(1 - joined, [_cut(prompt, k) for prompt in rounds])]
        cuts += [(joined, [_cut(prompt, k, joined=True) for prompt in rounds])] if joined > 0 else []
    totals = np.zeros((len(texts), 4))
    both = [(plain[place].reading, texts[place].reading) for place in plain if place in texts]
    faster = sum(alone for alone, _ in both) / (sum(beside for _, beside in both) or 1.0)
    for i, (place, text) in enumerate(texts.items()):
        alone = plain[place].reading if place in plain else faster * text.reading
        totals[i] = _prompt_totals(timing, [(w, cut[i]) for w, cut in cuts], text.reading, alone)
    speedup = over_prompts(totals, _ratio)
    _, _, tokens, count = totals.sum(0)
    weighted = [(w, one) for w, cut in cuts for prompt in cut for one in prompt]
    whole = sum(w for w, _ in weighted)
    members = {}
    for source in dict.fromkeys(one.source for _, one in weighted if one.nodes):
        mine = [(w, one) for w, one in weighted if one.source == source]
        members[source] = _member(timing, source, mine, whole)
    depth = max((one.depth for one in flat), default=0) if tree or k is None else k
    if k is None:
        k = round(median([one.nodes for one in flat if one.nodes] or [0]))
    batches = {batch: _at_batch(timing, weighted, batch) for batch in BATCHES}
    return Prediction(k, depth, speedup, float(tokens / count) if count else 1.0, members, batches)


def over_prompts(units: Sequence[Any] | NDArray[Any], statistic: Callable[[Any], float]) -> Interval:
    """A speedup and its interval over prompts (95%, bootstrap); too few prompts say nothing about others."""
    if len(units) < ENOUGH:
        return Interval(statistic(units)) if len(units) else Interval(math.nan)
    return bootstrap(units, statistic, resamples=_RESAMPLES, scale="log")


def _cut(rounds: Sequence[Round], k: int, *, joined: bool = False) -> tuple[Round, ...]:
    return tuple(recut(rounds, k, joined=joined))


def _prompt_totals(
    timing: Timing, cuts: Sequence[tuple[float, Sequence[Round]]], reading: float, alone: float
) -> tuple[float, float, float, float]:
    """Of one prompt, whose rounds are cut in several ways, each with a weight: predicted seconds without a drafter and
    with it, tokens after the first, rounds."""
    tokens = sum(w * one.tokens for w, rounds in cuts for one in rounds)
    seconds = sum(w * timing.step(one.source, 1 + one.nodes, one.depth) for w, rounds in cuts for one in rounds)
    rounds = sum(w * len(rounds) for w, rounds in cuts)
    return alone + tokens * timing.plain.plain, reading + seconds, tokens, rounds


def _ratio(units: Any) -> float:
    without, seconds = np.asarray(units)[:, :2].sum(0)
    return float(without / seconds) if seconds > 0 else math.nan


def _member(timing: Timing, source: str, mine: Sequence[tuple[float, Round]], whole: float) -> Member:
    rounds = [one for w, one in mine if w > 0]
    counts = conditional(rounds)
    weight = sum(w for w, _ in mine)
    emitted = sum(w * (one.accepted + 1) for w, one in mine) / weight
    depth = sum(w * one.depth for w, one in mine) / weight
    levels = max(1, round(depth))
    c = timing.of(source).c(source, depth)
    rows = 1 + sum(w * one.nodes for w, one in mine) / weight  # for a chain that is one more than its levels
    return Member(
        share=weight / whole,
        alpha=alike(emitted, levels),
        c=c,
        break_even_alpha=float(theory.break_even_alpha(levels, c, {1: 1.0, levels + 1: timing.of(source).v(rows)})),
        acceptance=shares(counts),
        accepted_of_tested=counts,
    )


def alike(tokens: float, k: int) -> float:
    """The alpha for which a draft of k brings so many tokens per round: `theory.expected_tokens` turned round."""
    if tokens >= k + 1:
        return 1.0
    return bisect(lambda alpha: theory.expected_tokens(alpha, k), tokens, 0.0, 1.0)[0]


def _at_batch(timing: Timing, weighted: Sequence[tuple[float, Round]], batch: int) -> float:
    """The speedup where so many requests are decoded at once, all like these."""
    whole = sum(w for w, _ in weighted)
    if whole <= 0:
        return 1.0
    tokens = sum(w * one.tokens for w, one in weighted) / whole
    drafted = sum(w * one.nodes for w, one in weighted) / whole
    before = 0.0
    widest, most = "", 0.0
    for source in dict.fromkeys(one.source for _, one in weighted):
        mine = [(w, one) for w, one in weighted if one.source == source]
        share = sum(w for w, _ in mine) / whole
        depth = sum(w * one.depth for w, one in mine) / (share * whole)
        asked = 1 - (1 - share) ** batch  # that at least one of them has it draft
        before += asked * timing.of(source).draft(source, depth, share * batch / asked)
        if source and share > most:
            widest, most = source, share
    rows, costs = 1 + drafted, timing.of(widest)
    forward = timing.plain.forward(batch * rows, batch) * costs.forward(rows) / timing.plain.forward(rows)
    plain = timing.plain.forward(batch, batch) + costs.outside(batch)
    return tokens * plain / (before + forward + costs.outside(batch * rows))
