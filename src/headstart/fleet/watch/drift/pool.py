"""Cells that came up together: learnt together, then watched one by one and as a whole.

Each cell finds what happens to it alone, however small its share of the traffic is; the whole finds what happens to all
of them sooner. Shapes: C cells, L = 2 levels, D alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from pydantic import StrictBool

from headstart.fleet.watch.drift.cells import Expected, Group, Key, varied
from headstart.fleet.watch.drift.evidence import PATIENCE, Bets, Fit, Floats
from headstart.theory.statistics import Interval


@dataclass(slots=True)
class Recent:
    """Counts since a CUSUM was last 0, for R rows of C cells: the likeliest beginning of a fall, if there is one."""

    sums: Floats
    began: Floats
    tested: Floats
    accepted: Floats

    @classmethod
    def empty(cls, rows: int, cells: int, window: int) -> Recent:
        """Nothing yet, as of this window."""
        return cls(np.zeros(rows), np.full(rows, float(window)), np.zeros((rows, cells)), np.zeros((rows, cells)))

    def follow(self, growth: Floats, tested: Floats, accepted: Floats, held: Any, window: int) -> None:
        """growth [R], counts [R, C], held [R]: which rows had a window at all."""
        fresh = held & (self.sums <= 0)
        self.began[fresh] = window
        self.tested[fresh], self.accepted[fresh] = 0, 0
        self.sums = np.where(held, np.maximum(self.sums, 0) + growth, self.sums)
        self.tested += tested
        self.accepted += accepted

    def restore(self, record: Sequence[Any]) -> None:
        """Take the values of a record, of the shapes that are here; ValueError for others."""
        for field, values in zip(fields(self), record, strict=True):
            setattr(self, field.name, array_of(values, getattr(self, field.name).shape))


def array_of(values: Any, shape: tuple[int, ...], *, bounded: bool = True) -> Floats:
    """The array of a record, or ValueError for another shape or what is no number."""
    found = np.array(values, dtype=float)
    if found.size != math.prod(shape) or np.isnan(found).any() or (bounded and np.isinf(found).any()):
        raise ValueError("an array of another shape, or of what is no number")
    return found.reshape(shape)


LEAST_TESTED = 100
"""A cell with fewer tests in all windows that are learnt from is too rare to be watched, and is learnt again."""
_FOLLOWED = 2  # the alternative by which the beginning of a fall is dated
_Z = 1.96
_WHOLE = ("whole_spread", "whole_most", "whole_alike")


class Pool:
    """The cells `keys`; `given` is their baseline, or None if it is to be learnt.

    floors: [L], shares of the baseline's lower end that acceptance is compared with.
    """

    def __init__(
        self, keys: Sequence[Key], given: Sequence[Expected] | None, floors: Sequence[float], least_spread: float
    ) -> None:
        self.keys = list(keys)
        self.given = given is not None
        self.expected = list(given or ())
        self.history: list[tuple[list[int], list[int]]] = []
        """Of each window that is learnt from, tested and accepted by cell."""
        self.bets: Bets | None = None
        self._floors, self._least_spread = np.array(floors, dtype=float), least_spread
        self.recent, self.whole_recent = Recent.empty(0, 0, 0), Recent.empty(0, 0, 0)

    @property
    def learning(self) -> bool:
        return self.bets is None

    @property
    def groups(self) -> frozenset[Group]:
        """Whose drafts varied in length."""
        return frozenset(varied(self.keys))

    @property
    def logs(self) -> Floats:
        """[L, ...]: the evidence, to be added up."""
        return np.full((len(self._floors), 1), -np.inf) if self.bets is None else self.bets.logs

    def counts(self, counts: Mapping[Key, tuple[int, int]], left_out: frozenset[Group]) -> tuple[Floats, Floats]:
        """[C], [C]: tested and accepted; 0 for cells of varied length whose source and tag are left out."""
        shown = [
            (0, 0) if key.depth is None and (key.source, key.tag) in left_out else counts.get(key, (0, 0))
            for key in self.keys
        ]
        both = np.array(shown, dtype=float).reshape(len(shown), 2)
        return both[:, 0], both[:, 1]

    def take(self, tested: Floats, accepted: Floats) -> None:
        """Learn from a window."""
        self.history.append(([int(n) for n in tested], [int(n) for n in accepted]))

    def learnt(self, windows: int) -> bool:
        """Whether it can be watched: `windows` were learnt from, or more where neighbours are alike."""
        times = [each for each in PATIENCE if each * windows == len(self.history)]
        return times == [PATIENCE[-1]] or bool(times and Fit.of(*self._counted()).settled(len(self.history)))

    def _counted(self) -> tuple[Floats, Floats]:
        """[C, W], [C, W]: tested and accepted of the windows that are learnt from."""
        tested, accepted = (np.array([window[i] for window in self.history], dtype=float).T for i in (0, 1))
        return tested, accepted

    def fit(self, window: int) -> None:
        """End learning with this window. Cells that were too rare are dropped."""
        tested, accepted = self._counted()
        kept = (tested.sum(1) >= LEAST_TESTED) & ((tested > 0).sum(1) * 2 >= tested.shape[1])
        self.keys = [key for key, keep in zip(self.keys, kept, strict=True) if keep]
        tested, accepted = tested[kept], accepted[kept]
        fit = Fit.of(tested, accepted, self._least_spread)
        if self.given:
            self.expected = [each for each, keep in zip(self.expected, kept, strict=True) if keep]
        else:
            rows = zip(fit.value, fit.low, fit.error, tested.sum(1), strict=True)
            self.expected = [Expected(float(v), float(low), float(e), int(n)) for v, low, e, n in rows]
        self._begin(fit, window)
        if self.given:  # the windows had no part in the baseline, so they are evidence
            first = window + 1 - tested.shape[1]
            for i, (n, a) in enumerate(zip(tested.T, accepted.T, strict=True)):
                self.watch(n, a, first + i, 0.5 / max(1, int((n > 0).sum())), 0.5)
        self.history = []

    def _begin(self, fit: Fit, window: int) -> None:
        low = np.array([each.low for each in self.expected])
        self.bets = Bets(fit, self._floors[:, None] * low)
        cells = len(self.keys)
        self.recent, self.whole_recent = Recent.empty(cells, cells, window), Recent.empty(1, cells, window)

    def watch(self, tested: Floats, accepted: Floats, window: int, cell_start: float, whole_start: float) -> None:
        """Bet on a window [C]. The starts are shares of this window's beginning, of each cell and of the whole."""
        if self.bets is None or not tested.any():
            return
        growth, whole = self.bets.bet(tested, accepted, cell_start, whole_start)
        self.recent.follow(growth[0, :, _FOLLOWED], np.diag(tested), np.diag(accepted), tested > 0, window)
        self.whole_recent.follow(whole[:1, _FOLLOWED], tested[None], accepted[None], np.array([True]), window)

    def drop(self, cell: int | None) -> Interval:
        """By how much acceptance is under the baseline since the fall began, as a share of it; NaN without counts.

        cell: its number, or None for the whole. The interval (95%) is a description, not a proof: when the fall began
        is itself an estimate.
        """
        if self.bets is None:
            return Interval(math.nan)
        recent, row = (self.whole_recent, 0) if cell is None else (self.recent, cell)
        spread = float(self.bets.fit.whole_spread if cell is None else self.bets.fit.spread[cell])
        n, a = recent.tested[row], recent.accepted[row]
        value, errors = (np.array([getattr(each, name) for each in self.expected]) for name in ("value", "error"))
        expected = float((n * value).sum())
        if expected <= 0:
            return Interval(math.nan)
        error = math.hypot(math.sqrt(spread * float((n * value * (1 - value)).sum())), float((n * errors).sum()))
        found, half = 1 - float(a.sum()) / expected, _Z * error / expected
        return Interval(found, found - half, min(1.0, found + half))

    # -- the state --------------------------------------------------------------------------------------------------

    def record(self) -> PoolRecord:
        """As values of JSON take it; see `PoolRecord`."""
        found = PoolRecord(self.keys, self.given, self.expected, self.history)
        if self.bets is not None:
            fit = {each.name: getattr(self.bets.fit, each.name).tolist() for each in fields(Fit)}
            logs = _logs_out(self.bets.cell_logs), _logs_out(self.bets.whole_logs)
            recent = [
                [getattr(each, field.name).tolist() for field in fields(each)]
                for each in (self.recent, self.whole_recent)
            ]
            found = replace(found, fit=fit, cell_logs=logs[0], whole_logs=logs[1], recent=recent[0],
                            whole_recent=recent[1])  # fmt: skip
        return found

    @classmethod
    def restored(cls, record: PoolRecord, floors: Sequence[float], least_spread: float) -> Pool:
        """Raises TypeError or ValueError where a record is damaged."""
        cells, fitted = len(record.keys), record.fit is not None
        pool = cls(record.keys, record.expected if record.given else None, floors, least_spread)
        for tested, accepted in record.history:
            pool.take(array_of(tested, (cells,)), array_of(accepted, (cells,)))
        if len(record.expected) != (cells if fitted or record.given else 0):
            raise ValueError("expected acceptances of another number of cells")
        if record.fit is not None:
            pool.expected = record.expected
            shapes = {each.name: () if each.name in _WHOLE else (cells,) for each in fields(Fit)}
            pool._begin(Fit(**{name: array_of(record.fit.get(name), shape) for name, shape in shapes.items()}), 0)
            assert pool.bets is not None, "watching has begun"
            for name in ("cell_logs", "whole_logs"):
                shape = getattr(pool.bets, name).shape
                setattr(pool.bets, name, array_of(_logs_in(getattr(record, name)), shape, bounded=False))
            pool.recent.restore(record.recent)
            pool.whole_recent.restore(record.whole_recent)
        return pool


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """The state of a pool. fit, and what follows it: None and empty while it learns."""

    keys: list[Key]
    given: StrictBool
    expected: list[Expected]
    history: list[tuple[list[int], list[int]]]
    fit: dict[str, Any] | None = None
    cell_logs: Any = None
    whole_logs: Any = None
    recent: Sequence[Any] = ()
    whole_recent: Sequence[Any] = ()


def _logs_out(logs: Floats) -> Any:
    """JSON has no infinity: no evidence yet is null."""
    if logs.ndim:
        return [_logs_out(each) for each in logs]
    return None if np.isneginf(logs) else float(logs)


def _logs_in(values: Any) -> Any:
    return [_logs_in(each) for each in values] if isinstance(values, list) else (-np.inf if values is None else values)
