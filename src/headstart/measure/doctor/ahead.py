"""Would drafting ahead, while the target verifies, be quicker than drafting in turn? Measured, and said why.

The fastest candidate with a draft model is run both ways on the same prompts, one right after the other; the drafts
are the same, so the ratio is one of time alone. Where the time goes follows from the rounds: what there is to hide, how
often the outcome of a round had been foreseen, and how much longer the target takes beside a drafter that works.
Formulas: `theory.ssd`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

import torch

from headstart.base.errors import HeadstartError
from headstart.drafters.ahead import BRANCHES
from headstart.drafters.building import PREFIX
from headstart.measure.doctor.candidates import Candidate
from headstart.measure.doctor.measuring import both_ways, warm_up
from headstart.measure.doctor.prediction import ratio
from headstart.measure.doctor.trials import AHEAD, LEAST, Trials
from headstart.measure.doctor.verdict import HOPELESS, PAYS, Ranked
from headstart.pacing import FixedPacing
from headstart.theory.ssd import SsdAccount, ssd_account
from headstart.theory.statistics import Interval
from headstart.types import Step

FAN_OUTS = (1, 2, 4, 8, 16)
ENOUGH_ROUNDS = 8
"""Rounds from which on their shares and medians are worth a sentence."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What drafting ahead gives for one candidate. Times are in verifications of the target alone."""

    candidate: Candidate
    """With the drafter to be put ahead by its name, "ahead:NAME"."""
    k: int
    most: float
    """The gain if every draft were hidden and the target not slowed: 1 + T_SD."""
    gain: Interval | None = None
    """Tokens per second over those of drafting in turn; None where even `most` would not pay."""
    rounds: int = 0
    hit: float = 0.0
    """The share of rounds whose draft was ready."""
    by_fan_out: Mapping[int, float] | None = None
    """The share of rounds whose bonus token was among so many of the draft's likeliest ones there."""
    ahead: float = 0.0
    """T_a: drafting for all foreseen outcomes, beside the target."""
    account: SsdAccount | None = None

    @property
    def pays(self) -> bool:
        if self.gain is None or self.account is None:
            return False
        return min(self.gain.value, self.account.gain) >= PAYS

    @property
    def sentence(self) -> str:
        """Why to draft ahead, or why not."""
        name = self.candidate.name
        if self.gain is None:
            return (
                f"{name}: drafting ahead can be at most {self.most:.2f} times as fast as drafting in turn, since a "
                f"draft takes {self._hidden}: not tried."
            )
        if self.account is None:
            return f"{name}: too few rounds to judge drafting ahead."
        head = f"{name}: drafting ahead is {self.gain.value:.2f} times as fast as drafting in turn"
        if self.pays:
            return f"{head}: {self.hit:.0%} of its drafts were ready, and a draft in turn takes {self._hidden}."
        if min(self.gain.value, self.account.gain) >= 1:
            return f"{head}, too little to count on: {self._why}."
        return f"{head}: {self._why}."

    @property
    def _hidden(self) -> str:
        return f"{self.most - 1:.2f} of a verification"

    @property
    def _why(self) -> str:
        assert self.account is not None, "of a measured outlook"
        account = self.account
        return {
            "sharing": f"beside a drafter that works, the target takes {1 + account.sharing:.2f} times as long, and "
            f"all there is to hide is {self._hidden}",
            "waiting": f"drafting for {BRANCHES} outcomes takes {self.ahead:.2f} of a verification, and the target "
            "waits for it",
            "missing": f"only {self.hit:.0%} of its drafts were ready, of the {self._hidden} there is to hide",
        }[account.largest]


def put_ahead(candidate: Candidate, name: str) -> Candidate:
    """The same with this one of its drafters ahead of the target."""
    return Candidate(tuple(PREFIX + each if each == name else each for each in candidate.drafters), "ahead")


def hopeless(candidate: Candidate, k: int, drafting: float) -> Outlook | None:
    """The outlook where there is too little to hide, before anything is run; None where there is enough. drafting: in
    turn, in verifications."""
    return Outlook(candidate, k, 1 + drafting) if 1 + drafting < PAYS else None


def outlook(candidate: Candidate, k: int, gain: Interval, turn: Sequence[Step], ahead: Sequence[Step]) -> Outlook:
    """From steps of the same prompts in turn and ahead, all with a draft of the drafter in question. gain: as it was
    measured, which on a busy machine may be more than can be."""
    seen = [(step, each) for step in ahead if (each := step.draft.prepared) is not None and each.foreseen]
    if len(seen) < ENOUGH_ROUNDS or not turn:
        return Outlook(candidate, k, 1.0, gain, len(seen))
    verify = median(step.seconds.verify for step in turn)
    in_turn = median(step.seconds.draft for step in turn) / verify
    slow = max(0.0, median(step.seconds.verify for step in ahead) / verify - 1)
    hits = [step.seconds.draft for step, each in seen if each.hit]
    misses = [step.seconds.draft for step, each in seen if not each.hit]
    hit = len(hits) / len(seen)
    known = [each for _, each in seen if each.node is not None]
    ranks = {f: fmean(each.rank is not None and each.rank < f for each in known) for f in FAN_OUTS} if known else {}
    working = median(each.end - each.begin for _, each in seen) / verify
    # What a hit waits for had not been drafted yet, so it belongs to the time of drafting ahead
    waited = median(hits) / verify if hits else 0.0
    account = ssd_account(
        hit, in_turn, max(working, 1 + slow + waited), median(misses) / verify if misses else None, slow
    )
    most = 1 + in_turn
    gain = Interval(min(gain.value, most), min(gain.low, most), min(gain.high, most))
    return Outlook(candidate, k, most, gain, len(seen), hit, ranks, working, account)


def ranked_ahead(base: Ranked, found: Outlook) -> Ranked:
    """What was predicted for drafting in turn, so many times as fast."""
    assert found.gain is not None, "of a measured outlook"
    gain = found.gain.value
    predictions = tuple(replace(each, speedup=_times(each.speedup, gain)) for each in base.predictions)
    expected = replace(base.expected, speedup=_times(base.expected.speedup, gain))
    return replace(base, candidate=found.candidate, expected=expected, predictions=predictions)


def _times(interval: Interval, factor: float) -> Interval:
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)


def try_ahead(trials: Trials) -> Outlook | None:
    """What drafting ahead would give for the fastest candidate with a draft model; where it pays, the candidate that
    does so is ranked, too. None where there is no such candidate, or it failed."""
    able = [one for one in trials.ranked if one.gain >= HOPELESS and one.candidate in trials.models]
    if not able:
        return None
    base = max(able, key=lambda one: one.gain)
    place, source = trials.models[base.candidate]
    candidate, k = put_ahead(base.candidate, base.candidate.drafters[place]), max(1, base.best.k)
    timing = trials.timings[base.candidate].of(source)
    found = hopeless(candidate, k, timing.draft(source, base.best.depth) / timing.forward(1 + k))
    if found is not None:
        return found
    trials.clock.report(f"trying {candidate.name}")
    budget, setup = k if len(candidate.drafters) > 1 else None, trials.question.setup
    try:
        engines = {
            "turn": setup.engine(trials.target, base.candidate, FixedPacing(k), budget=budget),
            "ahead": setup.engine(trials.target, candidate, FixedPacing(k), budget=budget, always_ahead=True),
        }
        for engine in engines.values():
            warm_up(engine, trials.items[0], trials.sampling)
        until = time.monotonic() + max(LEAST, AHEAD * trials.question.seconds)
        rounds, steps = both_ways(engines, trials.items, trials.sampling, until)
    except (HeadstartError, torch.OutOfMemoryError):
        return None  # the candidate itself was measured
    turn = [step for step in steps["turn"] if step.draft.source == source]
    ahead = [step for step in steps["ahead"] if step.draft.prepared is not None]
    found = outlook(candidate, k, ratio(rounds["turn"], rounds["ahead"]), turn, ahead)
    if found.pays:
        trials.timings[candidate] = trials.timings[base.candidate]
        trials.ranked.append(ranked_ahead(base, found))
    return found
