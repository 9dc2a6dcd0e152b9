"""Speculative speculative decoding, round by round on two lanes: what it gains when the formulas' assumptions end.

`headstart.theory.ssd` takes the mean of a round: a constant verification, a stop at the very moment it is wanted. Here
forwards are events in time. While the target verifies, the draft lane runs the glue (one forward over the draft, which
gives its distribution after each prefix) and then level after level of all branches together. When the verification
ends, the drafter is stopped at its next forward boundary, the outcome is handed over, and what was foreseen is served;
the rest is drafted now. Outcomes are drawn: acceptance by position, and whether the bonus token was among the foreseen
ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from headstart.base.options import check_number
from headstart.learn.simulate.costs import Estimate, ratio_of_sums
from headstart.learn.simulate.ssd_inputs import LaneCosts, SsdPlan, table_of
from headstart.theory.rounds import by_position, extended

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
    """The clock of a target and a drafter, each with one thing to do at a time, each slower while the other works.

    Time jumps from event to event: the end of whatever a lane does. Work is given as the time it takes alone; while
    both lanes work it progresses 1 + slow times more slowly, so that a forward that overlaps for half of its time pays
    for half. slow: by lane, how much longer work takes while the other lane works.

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


VERIFY, GLUE, LEVELS, HAND_OVER, REDRAFT, WAIT = "verify", "glue", "levels", "hand over", "draft now", "wait"


@dataclass(frozen=True)
class SsdRun:
    """What a simulation counted. Times are in the unit of the costs; tokens are those of all rows together."""

    rounds: int
    batch: int
    tokens: int
    time: float
    rate: Estimate
    """Tokens per unit of time."""
    hits: int
    """Rows whose outcome was foreseen, with at least one level ready."""
    whole: int
    """Of these, those whose draft was served at its full length without anything drafted late."""
    misses: int
    target: Mapping[str, float]
    """Where the time went, as the target sees it: verify (its work alone), sharing, wait, hand over, draft now."""
    draft: Mapping[str, float]
    """What the draft lane did; it was idle for the rest."""
    spans: tuple[Span, ...] = field(repr=False)
    """Of the first rounds."""

    @property
    def hit_rate(self) -> float:
        return self.hits / max(1, self.hits + self.misses)

    @property
    def tokens_per_round(self) -> float:
        """Of one row."""
        return self.tokens / self.rounds / self.batch

    @property
    def round_time(self) -> float:
        return self.time / self.rounds

    @property
    def idle(self) -> Mapping[str, float]:
        """By lane, the share of the time in which it had nothing to do."""
        worked = self.target["verify"] + self.target["sharing"]
        return {"target": 1 - worked / self.time, "draft": 1 - sum(self.draft.values()) / self.time}


def simulate_ssd(
    plan: SsdPlan, costs: LaneCosts, *, rounds: int = 2000, seed: int = 0, keep: int = 6, ahead: bool = True
) -> SsdRun:
    """Simulate so many rounds. ahead=False drafts in turn, with both models alone on the machine in turn.

    keep: the first rounds of which spans are kept. The same seed gives the same acceptance ahead and in turn.
    """
    check_number("rounds", rounds, low=1, integer=True)
    if not ahead:
        costs = replace(costs, slow=0.0, draft_slow=0.0, split=False, hand_over=0.0)
    return _Rounds(plan, costs, seed, keep, ahead=ahead).run(rounds)


class _Rounds:
    """The state of a simulation between rounds."""

    def __init__(self, plan: SsdPlan, costs: LaneCosts, seed: int, keep: int, *, ahead: bool) -> None:
        self.plan, self.costs, self.ahead = plan, costs, ahead
        self.verify, self.level = table_of("verify", costs.verify), table_of("level", costs.level)
        self.glue = table_of("glue", costs.glue or costs.level)
        self.lanes = TwoLanes({"target": costs.slow, "draft": costs.draft_slow}, costs.split, keep)
        self.acceptance = extended(by_position(plan.acceptance), plan.k)
        self.outcomes, self.ranks, self.times = (np.random.default_rng((seed, stream)) for stream in range(3))
        self.lengths = [0] * plan.batch
        """Of the drafts that the next verification judges."""
        self.hits = self.whole = self.misses = 0
        self.alone = self.waited = self.late = self.handed = 0.0

    def run(self, rounds: int) -> SsdRun:
        self.lanes.round = -1  # the first draft has nothing to hide behind
        self._draft_now(dict.fromkeys(range(self.plan.batch), self.plan.k))
        begun, self.late = self.lanes.now, 0.0
        tokens, ends = np.empty(rounds), np.empty(rounds)
        for self.lanes.round in range(rounds):
            tokens[self.lanes.round] = self._round()
            ends[self.lanes.round] = self.lanes.now
        time = self.lanes.now - begun
        verified = self.lanes.busy["target"][VERIFY]
        target = {
            "verify": self.alone, "sharing": max(0.0, verified - self.alone), "wait": self.waited,
            "hand over": self.handed, "draft now": self.late,
        }  # fmt: skip
        draft = dict(self.lanes.busy["draft"])
        draft[REDRAFT] = self.late
        rate = ratio_of_sums(tokens, np.diff(ends, prepend=begun))
        return SsdRun(
            rounds, self.plan.batch, int(tokens.sum()), time, rate, self.hits, self.whole, self.misses,
            target, draft, tuple(self.lanes.spans),
        )  # fmt: skip

    def _round(self) -> int:
        """Verify what is drafted and prepare the next drafts; the tokens emitted."""
        lanes, plan = self.lanes, self.plan
        rows = sum(self.lengths) + plan.batch
        work = self.verify.forward(rows) * self._noise()
        self.alone += work
        lanes.start("target", VERIFY, work, rows)
        pending = self._forwards(rows) if self.ahead else []
        levels = 0
        while lanes.works("target"):
            if pending and not lanes.works("draft"):
                kind, cost, count = pending[0]
                lanes.start("draft", kind, cost, count)
            if "draft" in lanes.next():
                levels += pending.pop(0)[0] == LEVELS
        verified = lanes.now
        levels += self._stop(pending)
        self.waited += lanes.now - verified
        outcomes = [self._outcome(length) for length in self.lengths]
        if self.ahead:
            self.handed += lanes.pause("draft", HAND_OVER, self.costs.hand_over)
        self._serve([hit for _, hit in outcomes], levels)
        return sum(accepted + 1 for accepted, _ in outcomes)

    def _forwards(self, rows: int) -> list[tuple[str, float, int]]:
        """What the draft lane would like to do during this verification, in order: (kind, work, rows)."""
        branches = sum(sum(self.plan.outs(length)) for length in self.lengths)
        if not branches:
            return []
        level = (LEVELS, self.level.forward(branches), branches)
        return [(GLUE, self.glue.forward(rows), rows), *[level] * self.plan.k]

    def _stop(self, pending: list[tuple[str, float, int]]) -> int:
        """The verification has ended: finish the forward that runs, or everything; the levels that got ready."""
        lanes, levels = self.lanes, 0
        while lanes.works("draft") or (pending and self.plan.late == "wait"):
            if not lanes.works("draft"):
                kind, cost, count = pending[0]
                lanes.start("draft", kind, cost, count)
            lanes.next()
            levels += pending.pop(0)[0] == LEVELS
        return levels

    def _outcome(self, length: int) -> tuple[int, bool]:
        """Tokens accepted of a draft so long, and whether the bonus token was foreseen."""
        refused = self.outcomes.random(self.plan.k) >= self.acceptance
        accepted = min(int(refused.argmax()) if refused.any() else self.plan.k, length)
        chance = self.plan.foreseen(accepted, length)
        return accepted, bool(self.ranks.random() < chance)

    def _serve(self, foreseen: Sequence[bool], levels: int) -> None:
        """Hand out what is ready, and draft the rest now."""
        plan = self.plan
        ready = [levels if self.ahead and hit else 0 for hit in foreseen]
        if self.ahead:
            self.hits += sum(n > 0 for n in ready)
            self.misses += sum(n == 0 for n in ready)
        if plan.drafted == "all" and not all(ready):
            ready = [0] * plan.batch
        wanted = {}
        for row, n in enumerate(ready):
            if (n == 0 and (plan.drafted != "nothing" or not self.ahead)) or (0 < n < plan.k and plan.late == "finish"):
                wanted[row] = plan.k - n
        self.whole += sum(n == plan.k for n in ready) if self.ahead else 0
        self.lengths = ready
        self._draft_now(wanted)

    def _draft_now(self, wanted: Mapping[int, int]) -> None:
        """Draft so many more levels for these rows while the target waits."""
        before = self.lanes.now
        for step in range(max(wanted.values(), default=0)):
            rows = sum(levels > step for levels in wanted.values())
            self.lanes.run("draft", REDRAFT, self.level.forward(rows), rows)
        self.late += self.lanes.now - before
        for row, levels in wanted.items():
            self.lengths[row] += levels

    def _noise(self) -> float:
        if not self.costs.jitter:
            return 1.0
        shape = self.costs.jitter**-2
        return float(self.times.gamma(shape, 1 / shape))
