"""Figures of a bench, overall and by category: what the table, the page and the comparison show.

Speedup is the ratio of seconds per token, plain over speculative, on the same units: of each unit the median over its
repetitions (a hiccup of the machine spoils one), weighted by its tokens, so that the ratio is that of the time all
texts take. At batch size 1 a unit is a prompt; at batch size N it is a batch of N prompts that run at once, its seconds
those of the whole batch, and the speedup that of throughput. Intervals resample units, both arms of one together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.base.as_json import as_json, picked
from headstart.measure.bench.result import FAST, PLAIN, BenchResult, Record, SourceRecord, Trial, added
from headstart.theory.statistics import Interval, bootstrap, proportion, quantile

OVERALL = "overall"
SHARES = {"P50": 0.5, "P90": 0.9, "P99": 0.99}


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One way of decoding. Quantiles are in seconds, by name (`SHARES`), NaN where there is nothing to count."""

    tokens: int
    seconds: float
    forwards: int
    first_token: Mapping[str, float]
    """Time to the first token, by request."""
    per_output_token: Mapping[str, float]
    """Time per output token after the first chunk, by request."""
    gap: Mapping[str, float]
    """Time between two chunks."""
    time_split: Mapping[str, float]
    """Shares of the wall clock, adding up to 1; "other" is text, events and the caller."""
    joules_per_token: float | None
    """None where the machine has no counter."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def record(self) -> Record:
        return {**as_json(self), "tokens_per_second": self.tokens_per_second}


@dataclass(frozen=True, slots=True)
class Position:
    """Conditional acceptance of a draft position (1 is the first): of those judged with all before them accepted.

    The interval takes guesses as independent; guesses of one text are not quite, so it is a little short.
    """

    position: int
    judged: int
    accepted: int
    share: Interval


@dataclass(frozen=True, slots=True)
class Figures:
    """One category, or all of them.

    alpha: accepted of judged draft tokens, the one acceptance that fits all positions best; NaN without drafts. depth:
    mean levels of a draft, where there was one. differing: runs whose text is not the plain run's; None where texts
    need not be the same. off: runs that speculation was off for at their end, by reason.
    """

    category: str
    prompts: int
    units: int
    trials: int
    speedup: Interval
    tokens_per_forward: Interval
    plain: ArmFigures
    fast: ArmFigures
    positions: tuple[Position, ...]
    alpha: float
    depth: float
    sources: Mapping[str, SourceRecord]
    runs: int
    differing: int | None
    off: Mapping[str, int]

    def record(self) -> Record:
        """As JSON values; what is unknown is None."""
        shown = ("category", "prompts", "speedup", "tokens_per_forward", "alpha", "depth", "differing", "off")
        positions = [picked(p, "position", "judged", "accepted") | as_json(p.share) for p in self.positions]
        arms = {PLAIN: self.plain.record(), FAST: self.fast.record()}
        return {**as_json(picked(self, *shown)), "acceptance": positions, **arms}


def summarise(result: BenchResult, *, level: float = 0.95) -> list[Figures]:
    """Figures of everything, then of each category if there are several. Units without a finished pair count nowhere.

    Empty where nothing was finished.
    """
    trials = paired(result.trials)
    if not trials:
        return []
    found = [_figures(OVERALL, result, trials, level)]
    categories = list(dict.fromkeys(result.category(each.unit) for each in trials))
    if len(categories) > 1:
        for category in categories:
            found.append(_figures(category, result, [r for r in trials if result.category(r.unit) == category], level))
    return found


def paired(trials: Iterable[Trial]) -> list[Trial]:
    """Those of a unit and repetition that went through all arms: an interrupted one has no partner."""
    trials = list(trials)
    arms = {each.arm for each in trials}
    seen = defaultdict[tuple[int, int], set[str]](set)
    for each in trials:
        seen[each.unit, each.repetition].add(each.arm)
    return [each for each in trials if each.tokens and seen[each.unit, each.repetition] == arms]


def unit_times(trials: Iterable[Trial], arms: Sequence[str]) -> dict[int, NDArray[Any]]:
    """By unit, for each of the arms: the seconds its text takes (median seconds per token, times plain's tokens)."""
    rates: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    tokens: dict[int, list[int]] = defaultdict(list)
    for each in trials:
        rates[each.unit][each.arm].append(each.seconds / each.tokens)
        if each.arm == PLAIN:
            tokens[each.unit].append(each.tokens)
    return {
        unit: np.array([np.median(of_unit[arm]) for arm in arms]) * np.mean(tokens[unit])
        for unit, of_unit in sorted(rates.items())
        if all(arm in of_unit for arm in arms) and tokens[unit]
    }


def unit_forwards(trials: Iterable[Trial], arm: str) -> dict[int, NDArray[Any]]:
    """By unit: tokens and target forwards of the arm, all repetitions together."""
    found: dict[int, NDArray[Any]] = {}
    for each in trials:
        if each.arm == arm:
            counts = np.array([each.tokens, sum(run.forwards for run in each.runs)], dtype=float)
            found[each.unit] = found[each.unit] + counts if each.unit in found else counts
    return dict(sorted(found.items()))


def ratio(units: NDArray[Any]) -> float:
    """Sum of the first column over that of the second. units: [n, 2]."""
    above, below = units.sum(axis=0)
    return float(above / below) if below else float("nan")


def _figures(category: str, result: BenchResult, trials: Sequence[Trial], level: float) -> Figures:
    fast = [each for each in trials if each.arm == FAST]
    runs = [run for each in fast for run in each.runs]
    times = unit_times(trials, (PLAIN, FAST))
    forwards = unit_forwards(trials, FAST)
    tested = _columns(run.tested for run in runs)
    kept = _columns(run.kept for run in runs)
    sources = added(each for run in runs for each in run.sources.items())
    drafts = sum(source.drafts for source in sources.values())
    return Figures(
        category=category,
        prompts=len({run.prompt for run in runs}),
        units=len(times),
        trials=len(fast),
        speedup=bootstrap(list(times.values()), ratio, level=level, scale="log"),
        tokens_per_forward=bootstrap(list(forwards.values()), ratio, level=level, scale="log"),
        plain=arm_figures([each for each in trials if each.arm == PLAIN]),
        fast=arm_figures(fast),
        positions=tuple(
            Position(number, judged, accepted, proportion(accepted, judged, level))
            for number, (judged, accepted) in enumerate(zip(tested, kept, strict=True), start=1)
        ),
        alpha=sum(kept) / sum(tested) if sum(tested) else float("nan"),
        depth=sum(source.depth for source in sources.values()) / drafts if drafts else float("nan"),
        sources=sources,
        runs=len(runs),
        differing=sum(run.differs_at is not None for run in runs) if result.compared else None,
        off=dict(Counter(run.reason or "no reason given" for run in runs if not run.on)),
    )


def arm_figures(trials: Sequence[Trial]) -> ArmFigures:
    """Figures of trials that are all of one arm."""
    runs = [run for each in trials for run in each.runs]
    seconds = sum(each.seconds for each in trials)
    parts = {name: sum(run.parts[name] for run in runs) for name in (runs[0].parts if runs else ())}
    whole = max(seconds, sum(parts.values())) or 1.0
    shares = {name: value / whole for name, value in parts.items()}
    joules = [each.joules for each in trials if each.joules is not None]
    tokens = sum(each.tokens for each in trials)
    return ArmFigures(
        tokens=tokens,
        seconds=seconds,
        forwards=sum(run.forwards for run in runs),
        first_token=_quantiles([run.first for run in runs]),
        per_output_token=_quantiles([run.seconds_per_token for run in runs if run.seconds_per_token is not None]),
        gap=_quantiles([gap for run in runs for gap in run.gaps]),
        time_split=shares | {"other": 1 - sum(shares.values())},
        joules_per_token=sum(joules) / tokens if tokens and len(joules) == len(trials) else None,
    )


def _columns(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    return {name: quantile(values, share) for name, share in SHARES.items()}
