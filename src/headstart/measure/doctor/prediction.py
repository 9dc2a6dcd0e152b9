"""The speedup that a candidate should give, from measured costs and measured rounds. No clock and no model here.

The speedup is that of whole answers, with the reading of the prompt and the rounds without a draft:

    (reading + tokens * seconds of a step without a draft) / (reading with the drafter + sum of the rounds' seconds)

Without the reading, and for a drafter that always drafts k tokens, it is `theory.speedup_by_position`.

A round is one target forward that emits tokens. What a shorter draft would have given need not be run again, see
`theory.recut`. For a greedy request that is exact, up to the end of a draft that was accepted whole; sampled ones have
the same distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import theory
from headstart.engine.in_turn import Round, Text
from headstart.measure.doctor.costs import Timing
from headstart.theory.rounds import PositionCounts, Stretch
from headstart.theory.rounds import recut as theory_recut
from headstart.theory.statistics import Interval, bisect, bootstrap

BATCHES = (1, 2, 4, 8, 16, 32, 64)
_RESAMPLES = 400
ENOUGH = 4
"""Prompts from which on an interval is given."""


@dataclass(frozen=True, slots=True)
class Member:
    """One source's part in a prediction."""

    share: float
    """The share of the rounds that it drafts in."""
    alpha: float
    """The acceptance that would give as many tokens per drafted round if all positions were alike."""
    c: float
    """Seconds per drafted level over those of a plain step."""
    break_even_alpha: float
    """The alpha below which its drafts cost more time than they save; NaN if even a perfect draft would not pay."""
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
    cuts: list[tuple[float, Sequence[Sequence[Round]]]] = [(1.0, rounds)]
    if k is not None and not tree:
        joined = whole_goes_on(flat)
        cuts = [(1 - joined, [recut(prompt, k, joined=False) for prompt in rounds])]
        cuts += [(joined, [recut(prompt, k, joined=True) for prompt in rounds])] if joined > 0 else []
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
    rows = 1 + sum(w * one.nodes for w, one in mine) / weight  # for a chain that is one more than its levels
    c = timing.of(source).c(source, depth, rows - 1 - depth)
    return Member(
        share=weight / whole,
        alpha=alike(emitted, levels),
        c=c,
        break_even_alpha=float(theory.break_even_alpha(levels, c, {1: 1.0, levels + 1: timing.of(source).v(rows)})),
        acceptance=shares(counts),
        accepted_of_tested=counts,
    )


def alike(tokens: float, k: int) -> float:
    """The alpha for which a draft of k gives so many tokens per round: the inverse of `theory.expected_tokens`."""
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
        siblings = sum(w * (one.nodes - one.depth) for w, one in mine) / (share * whole)
        before += asked * timing.of(source).draft(source, depth, share * batch / asked, siblings)
        if source and share > most:
            widest, most = source, share
    rows, costs = 1 + drafted, timing.of(widest)
    forward = timing.plain.forward(batch * rows, batch) * costs.forward(rows) / timing.plain.forward(rows)
    plain = timing.plain.forward(batch, batch) + costs.outside(batch)
    return tokens * plain / (before + forward + costs.outside(batch * rows))


def recut(rounds: Sequence[Round], k: int, *, joined: bool) -> list[Round]:
    """The rounds of chains as they would be with at most k tokens a draft; without times.

    joined: a draft that was accepted whole would have gone on to be right, so that its stretch and the next one's are
    one; otherwise it would have been wrong after its last token. The truth lies between, see `whole_goes_on`.
    """
    stretches = [Stretch(one.source, one.nodes, one.accepted, one.tokens) for one in rounds]
    return [
        Round(piece.source, piece.nodes, piece.nodes, piece.accepted, piece.tokens)
        for piece in theory_recut(stretches, k, joined=joined)
    ]


def whole_goes_on(rounds: Iterable[Round]) -> float:
    """How often a draft that was accepted whole would have been right about one more token, taken from what happened
    at the last places that are known: the acceptance over the second half of the positions."""
    rounds = [one for one in rounds if one.nodes]
    deepest = max((one.depth for one in rounds), default=0)
    tested = kept = 0
    for one in rounds:
        for place in range(deepest // 2, min(one.accepted + 1, one.depth)):
            tested += 1
            kept += place < one.accepted
    return kept / tested if tested else 0.0


def conditional(rounds: Iterable[Round]) -> tuple[tuple[int, int], ...]:
    """[(accepted, tested)] by position: a position was tested if all before it were accepted and the draft reached
    it."""
    counts = PositionCounts()
    for one in rounds:
        counts.add(one.depth, one.accepted)
    return tuple(zip(counts.accepted, counts.tested, strict=True))


def shares(counts: Iterable[tuple[int, int]]) -> tuple[float, ...]:
    """Conditional acceptance by position."""
    return tuple(kept / tested for kept, tested in counts)


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
