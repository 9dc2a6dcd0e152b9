"""Adaptive pacing: in each step, every row drafts as much as should make the whole step bring most tokens per second.

Rows are decided on in groups. All ordinary rows of the engine are one group: they share costs that follow the
machine, what past requests taught about each source, and an allowance for probing. A reproducible row is a group of its
own, with the costs of the profile and an experience that starts from nothing: its draft lengths, and so its text, are a
function of its seed and prompt alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headstart.pacing import Pacing
from headstart.pacing.costs import CurrentCosts
from headstart.pacing.group import Group, RowState
from headstart.pacing.source import Source
from headstart.rule.row import Row
from headstart.theory.costs import StepCosts
from headstart.types import Budget, Preparation, Step

MAX_UNREAD_TOKENS = 8
"""Tokens that a draft may have had to read first, for its time to count as that of a draft."""

FIRST_DECISIONS, MEASURED_DECISIONS = 64, 4
"""Costs are learnt from the step after each of the first decisions, then after one of so many: learning takes time."""


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Drafts of one source in one step that could be made ahead."""

    depth: int = 0
    requests: int = 0
    """How many could have been; a source that drafts in turn for a while says nothing of what it could hide."""
    missed: int = 0
    """How many of them had to be made while the target waited."""
    beside: bool = False
    """Whether the source drafts on while the target judges them."""

    def with_draft(self, prepared: Preparation, depth: int) -> _Ahead:
        could = prepared.foreseen or prepared.beside
        return _Ahead(
            max(self.depth, depth),
            self.requests + could,
            self.missed + (could and not prepared.hit),
            self.beside or prepared.beside,
        )


class AdaptivePacing(Pacing):
    """Budgets from measured costs and observed acceptance.

    Args:
        sources: in the order in which they are asked.
        costs: of the target's forward and of each source's drafts.
        clock: seconds, to know what deciding takes.
    """

    name = "adaptive"

    def __init__(
        self, sources: Sequence[Source], costs: StepCosts, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._sources = tuple(sources)
        names = [source.name for source in self._sources]
        self._profile = CurrentCosts(costs, names)  # never corrected, so it stays what it is
        self._shared = Group(self._sources, CurrentCosts(costs, names), lasting=True)
        self._states: dict[int, RowState] = {}
        self._sampled: frozenset[int] = frozenset()
        self._steps: list[Step] = []
        self._decisions = 0
        self._measures = False
        self._clock = clock
        self._planning = 0.0  # seconds of the last plan
        self._observing = 0.0  # seconds of learning from its steps
        self._unobserved = 0  # requests of it of which nothing has been learnt yet
        self._drafting = False  # whether it had drafts

    def plan(self, rows: Sequence[Row]) -> Sequence[Budget]:
        start = self._clock()
        self._steps.clear()
        budgets: dict[int, Budget] = {}
        shared: list[tuple[Row, RowState]] = []
        for row in rows:
            state = self._states.get(row.request)
            if state is None:
                group = Group(self._sources, self._profile) if row.reproducible else self._shared
                state = self._states[row.request] = RowState(group)
            if row.room <= 0 or not self._sources:
                budgets[row.request] = Budget()
            elif row.reproducible:
                budgets[row.request] = state.group.plan([(row, state)])[0]
            else:
                shared.append((row, state))
        extra = sum(budget.nodes for budget in budgets.values())
        for (row, _), budget in zip(shared, self._shared.plan(shared, len(rows), extra), strict=True):
            budgets[row.request] = budget
        self._measures = self._shared.decided
        if self._measures:
            self._decisions += 1
            self._measures = self._decisions <= FIRST_DECISIONS or self._decisions % MEASURED_DECISIONS == 0
            self._sampled = frozenset(row.request for row in rows if not row.sampling.greedy)
        found = [budgets[row.request] for row in rows]
        self._observing, self._unobserved = 0.0, len(rows)
        self._drafting = any(budget.nodes for budget in found)
        self._planning = self._clock() - start
        return found

    def observe(self, step: Step) -> None:
        state = self._states.get(step.request)
        if state is None:  # it ended before it ran
            return
        start = self._clock()
        state.learn(step, self._sources)
        if self._measures and step.rows:
            self._steps.append(step)
            if len(self._steps) == step.batch:
                self._learn_costs(self._steps)
                if step.batch == 1:
                    self._shared.costs.observe_thinking(self._planning + self._clock() - start)
        if step.batch > 1 and step.rows:
            self._observing += self._clock() - start
            self._unobserved -= 1
            if self._unobserved == 0:
                seconds = self._planning + self._observing
                self._shared.costs.observe_thinking_of_batch(step.batch, self._drafting, seconds)

    def _learn_costs(self, steps: Sequence[Step]) -> None:
        """What the whole step cost, once all of its rows are known."""
        rows = sum(step.rows for step in steps)
        if rows != len(steps) + sum(len(step.draft) for step in steps):
            return  # prompts were read
        seconds = steps[0].seconds
        costs = self._shared.costs
        sampled = sum(
            1 + len(step.path if step.draft.q is None else step.draft)
            for step in steps
            if step.request in self._sampled
        )
        asked, ahead, unread = self._asked(steps)
        beside = next((place for place, each in ahead.items() if each.beside), None)
        costs.observe(
            len(steps), rows, sampled, seconds.verify + seconds.sample, max(0.0, seconds.plan - self._planning), beside
        )
        if unread > MAX_UNREAD_TOKENS:  # the time went into reading
            if len(steps) == len(asked) == 1 and not any(map(costs.has_timed, asked)):
                costs.observe_drafts(asked, seconds.draft, drawn=sampled > 0, unread=unread)
            return
        for place, each in ahead.items():
            costs.observe_ahead(place, each.depth, each.requests, each.missed, seconds.draft, sampled > 0)
        if asked and all(place in asked for place in ahead):
            costs.observe_drafts(asked, seconds.draft, drawn=sampled > 0)

    def _asked(self, steps: Sequence[Step]) -> tuple[dict[int, tuple[int, int]], dict[int, _Ahead], int]:
        """By source, the depth and the number of drafts that were made while the target waited; what there is to say of
        drafts that may have been made ahead; and the most tokens that one of the sources had to read first."""
        asked: dict[int, tuple[int, int]] = {}
        ahead: dict[int, _Ahead] = {}
        unread = 0
        for step in steps:
            state = self._states.get(step.request)
            if state is None:
                continue
            unread = max(unread, state.unread if state.asked else 0)
            for place in state.asked:
                drafted = self._depth(self._sources[place], step)
                prepared = step.draft.prepared if step.draft.source == self._sources[place].name else None
                if prepared is not None:
                    ahead[place] = ahead.get(place, _Ahead()).with_draft(prepared, drafted)
                    if prepared.hit:
                        continue
                depth, requests = asked.get(place, (0, 0))
                asked[place] = max(depth, drafted), requests + 1
        return asked, ahead, unread

    @staticmethod
    def _depth(source: Source, step: Step) -> int:
        """Levels that were drafted: of a tree, those that its budget buys, however deep what was kept of it goes."""
        if step.draft.source != source.name:
            return 0
        return source.levels(step.budget.max_nodes.get(source.name, 0)) if source.drafts_trees else len(step.draft)

    def release(self, request: int) -> None:
        self._states.pop(request, None)
