"""Has acceptance fallen? An e-detector on conditional acceptance by position, source and tag.

Tokens per forward are the wrong thing to watch: they move with the draft length, the load and the mix of requests. How
often a guess is right, given that all before it were, moves with drafter and text, if drafts are of one length.

Two levels: *suspected*, acceptance is under the baseline; *proved*, it is more than `drop` under it. While that is not
so, the mean number of windows until a level is raised is at least `mean_windows_to_false_alarm`. Assumed is that
windows come, given the past, with a mean of at least the baseline's lower end, and vary as those that were learnt from;
see the concept page "Drift" for what holds without that, and what was measured. No input or output: whoever has counts
gives them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import FiniteFloat, TypeAdapter, ValidationError

from headstart.base.as_json import first_problem
from headstart.base.errors import HeadstartError, InvalidFile
from headstart.base.options import values_of
from headstart.fleet.watch.drift.cells import Baseline, Cell, Expected, Group, Key, lengths_of, order, summed, varied
from headstart.fleet.watch.drift.evidence import Floats
from headstart.fleet.watch.drift.levels import CellState, Estimate, Level, Settings
from headstart.fleet.watch.drift.pool import Pool, PoolRecord
from headstart.theory.statistics import Interval

VERSION = 1
"""Of a detector's record."""
LONGER = 1.1
"""Drafts that are so many times as long as the longest learnt are not compared: pacing chose other guesses to test."""


class Detector:
    """Takes windows of counts and says whether acceptance has fallen.

    A window is whatever lies between two looks; empty ones do not count. A level that has been raised stays. It
    takes every cell it meets: one that `baseline` lacks is learnt from its first windows, and
    nothing is said of it until then.
    """

    def __init__(self, baseline: Baseline | None = None, settings: Settings | None = None) -> None:
        self.baseline = baseline or Baseline()
        self.settings = settings or Settings()
        self.windows = 0
        """That were taken, without empty ones."""
        self._pools: list[Pool] = []
        self._since: dict[Level, int] = {}
        self._longest: dict[Group, float] = {}
        """By source and tag, the longest drafts of the windows learnt from, where the length varied."""
        self._too_long: frozenset[Group] = frozenset()

    # -- what there is to know --------------------------------------------------------------------------------------

    @property
    def level(self) -> Level:
        return max(self._since, default=Level.NONE)

    @property
    def since(self) -> int | None:
        """The window that raised the level, or None."""
        return self._since.get(self.level)

    @property
    def learning(self) -> bool:
        """Whether nothing is watched yet."""
        return all(pool.learning for pool in self._pools)

    @property
    def evidence(self) -> dict[Level, float]:
        """By level, how many windows one would wait for as much without a fall, on average, or longer."""
        return {level: _power(self._log_evidence(level)) for level in (Level.SUSPECTED, Level.PROVED)}

    @property
    def cells(self) -> tuple[CellState, ...]:
        """All cells, those with the most evidence first."""
        found = [self._cell(pool, i) for pool in self._pools for i in range(len(pool.keys))]
        return tuple(sorted(found, key=lambda c: (-c.evidence, c.tag, c.source, c.depth or 0, c.position)))

    @property
    def estimate(self) -> Estimate | None:
        """How large the fall is now, or None while nothing is watched."""
        watched = [pool for pool in self._pools if not pool.learning and pool.keys]
        if not watched:
            return None
        pool = max(watched, key=lambda each: _log_sum([each.logs[0]]))
        return Estimate(pool.drop(None), int(pool.whole_recent.began[0]), self.cells)

    # -- what happens -----------------------------------------------------------------------------------------------

    def observe(self, cells: Sequence[Cell], depth: float | None = None) -> Level:
        """Take a window.

        Args:
            cells: its counts, in any order.
            depth: drafted tokens per draft, where the length varied and counters tell. Without it the length is worked
                out from how many accepted guesses had a successor that was tested.
        """
        counts = summed(cells)
        if not counts:
            return self.level
        self.windows += 1
        lengths = dict.fromkeys(varied(counts), depth) if depth is not None else lengths_of(counts)
        settled = {group for pool in self._pools if not pool.learning for group in pool.groups}
        self._too_long = frozenset(
            g for g in settled & lengths.keys() if lengths[g] > LONGER * self._longest.get(g, math.inf)
        )
        for group in lengths.keys() - settled:
            self._longest[group] = max(self._longest.get(group, 0.0), lengths[group])
        self._meet([key for key in counts if not any(key in pool.keys for pool in self._pools)])
        left_out = [frozenset() if pool.learning else self._too_long for pool in self._pools]
        windows = [(pool, *pool.counts(counts, none)) for pool, none in zip(self._pools, left_out, strict=True)]
        watched = [held for held in windows if not held[0].learning and held[1].any()]
        if watched:
            active = sum(int((tested > 0).sum()) for _, tested, _ in watched)
            for pool, tested, accepted in watched:
                pool.watch(tested, accepted, self.windows, 0.5 / active, 0.5 / len(watched))
        for pool, tested, accepted in windows:
            if pool.learning and tested.any():
                self._learn(pool, tested, accepted)
        return self._judge()

    def _meet(self, keys: Sequence[Key]) -> None:
        """Begin to learn cells that are new."""
        known = self.baseline.cells
        for is_given in (True, False):
            some = sorted((key for key in keys if (key in known) is is_given), key=order)
            if some:
                given = [known[key] for key in some] if is_given else None
                self._pools.append(Pool(some, given, self._floors, self.settings.least_spread))

    @property
    def _floors(self) -> tuple[float, float]:
        return 1.0, 1.0 - self.settings.drop

    def _learn(self, pool: Pool, tested: Floats, accepted: Floats) -> None:
        pool.take(tested, accepted)
        if not pool.learnt(self.settings.learning):
            return
        pool.fit(self.windows)
        if not pool.keys:
            self._pools.remove(pool)

    def _judge(self) -> Level:
        needed = math.log(self.settings.mean_windows_to_false_alarm)
        for level in (Level.SUSPECTED, Level.PROVED):
            if self._log_evidence(level) >= needed:
                self._since.setdefault(level, self.windows)
        return self.level

    def _log_evidence(self, level: Level) -> float:
        return _log_sum([pool.logs[int(level) - 1] for pool in self._pools])

    def _cell(self, pool: Pool, i: int) -> CellState:
        key = pool.keys[i]
        if pool.bets is None:
            return CellState(*key, "learning", math.nan, Interval(math.nan), 0.0, self.windows)
        state = "longer drafts" if key.depth is None and (key.source, key.tag) in self._too_long else "watched"
        evidence = _power(_log_sum([pool.bets.cell_logs[0, i]]))
        began, tested = int(pool.recent.began[i]), int(pool.recent.tested[i].sum())
        return CellState(*key, state, pool.expected[i].value, pool.drop(i), evidence, began, tested)

    # -- the state --------------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """All of it, as values of JSON; `restore` goes on from there."""
        found = _Record(
            settings=values_of(self.settings),
            baseline=list(self.baseline.cells.items()),
            windows=self.windows,
            since={level.text: window for level, window in self._since.items()},
            longest=sorted((*group, length) for group, length in self._longest.items()),
            too_long=sorted(self._too_long),
            pools=[pool.record() for pool in self._pools],
        )
        return dict(_RECORD.dump_python(found, mode="json"))

    @classmethod
    def restore(cls, record: Mapping[str, Any]) -> Detector:
        """The detector of a record.

        Raises:
            InvalidFile: the record is damaged, or of a version this headstart does not know.
        """
        hint = "move the file away; the detector then learns anew"
        version = record.get("headstart_drift") if isinstance(record, Mapping) else None
        if version != VERSION:
            raise InvalidFile(f"no drift record of version {VERSION}: it says {version!r}", hint=hint)
        try:
            kept = _RECORD.validate_python(record)
            found = cls(Baseline(dict(kept.baseline)), Settings(**kept.settings))
            found.windows = kept.windows
            found._since = {Level[name.upper()]: window for name, window in kept.since.items()}
            found._longest = {(source, tag): length for source, tag, length in kept.longest}
            found._too_long = frozenset(kept.too_long)
            least = found.settings.least_spread
            found._pools = [Pool.restored(each, found._floors, least) for each in kept.pools]
        except ValidationError as error:
            raise InvalidFile(f"the drift record is damaged: {first_problem(error)}", hint=hint) from error
        except (KeyError, TypeError, ValueError, HeadstartError) as error:
            raise InvalidFile(f"the drift record is damaged: {error}", hint=hint) from error
        return found


@dataclass(frozen=True, slots=True)
class _Record:
    """The state of a detector."""

    settings: dict[str, Any]
    baseline: list[tuple[Key, Expected]]
    windows: int
    since: dict[str, int]
    longest: list[tuple[str, str, FiniteFloat]]
    too_long: list[Group]
    pools: list[PoolRecord]
    headstart_drift: int = VERSION


_RECORD = TypeAdapter(_Record)


def _log_sum(parts: Sequence[Floats]) -> float:
    """log of the sum of exponentials; minus infinity without any."""
    logs = np.concatenate([*parts, np.full(1, -np.inf)])
    return float(np.logaddexp.reduce(logs))


def _power(log: float) -> float:
    return math.exp(min(log, 700.0))
