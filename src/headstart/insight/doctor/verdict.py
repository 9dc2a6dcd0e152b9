"""From numbers to words: which drafter, with which K, and why. Pure functions of predictions and checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headstart.insight.doctor.candidates import Candidate
from headstart.insight.doctor.measuring import LONGEST
from headstart.insight.doctor.prediction import BATCHES, Member, Prediction
from headstart.insight.statistics import Interval
from headstart.loading.choice import WEIGHTLESS

Kind = Literal["good", "unsure", "bad"]

PAYS = 1.05
"""The speedup from which on a drafter is recommended."""
EVEN = 0.97
"""Down to here a drafter changes next to nothing."""
COPIERS = ("ngram", "suffix")
HOPELESS = 0.8
"""A drafter that is slower than this alone is not made good by a copier before it."""
LONGER = 1.03
"""How much better a list must be than its best member to be preferred to it."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A prediction put to the test."""

    speedup: Interval
    """As it was measured."""
    given: float
    """The speedup predicted from what was accepted in these very runs, so that its error is that of the costs alone."""
    adaptive: Interval | None
    """The speedup measured with the default pacing."""
    prompts: int
    same: bool
    """Whether the prompts were those of the prediction."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate and what was predicted for it, by K (chains: all up to the longest; trees: the measured sizes)."""

    candidate: Candidate
    tree: bool
    predictions: tuple[Prediction, ...]
    checked: Checked | None = None

    @property
    def best(self) -> Prediction:
        return max(self.predictions, key=lambda prediction: (prediction.speedup.value, -prediction.k))

    @property
    def gain(self) -> float:
        """The speedup to go by: measured if it was."""
        return self.best.speedup.value if self.checked is None else self.checked.speedup.value

    @property
    def error(self) -> float | None:
        """Of the prediction, as a share of what was measured."""
        return None if self.checked is None else self.best.speedup.value / self.checked.speedup.value - 1

    @property
    def setting(self) -> str:
        return f"a tree of {self.best.k} nodes" if self.tree else f"K = {self.best.k}"


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


def decide(ranked: Sequence[Ranked]) -> Recommendation:
    """Of candidates that could be measured."""
    first = preferred(ranked)
    if first is None:
        return Recommendation("bad", "Nothing could be measured: decode plainly.", None, (), "")
    kind: Kind = "good" if first.gain >= PAYS else "unsure" if first.gain >= EVEN else "bad"
    best = first if first.gain >= PAYS else None
    how = "predicted" if first.checked is None else "measured"
    headline = {
        "good": f"Yes: {first.candidate.name} with {first.setting}, {how} {first.gain:.2f}x on your prompts.",
        "unsure": f"Hardly: the best, {first.candidate.name}, is {how} at {first.gain:.2f}x on your prompts.",
        "bad": f"No: the best, {first.candidate.name}, is {how} at {first.gain:.2f}x on your prompts. Decode plainly.",
    }[kind]
    ordered = sorted(ranked, key=lambda one: -one.gain)
    return Recommendation(kind, headline, best, tuple(sentence(one, best) for one in ordered), stops_paying(first))


def preferred(ranked: Sequence[Ranked]) -> Ranked | None:
    """The fastest; a list only if it is clearly better than each of its members alone."""
    singles = [one for one in ranked if len(one.candidate.drafters) == 1]
    lists = [one for one in ranked if len(one.candidate.drafters) > 1]
    best = max(singles, key=lambda one: one.gain, default=None)
    for one in lists:
        members = [s.gain for s in singles if s.candidate.drafters[0] in one.candidate.drafters]
        if one.gain >= LONGER * max(members, default=0.0) and (best is None or one.gain > best.gain):
            best = one
    return best


def promising(ranked: Sequence[Ranked]) -> list[tuple[Candidate, int]]:
    """(list, nodes of a draft): copier, then each promising other drafter, the fastest first."""
    singles = [one for one in ranked if len(one.candidate.drafters) == 1]
    copiers = [one for one in singles if one.candidate.drafters[0] in COPIERS and one.best.drafting > 0]
    others = [one for one in singles if one.candidate.drafters[0] not in WEIGHTLESS and one.gain >= HOPELESS]
    others += [one for one in singles if one.candidate.drafters[0] == "early-exit" and one.gain > 1]
    if not copiers:
        return []
    first = max(copiers, key=lambda one: one.gain).candidate.drafters[0]
    return [
        (Candidate((first, *one.candidate.drafters), "list"), one.best.k if one.tree else LONGEST)
        for one in sorted(others, key=lambda one: -one.gain)
    ]


def sentence(ranked: Ranked, best: Ranked | None = None) -> str:
    """Why this candidate is, or is not, recommended. best: what is better, to be named where it is not."""
    name, prediction = ranked.candidate.name, ranked.best
    instead = ""
    if best is not None and best is not ranked:
        instead = f"; {best.candidate.name} gives {best.gain:.1f}x on your prompts"
    if not prediction.members:
        return f"{name}: it never drafted on these prompts{instead}."
    member = max(prediction.members.values(), key=lambda one: one.share)
    gain = ranked.gain
    if gain >= PAYS:
        return f"{name}: {_alpha(member)}; {_in(ranked)}, {ranked.setting} brings {_speed(ranked)}."
    if gain >= EVEN:
        return f"{name}: {_alpha(member)}; {_in(ranked)}, it changes next to nothing ({gain:.2f}x){instead}."
    if math.isnan(member.break_even_alpha):
        return (
            f"{name}: c = {member.c:.2f}, so not even guesses that are always right would pay: do not use it{instead}."
        )
    if member.alpha < member.break_even_alpha:
        return (
            f"{name}: alpha {member.alpha:.2f} is below the break-even of {member.break_even_alpha:.2f} for "
            f"c = {member.c:.2f}: do not use this draft{instead}."
        )
    return f"{name}: {_alpha(member)}, yet {gain:.2f}x in all: do not use it{instead}."


def stops_paying(ranked: Ranked) -> str:
    """The batch size from which on no measured setting of this candidate gains anything."""
    name = ranked.candidate.name
    gains = {batch: max(p.batches[batch] for p in ranked.predictions) for batch in BATCHES}
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
    share = ranked.best.drafting
    return "drafting in every step" if share > 0.995 else f"drafting in {share:.0%} of the steps"


def _speed(ranked: Ranked) -> str:
    if ranked.checked is None:
        return f"{ranked.best.speedup.times} (predicted)"
    return f"{ranked.checked.speedup.times} (measured; {ranked.best.speedup.value:.2f}x was predicted)"
