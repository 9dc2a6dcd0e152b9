"""Speedup by draft length: measured with fixed K, and predicted from costs and acceptance (`headstart.theory`).

What is predicted from: acceptance by position, as the longest K of the sweep showed it, with a step that had no
draft, or too short a one, as a rejection; how often each source drafted there, and how much; forwards and drafts as
measured apart from the runs; and what a step takes besides, by rows, as the main runs showed it. Reading the prompt
takes as long either way: its share of plain's time is not speeded up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headstart import theory
from headstart.measure.bench.result import FAST, PLAIN, BenchResult, RunRecord, SourceRecord, Trial, added
from headstart.measure.bench.summary import Figures, paired, ratio, unit_forwards, unit_times
from headstart.theory import StepCosts
from headstart.theory.statistics import Interval, bootstrap


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One K. predicted: NaN where the formulas say nothing of the case (`why_not_predicted`)."""

    k: int
    speedup: Interval
    tokens_per_forward: float
    predicted: float


@dataclass(frozen=True, slots=True)
class Here:
    """Where a bench is on the map of alpha and K, with c and v(n) as `headstart.theory.costs` defines them."""

    alpha: float
    k: float
    c: float
    v: Mapping[int, float]

    @property
    def break_even(self) -> float:
        """The alpha from which on drafting `k` tokens pays; NaN if none does."""
        return float(theory.break_even_alpha(max(1, round(self.k)), self.c, self.v))

    @property
    def best_k(self) -> theory.BestK:
        return theory.best_k(self.alpha, self.c, self.v)


def arm_of(k: int) -> str:
    return f"K={k}"


def sweep_points(result: BenchResult, *, level: float = 0.95) -> list[SweepPoint]:
    """A point for each K that was run, ascending; empty without a sweep."""
    trials = paired(result.sweep)
    ks = sorted({int(each.arm.removeprefix("K=")) for each in trials if each.arm != PLAIN})
    found = []
    for k in ks:
        forwards = list(unit_forwards(trials, arm_of(k)).values())
        times = list(unit_times(trials, (PLAIN, arm_of(k))).values())
        found.append(
            SweepPoint(
                k=k,
                speedup=bootstrap(times, ratio, level=level, scale="log"),
                tokens_per_forward=ratio(np.array(forwards)),
                predicted=_predicted(result, trials, k, ks[-1]),
            )
        )
    return found


def why_not_predicted(result: BenchResult) -> str:
    """In plain words, or "" where points are predicted."""
    if result.costs is None:
        return "costs were not measured"
    runs = [run for each in result.sweep if each.arm != PLAIN for run in each.runs]
    if any(not run.chains for run in runs):
        return "the drafts were trees, and the formula is for chains"
    if any(len(each.runs) > 1 for each in result.sweep):
        return "prompts ran in batches, and costs were measured for one request"
    sources = {name for run in runs for name in run.sources}
    if unknown := sorted(sources - result.costs.drafts.keys()):
        return f"the cost of {', '.join(unknown)} is not known"
    return "" if sources else "nothing was drafted"


def here(result: BenchResult, figures: Figures) -> Here | None:
    """Where the bench is on the map; None where nothing was drafted or no costs were measured. Of several sources, c
    is the mean by the tokens they drafted."""
    costs, sources = step_costs(result), figures.sources
    known = {name: source for name, source in sources.items() if costs is not None and name in costs.drafts}
    nodes = sum(source.nodes for source in known.values())
    if costs is None or not nodes or not math.isfinite(figures.alpha):
        return None
    levels = sum(source.depth for source in known.values())
    c = sum(s.depth * c_of(costs, name, s) for name, s in known.items()) / levels
    return Here(figures.alpha, figures.depth, c, {n: costs.v(n) for n in costs.forwards})


def c_of(costs: StepCosts, name: str, source: SourceRecord) -> float:
    """c of a source that drafted: the mean over a draft of its usual levels and nodes."""
    return costs.c(name, source.depth / source.drafts, (source.nodes - source.depth) / source.drafts)


def step_costs(result: BenchResult) -> StepCosts | None:
    """What a step cost: forwards and drafts as measured apart from the runs, and what a step took outside them as the
    runs showed it, the plain arm at one row and the speculative arm at its mean rows. None where nothing was
    measured."""
    if result.costs is None:
        return None
    plain = [each for each in result.trials if each.arm == PLAIN]
    fast = [each for each in result.trials if each.arm == FAST]
    steps = sum(run.forwards for each in fast for run in each.runs)
    drafted = sum(run.drafted for each in fast for run in each.runs)
    overhead = _besides(plain)
    further = max(0.0, _besides(fast) - overhead) * steps / drafted if drafted else 0.0
    return replace(result.costs, overhead=overhead, row_overhead=further)


def _besides(trials: Sequence[Trial]) -> float:
    """Seconds of a step beside forward and draft, in the mean."""
    runs = [run for each in trials for run in each.runs]
    busy = sum(run.parts["verify"] + run.parts["draft"] for run in runs)
    steps = sum(run.forwards + run.prefills for run in runs)
    return max(0.0, sum(each.seconds for each in trials) - busy) / steps if steps else 0.0


def _predicted(result: BenchResult, trials: Sequence[Trial], k: int, longest: int) -> float:
    """E(K) over what a round costs, where each source drafts in as many of the steps as in the longest arm."""
    costs = step_costs(result)
    if costs is None or why_not_predicted(result):
        return math.nan
    arm = [run for each in trials if each.arm == arm_of(longest) for run in each.runs]
    plain = [each for each in trials if each.arm == PLAIN]
    forwards = sum(run.forwards for run in arm)
    tokens = float(theory.expected_tokens_by_position(_chances(arm, longest), k))
    cost, drafting = 0.0, 0.0
    for name, source in added(each for run in arm for each in run.sources.items()).items():
        share, length = source.drafts / forwards, min(float(k), source.nodes / source.drafts)
        drafting += share
        # What came while others drafted it has yet to read
        reading = costs.drafts[name].read * tokens * (1 / share - 1)
        cost += share * (costs.step(1 + round(length), drafts={name: (length, 1)}) + reading) / costs.plain
    gain = tokens / (cost + max(0.0, 1 - drafting))  # the steps without a draft are plain ones
    first = sum(run.first for each in plain for run in each.runs) / sum(each.seconds for each in plain)
    return 1 / (first + (1 - first) / gain)


def _chances(runs: Sequence[RunRecord], most: int) -> list[float]:
    """Conditional acceptance by position, in all steps: of those that got so far, those that got one further."""
    reached, found = sum(run.forwards for run in runs), []
    for position in range(most):
        accepted = sum(run.kept[position] for run in runs if position < len(run.kept))
        found.append(accepted / reached if reached else 0.0)
        reached = accepted
    return found
