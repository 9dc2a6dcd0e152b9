"""Two lanes in time: a target and a drafter, each with one thing to do at a time, each slower while the other works.

Time jumps from event to event: the end of whatever a lane does. Work is given as the time it takes alone; while both
lanes work it progresses 1 + slow times more slowly, so that a forward that overlaps for half of its time pays for half.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Lane = Literal["target", "draft"]
LANES: tuple[Lane, ...] = ("target", "draft")
_DONE = 1e-12
"""The share of a piece of work that rounding may leave over."""


@dataclass(frozen=True, slots=True)
class Span:
    """One thing that one lane did, from `start` to `end`."""

    lane: Lane
    kind: str
    start: float
    end: float
    round: int
    """From 0; -1 for what comes before the first."""
    rows: int = 0
    """Rows of the forward; 0 where it was none."""


@dataclass(slots=True)
class _Doing:
    kind: str
    work: float
    left: float
    start: float
    rows: int


@dataclass(slots=True)
class TwoLanes:
    """The clock. slow: by lane, how much longer work takes while the other lane works.

    always: the slow-downs hold all the time, as where each lane has its own cores for good.
    """

    slow: dict[Lane, float] = field(default_factory=lambda: {"target": 0.0, "draft": 0.0})
    always: bool = False
    keep: int = 0
    """Spans are kept for so many rounds; their times are added up for all of them."""
    now: float = 0.0
    round: int = 0
    spans: list[Span] = field(default_factory=list)
    busy: dict[Lane, dict[str, float]] = field(default_factory=lambda: {"target": {}, "draft": {}})
    """By lane and kind: time spent."""
    worked: dict[Lane, float] = field(default_factory=lambda: {"target": 0.0, "draft": 0.0})
    """By lane: what it did, in time that it would have taken alone."""
    _doing: dict[Lane, _Doing] = field(default_factory=dict)

    def start(self, lane: Lane, kind: str, work: float, rows: int = 0) -> None:
        """Begin something that would take `work` alone.

        Raises:
            RuntimeError: the lane does something already.
        """
        if lane in self._doing:
            raise RuntimeError(f"the {lane} lane already does something: {self._doing[lane].kind}")
        self._doing[lane] = _Doing(kind, work, work, self.now, rows)

    def works(self, lane: Lane) -> bool:
        return lane in self._doing

    def next(self) -> tuple[Lane, ...]:
        """Let time pass until something ends; the lanes that are free now."""
        ends = {lane: doing.left * self._pace(lane) for lane, doing in self._doing.items()}
        passed = min(ends.values())
        free = tuple(lane for lane in LANES if lane in ends and ends[lane] - passed <= _DONE * max(1.0, passed))
        for lane, doing in self._doing.items():
            doing.left -= passed / self._pace(lane)
        self.now += passed
        for lane in free:
            self._end(lane)
        return free

    def run(self, lane: Lane, kind: str, work: float, rows: int = 0) -> float:
        """Do one thing while the other lane does nothing; how long it took."""
        before = self.now
        self.start(lane, kind, work, rows)
        while self.works(lane):
            self.next()
        return self.now - before

    def pause(self, lane: Lane, kind: str, time: float) -> float:
        """Let time pass that is no work: a message on its way. It is noted on this lane."""
        if time:
            self._note(lane, _Doing(kind, 0.0, 0.0, self.now, 0), self.now + time)
            self.now += time
        return time

    def _pace(self, lane: Lane) -> float:
        """Time for a unit of work."""
        return 1 + self.slow[lane] if self.always or len(self._doing) == len(LANES) else 1.0

    def _end(self, lane: Lane) -> None:
        doing = self._doing.pop(lane)
        self.worked[lane] += doing.work
        self._note(lane, doing, self.now)

    def _note(self, lane: Lane, doing: _Doing, end: float) -> None:
        kinds = self.busy[lane]
        kinds[doing.kind] = kinds.get(doing.kind, 0.0) + end - doing.start
        if self.round < self.keep:
            self.spans.append(Span(lane, doing.kind, doing.start, end, self.round, doing.rows))
