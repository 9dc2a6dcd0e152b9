"""Drafting ahead of the target, tried with the fastest candidate that could."""

from __future__ import annotations

import time

import torch

from headstart.base.errors import HeadstartError
from headstart.measure.doctor.ahead import Outlook, hopeless, outlook, put_ahead, ranked_ahead
from headstart.measure.doctor.checking import ratio
from headstart.measure.doctor.measuring import both_ways, warm_up
from headstart.measure.doctor.trials import AHEAD, LEAST, Trials
from headstart.measure.doctor.verdict import HOPELESS
from headstart.pacing import FixedPacing


def try_ahead(trials: Trials) -> Outlook | None:
    """What drafting ahead would bring for the fastest candidate with a draft model; where it pays, the candidate that
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
    budget = k if len(candidate.drafters) > 1 else None
    try:
        engines = {
            "turn": trials.engine(base.candidate, FixedPacing(k), budget=budget),
            "ahead": trials.engine(candidate, FixedPacing(k), budget=budget, always_ahead=True),
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
