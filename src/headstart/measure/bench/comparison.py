"""Two bench results: what became slower or faster beyond noise, and what was different about the runs.

Compared are the prompts that both have, recognised by category and hash, paired. Speedup and tokens per target forward
are ratios within one result: a machine that was busier for one of them slowed down its plain arm too. Tokens per
second are the machine's as well; they are shown, with plain's beside them, and decide nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import InvalidFile
from headstart.measure.bench.result import FAST, PLAIN, BenchResult
from headstart.measure.bench.summary import OVERALL, paired, unit_forwards, unit_times
from headstart.theory.statistics import Interval, bootstrap

Judgement = Literal["slower", "faster", "no difference"]
_ALWAYS_DIFFERENT = ("command", "date", "load")  # parts of the provenance that differ between any two runs
_MUCH = 0.1  # of plain's tokens per second: from here on the machine counts as another one


@dataclass(frozen=True, slots=True)
class Change:
    """B's figure over A's, and both."""

    before: float
    after: float
    ratio: Interval

    @property
    def judgement(self) -> Judgement:
        """Beyond noise: the interval leaves out 1. Where there is no interval (one unit), there is no difference."""
        if not self.ratio.known or self.ratio.low <= 1 <= self.ratio.high:
            return "no difference"
        return "slower" if self.ratio.high < 1 else "faster"


@dataclass(frozen=True, slots=True)
class Changes:
    """One category, or all of them."""

    category: str
    units: int
    speedup: Change
    tokens_per_forward: Change
    fast: Change
    plain: Change


@dataclass(frozen=True, slots=True)
class Comparison:
    """rows: overall, then by category if there are several. settings: name to (first's, second's) where they differ.
    missing: how many prompts only one of the two has. incomplete: which of them was interrupted."""

    rows: tuple[Changes, ...]
    settings: Mapping[str, tuple[Any, Any]]
    prompts: int
    missing: int
    incomplete: tuple[str, ...]
    level: float

    @property
    def verdict(self) -> Judgement:
        """Slower if speedup is, overall or in any category; else faster if it is anywhere."""
        found = {row.speedup.judgement for row in self.rows}
        return "slower" if "slower" in found else "faster" if "faster" in found else "no difference"

    @property
    def words(self) -> str:
        return "no difference beyond noise" if self.verdict == "no difference" else f"{self.verdict} beyond noise"

    @property
    def machine(self) -> str:
        """What plain decoding shows of the machine, or "" if it went about as fast in both."""
        change = self.rows[0].plain.ratio.value - 1
        if abs(change) < _MUCH:
            return ""
        return (
            f"Plain decoding was {abs(change):.0%} {'faster' if change > 0 else 'slower'} in the second result: the "
            "machine, or the target's own forward, was not the same. Tokens per second do not compare; speedups do."
        )

    def below(self, percent: float) -> list[Changes]:
        """Rows whose speedup is beyond noise below so many percent of what it was."""
        limit = percent / 100
        return [row for row in self.rows if row.speedup.judgement == "slower" and row.speedup.ratio.value < limit]


def compare(first: BenchResult, second: BenchResult, *, level: float = 0.95, resamples: int = 2000) -> Comparison:
    """What changed from the first result to the second. The level holds for all categories together (Bonferroni).

    Raises:
        InvalidFile: no finished prompt in common.
    """
    one, two = _rows(first), _rows(second)
    shared = sorted(one.keys() & two.keys())
    if not shared:
        raise InvalidFile(
            "the two results have no prompt in common, or none was finished",
            hint="bench the same prompts, with the same --limit and --batch-size, both times",
        )
    categories = list(dict.fromkeys(category for category, _ in shared))
    groups = {OVERALL: shared}
    if len(categories) > 1:
        groups |= {name: [unit for unit in shared if unit[0] == name] for name in categories}
    each = 1 - (1 - level) / len(groups)
    ours, theirs = _prompts(one), _prompts(two)
    return Comparison(
        rows=tuple(
            _changes(name, np.array([[*one[unit], *two[unit]] for unit in units]), each, resamples)
            for name, units in groups.items()
        ),
        settings=dict(_differences(first, second)),
        prompts=len(ours & theirs),
        missing=len(ours ^ theirs),
        incomplete=tuple(n for n, side in (("first", first), ("second", second)) if not side.complete),
        level=level,
    )


Unit = tuple[str, str]
"""Category, and the hashes of the prompts that ran together."""


def _rows(result: BenchResult) -> dict[Unit, list[float]]:
    """By unit: [plain seconds, fast seconds, plain tokens, fast tokens, fast forwards], see `unit_times`."""
    names, trials = _names(result), paired(result.trials)
    repetitions = Counter(each.unit for each in trials if each.arm == PLAIN)
    plain, fast = unit_forwards(trials, PLAIN), unit_forwards(trials, FAST)
    return {
        names[unit]: [*times, float(plain[unit][0]) / repetitions[unit], *fast[unit]]
        for unit, times in unit_times(trials, (PLAIN, FAST)).items()
    }


def _prompts(units: Iterable[Unit]) -> set[Unit]:
    return {(category, digest) for category, digests in units for digest in digests.split("+")}


def _names(result: BenchResult) -> list[Unit]:
    """What each unit is called in both results. The same prompt twice is two units."""
    found: list[Unit] = []
    seen = Counter[Unit]()
    for number, unit in enumerate(result.units):
        name = (result.category(number), "+".join(result.prompts[index].digest for index in unit))
        seen[name] += 1
        found.append(name if seen[name] == 1 else (name[0], f"{name[1]}#{seen[name]}"))
    return found


def _changes(name: str, rows: NDArray[Any], level: float, resamples: int) -> Changes:
    """rows: of each unit those of `_rows`, the first result's and the second's side by side."""

    def change(figure: Any) -> Change:
        def quotient(chosen: NDArray[Any]) -> float:
            before, after = figure(chosen[:, :5].sum(axis=0)), figure(chosen[:, 5:].sum(axis=0))
            return float(after / before) if before else float("nan")

        before, after = (float(figure(part.sum(axis=0))) for part in (rows[:, :5], rows[:, 5:]))
        return Change(before, after, bootstrap(rows, quotient, level=level, resamples=resamples, scale="log"))

    return Changes(
        category=name,
        units=len(rows),
        speedup=change(lambda total: total[0] / total[1]),
        tokens_per_forward=change(lambda total: total[3] / total[4]),
        fast=change(lambda total: total[2] / total[1]),
        plain=change(lambda total: total[2] / total[0]),
    )


def _differences(first: BenchResult, second: BenchResult) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Settings, engine and provenance, flat, where they are not the same."""
    sides = []
    for result in (first, second):
        provenance = {k: v for k, v in result.provenance.items() if k not in _ALWAYS_DIFFERENT}
        sides.append(dict(_flat({"": {**result.settings}, "engine": {**result.engine}, "made with": provenance})))
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        pair = (sides[0].get(name), sides[1].get(name))
        if pair[0] != pair[1]:
            yield name, pair


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        full = f"{before} {name}".strip()
        if isinstance(value, Mapping):
            yield from _flat(value, full)
        else:
            yield full, value
