"""From numbers to words: which drafter, with which K, and why. Pure functions of predictions and checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headstart.loading.choice import weights_of_kind
from headstart.measure.doctor.candidates import Candidate
from headstart.measure.doctor.prediction import BATCHES, Member, Prediction
from headstart.theory.statistics import Interval

Kind = Literal["good", "unsure", "bad"]

PAYS = 1.05
"""The speedup from which on a drafter is recommended."""
EVEN = 0.97
"""Down to here a drafter changes next to nothing."""
COPIERS = ("ngram", "suffix")
_LATER = 1.2
"""Times the seconds to the first token from which on it is said that it comes later."""
HOPELESS = 0.8
"""A drafter that is slower than this alone is not made good by a copier before it."""
LONGER = 1.03
"""How much better a list must be than its best member to be preferred to it, and a candidate than the usual one."""
FINALISTS = 3
"""Candidates that are measured end to end, the best by prediction."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A prediction put to the test: whole answers, as `load` runs the drafter, in turn with the target alone."""

    speedup: Interval
    first_token: float
    """Seconds to the first token, of the median prompt."""
    first_token_alone: float
    """The same without a drafter."""
    tokens_per_forward: float
    prompts: int


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate and what was predicted for it."""

    candidate: Candidate
    tree: bool
    expected: Prediction
    """With the default pacing, which chooses a length for each step: what the candidate is judged by."""
    predictions: tuple[Prediction, ...] = ()
    """With the same length in every step (chains: all up to the longest; trees: the measured sizes); none for a list,
    in which each drafter has a length of its own."""
    measured: Measured | None = None

    @property
    def best(self) -> Prediction:
        """With its best fixed length, which acceptance by position and break-even belong to."""
        return max(self.predictions, key=lambda one: (one.speedup.value, -one.k), default=self.expected)

    @property
    def gain(self) -> float:
        """The speedup to go by: measured if it was."""
        return self.expected.speedup.value if self.measured is None else self.measured.speedup.value

    @property
    def error(self) -> float | None:
        """Of the prediction, as a share of what was measured."""
        return None if self.measured is None else self.expected.speedup.value / self.measured.speedup.value - 1


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Which drafter to take, and why."""

    kind: Kind
    headline: str
    best: Ranked | None
    """None for plain decoding."""
    reasons: tuple[str, ...]
    """A sentence for each candidate."""
    batch: str
    """The batch size at which speculation stops paying."""


def decide(ranked: Sequence[Ranked], usual: Sequence[str] = ()) -> Recommendation:
    """Of candidates that could be tried; where some were measured end to end, of these. usual: see `preferred`."""
    first = preferred(ranked, usual)
    if first is None:
        return Recommendation("bad", "Nothing could be measured: decode plainly.", None, (), "")
    silent = not first.best.members  # so that its gain is noise
    kind: Kind = "bad" if silent or first.gain < EVEN else "good" if first.gain >= PAYS else "unsure"
    stays = first.candidate.drafters == tuple(usual) and first.gain >= 1
    best = first if kind == "good" or stays else None
    how = "predicted" if first.measured is None else "measured"
    headline = {
        "good": f"Yes: {first.candidate.name}, {how} {first.gain:.2f}x on these prompts.",
        "unsure": f"Hardly: the best, {first.candidate.name}, is {how} at {first.gain:.2f}x on these prompts.",
        "bad": f"No: the best, {first.candidate.name}, is {how} at {first.gain:.2f}x on these prompts. Decode plainly.",
    }[kind]
    if silent:
        headline = f"No: the best, {first.candidate.name}, never drafted on these prompts. Decode plainly."
    ordered = sorted(ranked, key=lambda one: -one.gain)
    return Recommendation(kind, headline, best, tuple(sentence(one, best) for one in ordered), stops_paying(first))


def preferred(ranked: Sequence[Ranked], usual: Sequence[str] = ()) -> Ranked | None:
    """The fastest of those that were measured end to end, or of all where none was; a list only if it is clearly better
    than each of its members alone.

    usual: the drafters that "auto" takes without this answer. They stay unless another candidate is clearly better, so
    that an examination makes no load slower.
    """
    ranked = [one for one in ranked if one.measured is not None] or ranked
    best = _fastest(ranked)
    kept = next((one for one in ranked if one.candidate.drafters == tuple(usual)), None)
    return kept if kept is not None and best is not None and best.gain < LONGER * kept.gain else best


def finalists(ranked: Sequence[Ranked], usual: Sequence[str] = ()) -> list[Ranked]:
    """Those to be measured end to end: the best by prediction, and what "auto" takes without an answer."""
    ordered = sorted(ranked, key=lambda one: -one.gain)
    return [one for place, one in enumerate(ordered) if place < FINALISTS or one.candidate.drafters == tuple(usual)]


def _fastest(ranked: Sequence[Ranked]) -> Ranked | None:
    singles = [one for one in ranked if len(one.candidate.drafters) == 1]
    lists = [one for one in ranked if len(one.candidate.drafters) > 1]
    best = max(singles, key=lambda one: one.gain, default=None)
    for one in lists:
        members = [s.gain for s in singles if s.candidate.drafters[0] in one.candidate.drafters]
        if one.gain >= LONGER * max(members, default=0.0) and (best is None or one.gain > best.gain):
            best = one
    return best


def promising(ranked: Sequence[Ranked]) -> list[Candidate]:
    """Lists of the best copier and each promising other drafter, the fastest first."""
    singles = [one for one in ranked if len(one.candidate.drafters) == 1]
    copiers = [one for one in singles if one.candidate.drafters[0] in COPIERS and one.best.drafting > 0]
    others = [one for one in singles if weights_of_kind(one.candidate.drafters[0]) != "none" and one.gain >= HOPELESS]
    others += [one for one in singles if one.candidate.drafters[0] == "early-exit" and one.gain > 1]
    if not copiers:
        return []
    first = max(copiers, key=lambda one: one.gain).candidate.drafters[0]
    ordered = sorted(others, key=lambda one: -one.gain)
    return [Candidate((first, *one.candidate.drafters), "list") for one in ordered]


def sentence(ranked: Ranked, best: Ranked | None = None) -> str:
    """Why this candidate is, or is not, recommended. best: what is better, to be named where it is not."""
    name, prediction = ranked.candidate.name, ranked.best
    instead = ""
    if best is not None and best is not ranked:
        instead = f"; {best.candidate.name} gives {best.gain:.1f}x on these prompts"
    if not prediction.members:
        return f"{name}: it never drafted on these prompts{instead}."
    member = max(prediction.members.values(), key=lambda one: one.share)
    gain = ranked.gain
    if gain >= PAYS:
        return f"{name}: {_alpha(member)}; {_in(ranked)}, it gives {_speed(ranked)}{_first_token(ranked)}."
    if gain >= EVEN:
        return f"{name}: {_alpha(member)}; {_in(ranked)}, it changes next to nothing, {_speed(ranked)}{instead}."
    if math.isnan(member.break_even_alpha):
        return (
            f"{name}: c = {member.c:.2f}, so not even guesses that are always right would pay: do not use it{instead}."
        )
    if member.alpha < member.break_even_alpha:
        return (
            f"{name}: alpha {member.alpha:.2f} is below the break-even of {member.break_even_alpha:.2f} for "
            f"c = {member.c:.2f}: do not use this draft{instead}."
        )
    return f"{name}: {_alpha(member)}, yet {_speed(ranked)} in all{_first_token(ranked)}: do not use it{instead}."


def stops_paying(ranked: Ranked) -> str:
    """The batch size from which on no measured setting of this candidate gains anything."""
    name = ranked.candidate.name
    gains = {batch: max(p.batches[batch] for p in (ranked.expected, *ranked.predictions)) for batch in BATCHES}
    paying = [batch for batch, gain in gains.items() if gain > 1]
    if not paying:
        return f"{name} pays at no batch size."
    lost = [batch for batch in BATCHES if batch > paying[-1]]
    if not lost:
        last = BATCHES[-1]
        return f"{name} still pays at batch {last} ({gains[last]:.2f}x predicted)."
    here, there = paying[-1], lost[0]
    return (
        f"{name} stops paying between batch {here} ({gains[here]:.2f}x predicted) and batch {there} "
        f"({gains[there]:.2f}x)."
    )


def _alpha(member: Member) -> str:
    if math.isnan(member.break_even_alpha):
        return f"alpha {member.alpha:.2f} at c = {member.c:.2f}"
    return f"alpha {member.alpha:.2f} against a break-even of {member.break_even_alpha:.2f} for c = {member.c:.2f}"


def _in(ranked: Ranked) -> str:
    share = ranked.expected.drafting
    return "drafting in every step" if share > 0.995 else f"drafting in {share:.0%} of the steps"


def _speed(ranked: Ranked) -> str:
    if ranked.measured is None:
        return f"{ranked.expected.speedup.times} (predicted)"
    return f"{ranked.measured.speedup.times} (measured; {ranked.expected.speedup.value:.2f}x was predicted)"


def _first_token(ranked: Ranked) -> str:
    """Where it comes noticeably later, because a drafter with weights reads the prompt too."""
    found = ranked.measured
    if found is None or found.first_token < _LATER * found.first_token_alone:
        return ""
    late, usual = found.first_token * 1e3, found.first_token_alone * 1e3
    return f"; the first token comes after {late:.0f} ms instead of {usual:.0f}"
