"""Replica against replica: under the same traffic, does one accept otherwise than the rest, beyond chance?

Tokens of one request share its text, so tokens are no independent trials. Batches of time are taken as the unit
instead: the variance of an acceptance is the one between batches (a ratio's, linearised), never below that of
independent trials. Batches are merged in pairs as they become many, so that they outlast requests and topics.

A test is made each time when there are `BATCHES` of them, that is after 1, 2, 4, 8 ... times the time to the first one.
The j-th time takes 6/(pi j)^2 of the error, divided among positions and replicas: over all time, a false alarm among
alike replicas has at most the probability `ERROR`, as far as the distribution of the ratio is Student's.

Source: method of batch means, Distribution, "Simulation Modeling and Analysis", section 9.5.3; ratio estimator,
Cochran, "Sampling Techniques", section 6.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from headstart.fleet.watch.counters import Counters, record_of, restored
from headstart.theory.statistics import student

BATCHES = 32
ERROR = 0.01
RELEVANT = 0.01
"""A difference must be proved to exceed this much acceptance; two replicas are never quite the same."""

Counts = Sequence[tuple[int, int]]
"""(tested, accepted) by position."""


def tests_of(window: Counters) -> list[tuple[int, int]]:
    """(tested, accepted) by position, as far as the tests are known."""
    found = []
    for place, accepted in enumerate(window.accepted_per_position):
        tested = window.tested(place)
        if tested is None:
            break
        found.append((tested, min(accepted, tested)))
    return found


class Unlike(NamedTuple):
    """A replica that accepts otherwise than the others together, at a position."""

    replica: str
    position: int
    """From 1."""
    value: float
    rest: float
    """The acceptance of the other replicas."""
    low: float
    """The lower end of the difference's interval, after all corrections."""
    high: float

    @property
    def words(self) -> str:
        return (
            f"accepts {self.value:.1%} at position {self.position}, the other replicas {self.rest:.1%} "
            f"(difference {self.low:+.1%} to {self.high:+.1%}, corrected for all looks and positions)"
        )


@dataclass(slots=True)
class Comparison:
    """The batches of the replicas of one model. All of them have the same replicas; others begin it again."""

    batches: list[dict[str, list[tuple[int, int]]]] = field(default_factory=list)
    """By replica, what was tested and accepted by position."""
    merged: int = 1
    """How many windows make a batch."""
    pending: int = 0
    """How many windows the last batch has so far."""
    tests: int = 0
    found: tuple[Unlike, ...] = ()
    """Of the last test."""

    def add(self, window: Mapping[str, Counts]) -> None:
        """A window of all replicas; those of a window in which one was idle are no comparison and are left out."""
        if len(window) < 2 or any(not counts or not counts[0][0] for counts in window.values()):
            return
        depth = min(len(counts) for counts in window.values())
        counted = {name: list(counts[:depth]) for name, counts in window.items()}
        if self.batches and (set(self.batches[0]) != set(counted) or _depth(self.batches[0]) != depth):
            self.batches, self.merged, self.pending, self.tests, self.found = [], 1, 0, 0, ()
        if self.batches and self.pending < self.merged:
            self.batches[-1] = _sum(self.batches[-1], counted)
        else:
            self.batches.append(counted)
            self.pending = 0
        self.pending += 1
        if len(self.batches) == BATCHES and self.pending == self.merged:
            self.tests += 1
            self.found = tuple(unlike(self.batches, ERROR * 6 / (math.pi * self.tests) ** 2))
            pairs = zip(self.batches[::2], self.batches[1::2], strict=True)
            self.batches = [_sum(one, other) for one, other in pairs]
            self.merged *= 2
            self.pending = self.merged


@dataclass(slots=True)
class Comparisons:
    """The comparison of each group of servers: those of the same kind that serve the same model."""

    groups: dict[str, Comparison] = field(default_factory=dict)

    def observe(self, servers: Mapping[str, Counters], windows: Mapping[str, Counters]) -> None:
        """Take a window of each server that was seen twice.

        A group is compared in windows that all its servers have. A replica that was started again may have another
        drafter, so that its group is compared from there on.

        Args:
            servers: what each server counted at its last look, by address; it says which group it is in.
            windows: what each server counted between its last two looks, where there were two.
        """
        names: dict[str, list[str]] = {}
        for server, counters in servers.items():
            names.setdefault(f"{counters.kind} {counters.model}", []).append(server)
        for group, members in names.items():
            known = {server: windows[server] for server in members if server in windows}
            if any(window.restarts for window in known.values()):
                self.groups.pop(group, None)
            if len(known) == len(members) > 1:
                window = {server: tests_of(each) for server, each in known.items()}
                self.groups.setdefault(group, Comparison()).add(window)

    def of(self, server: str) -> list[Unlike]:
        """Where this server was found unlike the others of its group."""
        return [each for comparison in self.groups.values() for each in comparison.found if each.replica == server]

    def record(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {group: record_of(comparison) for group, comparison in self.groups.items()}

    @classmethod
    def restore(cls, record: Mapping[str, Any]) -> Comparisons:
        """What `record` has written."""
        return cls({group: restored(Comparison, each) for group, each in record.items()})


def unlike(batches: Sequence[Mapping[str, Counts]], error: float) -> list[Unlike]:
    """The replicas that accept otherwise than the rest, by more than `RELEVANT`; the worst first."""
    names = sorted(batches[0])
    depth = _depth(batches[0])
    counts = np.array([[batch[name] for name in names] for batch in batches], dtype=float)  # [batches, names, depth, 2]
    judged = names if len(names) > 2 else names[:1]  # of two, one comparison is enough
    t = student(len(batches) - 1, 1 - error / (2 * depth * len(judged)))
    found = []
    for index, name in enumerate(judged):
        own, rest = counts[:, index], counts.sum(1) - counts[:, index]
        for position in range(depth):
            (value, variance), (other, other_variance) = _share(own[:, position]), _share(rest[:, position])
            reach = t * math.sqrt(variance + other_variance)
            difference = value - other
            if math.isfinite(reach) and abs(difference) - reach > RELEVANT:
                each = Unlike(name, position + 1, value, other, difference - reach, difference + reach)
                found.append(each if difference < 0 or len(names) > 2 else _turned(each, names[1]))
    return sorted(found, key=lambda each: each.value - each.rest)


def _share(counts: Any) -> tuple[float, float]:
    """The acceptance of counts [batches, 2], and its variance."""
    tested, accepted = counts[:, 0], counts[:, 1]
    total = float(tested.sum())
    if total <= 0:
        return math.nan, math.nan
    share = float(accepted.sum()) / total
    between = float(((accepted - share * tested) ** 2).sum()) * len(counts) / (len(counts) - 1) / total**2
    smooth = (float(accepted.sum()) + 1) / (total + 2)
    return share, max(between, smooth * (1 - smooth) / total)


def _turned(each: Unlike, other: str) -> Unlike:
    """Of two replicas, the same finding about the one that accepts less."""
    return Unlike(other, each.position, each.rest, each.value, -each.high, -each.low)


def _sum(one: Mapping[str, Counts], other: Mapping[str, Counts]) -> dict[str, list[tuple[int, int]]]:
    return {
        name: [(a + c, b + d) for (a, b), (c, d) in zip(counts, other[name], strict=True)]
        for name, counts in one.items()
    }


def _depth(batch: Mapping[str, Counts]) -> int:
    return len(next(iter(batch.values())))
