"""What benchmarks/peers.py measures: first which setting of each engine is best, then the best ones, taking turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from configurations import Absent, Configuration
from workers import Sample

Prompts = list[list[int]]
Role = tuple[str, str, str]
Seat = Role | Configuration
"""Who takes turns: a role's best setting after a selection; every setting by itself where they were chosen before."""


class Engine(Protocol):
    facts: dict[str, Any]

    def complete(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Sample: ...
    def memory(self) -> int: ...
    def stop(self) -> None: ...


Start = Callable[[Configuration], Engine]
WARM_UP_TOKENS = 24


@dataclass(frozen=True)
class Work:
    """Calls of one batch size, each with that many prompts."""

    batch: int
    calls: tuple[Prompts, ...]
    new_tokens: int

    def warm_up(self, engine: Engine) -> None:
        """Not counted."""
        engine.complete(self.calls[0], min(WARM_UP_TOKENS, self.new_tokens))

    def run(self, engine: Engine) -> list[Sample]:
        return [engine.complete(prompts, self.new_tokens) for prompts in self.calls]


def speed(samples: Iterable[Sample]) -> float:
    """Tokens per second of all samples together."""
    known = list(samples)
    return sum(s.new_tokens for s in known) / sum(s.seconds for s in known)


@dataclass(frozen=True)
class Trial:
    """A setting that was tried: tokens/s at each batch size, bytes of memory, or why it could not run."""

    configuration: Configuration
    speeds: dict[int, float] = field(default_factory=dict)
    memory: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    absent: str | None = None


Selected = dict[tuple[Seat, int], Trial]
"""With which setting, by seat and batch size."""


def fits(configuration: Configuration, work: Work) -> bool:
    return work.batch == 1 or configuration.batched


def trial(start: Start, configuration: Configuration, works: Sequence[Work]) -> Trial:
    """One setting by itself, in a process started for it and stopped after it."""
    speeds: dict[int, float] = {}
    try:
        engine = start(configuration)
    except Absent as reason:
        return Trial(configuration, absent=str(reason))
    try:
        for work in works:
            if fits(configuration, work):
                work.warm_up(engine)
                speeds[work.batch] = speed(work.run(engine))
        return Trial(configuration, speeds, engine.memory(), engine.facts)
    except Absent as reason:
        return Trial(configuration, speeds, engine.memory(), engine.facts, str(reason))
    finally:
        engine.stop()


def select(trials: Iterable[Trial]) -> Selected:
    """The fastest setting for each engine, precision, mode and batch size, of those that ran at that size."""
    best: Selected = {}
    for each in trials:
        for batch, found in each.speeds.items():
            key = each.configuration.role, batch
            if key not in best or found > best[key].speeds[batch]:
                best[key] = each
    return best


def in_order(selected: Selected) -> list[Trial]:
    """So that rivals stand together: by precision, plain ones last, then the best of every engine, the second, ..."""
    ranks: dict[Configuration, int] = {}
    for (_, batch), each in selected.items():
        rivals = [t for (_, b), t in selected.items() if b == batch and _side(t) == _side(each)]
        rank = sum(t.speeds[batch] > each.speeds[batch] for t in rivals)
        ranks[each.configuration] = min(rank, ranks.get(each.configuration, rank))
    trials = {each.configuration: each for each in selected.values()}
    return [trials[c] for c in sorted(ranks, key=lambda c: (c.precision, c.mode == "plain", ranks[c]))]


def _side(each: Trial) -> tuple[str, str]:
    return each.configuration.engine, each.configuration.precision


def heats(trials: Iterable[Trial], room: int) -> list[list[Configuration]]:
    """Groups that fit into `room` bytes together, in order; one group if all do."""
    groups: list[list[Configuration]] = []
    left = 0
    for each in trials:
        if not groups or each.memory > left:
            groups.append([])
            left = room
        groups[-1].append(each.configuration)
        left -= each.memory
    return groups


@dataclass
class Rounds:
    """samples[seat, batch][round][call]; failures: what a worker said when it failed, by configuration.

    finished: rounds in which every engine had its turn.
    """

    samples: dict[tuple[Seat, int], list[list[Sample]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    finished: int = 0

    def complete_rows(self, rounds: int, works: Sequence[Work]) -> dict[tuple[Seat, int], list[list[Sample]]]:
        """Those that answered every call of every round."""
        calls = {work.batch: len(work.calls) for work in works}
        return {
            (seat, batch): rows
            for (seat, batch), rows in ((key, rows[:rounds]) for key, rows in self.samples.items())
            if len(rows) == rounds and all(len(row) == calls[batch] for row in rows)
        }


class Course:
    """Runs the rounds. Workers stay up if all fit into memory at once; otherwise each heat starts anew each round."""

    def __init__(self, start: Start, selected: Selected, works: Sequence[Work], room: int) -> None:
        self.start = start
        self.works = works
        self.wanted = {key: each.configuration for key, each in selected.items()}
        self.heats = heats(in_order(selected), room)
        self.result = Rounds()
        self.facts: dict[Configuration, dict[str, Any]] = {}
        self._up: dict[Configuration, Engine] = {}

    def run(self, rounds: int, watch: Callable[[Sequence[Any]], Iterable[Any]] = iter) -> Rounds:
        """Interrupted (Ctrl-C, SIGTERM), it gives the rounds that were finished, if there are any."""
        turns = [(number, heat) for number in range(rounds) for heat in self.heats]
        try:
            for number, heat in watch(turns):
                if len(self.heats) > 1:
                    self._stop_all()
                self._start(heat)
                for work in self.works:
                    self._interleave(number, heat, work)
                if heat is self.heats[-1]:
                    self.result.finished = number + 1
        except (KeyboardInterrupt, SystemExit):
            if not self.result.finished:
                raise
        finally:
            self._stop_all()
        return self.result

    def _start(self, heat: Sequence[Configuration]) -> None:
        for configuration in heat:
            if configuration not in self._up and str(configuration) not in self.result.failures:
                try:
                    self._up[configuration] = self.start(configuration)
                    self.facts[configuration] = self._up[configuration].facts
                    for work in self.works:
                        if self._seats(configuration, work):
                            work.warm_up(self._up[configuration])
                except Absent as reason:
                    self._failed(configuration, reason)

    def _interleave(self, number: int, heat: Sequence[Configuration], work: Work) -> None:
        """Each call goes to every engine before the next call, in an order that rotates."""
        taking_part = [c for c in heat if self._seats(c, work)]
        for index, prompts in enumerate(work.calls):
            first = (number + index) % max(1, len(taking_part))
            for configuration in (*taking_part[first:], *taking_part[:first]):
                if configuration in self._up:
                    try:
                        sample = self._up[configuration].complete(prompts, work.new_tokens)
                    except Absent as reason:
                        self._failed(configuration, reason)
                    else:
                        for seat in self._seats(configuration, work):
                            rows = self.result.samples.setdefault((seat, work.batch), [])
                            rows.extend([] for _ in range(number + 1 - len(rows)))
                            rows[number].append(sample)

    def _seats(self, configuration: Configuration, work: Work) -> list[Seat]:
        return [seat for (seat, batch), c in self.wanted.items() if c == configuration and batch == work.batch]

    def _failed(self, configuration: Configuration, reason: Absent) -> None:
        self.result.failures[str(configuration)] = str(reason)
        if configuration in self._up:
            self._up.pop(configuration).stop()

    def _stop_all(self) -> None:
        while self._up:
            self._up.popitem()[1].stop()
