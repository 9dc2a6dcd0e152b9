"""Adaptive pacing: in each step, every row drafts as much as maximises the expected tokens per second of the step.

Rows are decided on in groups. All ordinary rows of the engine are one group: they share costs that follow the
machine, what past requests taught about each source, and an allowance for probing. A reproducible row is a group of its
own, with the costs of the profile and an experience that starts from nothing: its draft lengths, and so its text, are a
function of its seed and prompt alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headstart.pacing import Pacing, Plan
from headstart.pacing.constants import HORIZON_STEPS, REFRESH_STEPS, SETTLED_STEPS
from headstart.pacing.costs import CurrentCosts, Drafted
from headstart.pacing.group import Group
from headstart.pacing.row_state import NOTHING_ASKED, Asked, RowState
from headstart.pacing.source import Source
from headstart.rule.row import Row
from headstart.theory.costs import StepCosts
from headstart.types import Budget, Preparation, Rule, Step


def _most(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), max(one[1], other[1])


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Drafts of one source in one step that could be made ahead."""

    size: tuple[int, int] = (0, 0)
    """Nodes and depth, each the most of any of them."""
    requests: int = 0
    """How many could have been; a source that drafts in turn for a while says nothing of what it could hide."""
    missed: int = 0
    """How many of them had to be made while the target waited."""
    beside: bool = False
    """Whether the source drafts on while the target judges them."""

    def with_draft(self, prepared: Preparation, size: tuple[int, int]) -> _Ahead:
        could = prepared.foreseen or prepared.beside
        return _Ahead(
            _most(self.size, size),
            self.requests + could,
            self.missed + (could and not prepared.hit),
            self.beside or prepared.beside,
        )


@dataclass(frozen=True, slots=True)
class AdaptivePlan(Plan):
    """Budgets, and what has to be known of the decision when its step has run."""

    tried: Mapping[int, int]
    """By request, the source that is on trial in this step."""
    teaches_costs: bool
    """Whether costs are to be learnt from this step."""
    sampled: Mapping[int, Rule]
    """Requests whose tokens are drawn, and by what each is judged; empty where no costs are to be learnt."""
    seconds: float
    """What making the plan took."""
    spread: float
    """Seconds to add to these for what a decision takes in each step in which it stands."""
    drafts: bool
    """Whether any row may draft."""
    observed: bool = False
    """Whether it is a plan that stands, and what such a step takes has been observed."""


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
        # Rows of a text count as strangers until a draft has been counted: one that is too short costs least
        strangers = replace(costs, routing=replace(costs.routing, rho=costs.alike))
        self._shared = Group(self._sources, CurrentCosts(strangers, names), lasting=True)
        self._states: dict[int, RowState] = {}
        self._seen = 0  # steps that may teach costs: not those of a lone row in which "no drafts" stands
        self._every = SETTLED_STEPS  # steps between two that teach costs, where something is drafted
        self._standing: AdaptivePlan | None = None  # while a decision stands
        self._clock = clock

    def plan(self, rows: Sequence[Row]) -> AdaptivePlan:
        start = self._clock()
        standing = self._shared.standing(rows)
        if standing is not None:
            known = self._standing
            if known is None or known.budgets is not standing:
                known = self._standing = self._plan_of(rows, standing, {}, False, start, self._shared.deciding_share)
            if (known.drafts or len(rows) > 1) and self._teaches_next(known.drafts):
                return self._plan_of(rows, standing, {}, True, start, self._shared.deciding_share)
            return known
        self._standing = None
        budgets: dict[int, Budget] = {}
        tried: dict[int, int] = {}
        shared: list[tuple[Row, RowState]] = []
        for row in rows:
            state = self._states.get(row.request) or self._begin(row)
            if row.room <= 0 or not self._sources:
                budgets[row.request] = Budget()
            elif row.reproducible:
                alone = state.group.plan([(row, state)])
                budgets[row.request] = alone.budgets[0]
                tried.update(alone.tried)
            else:
                shared.append((row, state))
        doubtful = self._shared.costs.doubtful
        extra, spread = sum([budget.nodes for budget in budgets.values()]), 0.0
        began = self._clock()
        self._shared.settle()
        settled = self._clock()
        together = self._shared.plan(shared, len(rows), extra)
        for (row, _), budget in zip(shared, together.budgets, strict=True):
            budgets[row.request] = budget
        tried.update(together.tried)
        if shared and not doubtful:
            if together.decided:
                decided = self._clock()
                self._shared.decided_in(decided - settled, len(shared), settled - began)
                spread = began - decided
            spread += self._shared.deciding_share
        # A batch's decision stands for several steps, each of which says as much
        # A plain step that is due is for nothing else
        measures = bool(shared) and doubtful
        teaches = measures or ((together.decided or len(shared) > 1) and self._teaches_next())
        return self._plan_of(rows, [budgets[row.request] for row in rows], tried, teaches, start, spread)

    def _plan_of(
        self,
        rows: Sequence[Row],
        budgets: Sequence[Budget],
        tried: Mapping[int, int],
        teaches: bool,
        start: float,
        spread: float,
    ) -> AdaptivePlan:
        sampled = {row.request: row.rule for row in rows if not row.sampling.greedy} if teaches else {}
        return AdaptivePlan(
            budgets,
            tried=tried,
            teaches_costs=teaches,
            sampled=sampled,
            seconds=self._clock() - start,
            spread=spread,
            drafts=any(budget.nodes for budget in budgets),
        )

    def _begin(self, row: Row) -> RowState:
        """Remember a new request."""
        group = Group(self._sources, self._profile) if row.reproducible else self._shared
        state = self._states[row.request] = RowState(group, row, self._sources)
        return state

    def _teaches_next(self, drafts: bool = True) -> bool:
        """Whether costs are learnt from this step: at first from each, then from every so many."""
        self._seen += 1
        return self._seen <= HORIZON_STEPS or self._seen % (self._every if drafts else REFRESH_STEPS) == 0

    def observe(self, plan: Plan, steps: Sequence[Step]) -> None:
        assert isinstance(plan, AdaptivePlan), "observe() takes what plan() returned"
        if plan.observed and not plan.drafts:
            return
        start = self._clock()
        asked = [NOTHING_ASKED] * len(steps)
        if plan.drafts:
            states, sources, tried = self._states, self._sources, plan.tried
            asked = [states[step.request].learn(step, sources, tried.get(step.request)) for step in steps]
            if plan.observed:
                return
        spread = plan.spread
        if plan.teaches_costs:
            self._learn_costs(plan, steps, asked)
            taught = self._clock() - start
            self._every = min(max(SETTLED_STEPS, self._shared.steps_for(taught, len(steps))), REFRESH_STEPS)
            spread -= taught * (1 - 1 / self._every)
        seconds = plan.seconds + spread + self._clock() - start
        self._shared.costs.observe_thinking(len(steps), plan.drafts, seconds, tried=bool(plan.tried))
        if plan is self._standing:
            self._standing = replace(plan, observed=True)

    def _learn_costs(self, plan: AdaptivePlan, steps: Sequence[Step], asked_by_step: Sequence[Asked]) -> None:
        """What the whole step cost."""
        nodes = sum(len(step.draft) for step in steps)
        if sum(step.rows for step in steps) != len(steps) + nodes:
            return  # prompts were read
        seconds = steps[0].seconds
        costs = self._shared.costs
        levels = sum(max(step.draft.depths, default=0) for step in steps)
        costs.observe_experts(len(steps), nodes, levels, steps[0].experts)
        rows = costs.rows(len(steps)) + costs.weigh(nodes, levels)
        sampled = 0
        for step in steps:
            rule = plan.sampled.get(step.request)
            if rule is not None:  # a walk computes the target's distributions as far as it accepts
                walked = rule == "coupled" or step.draft.q is None
                sampled += 1 + len(step.path if walked else step.draft)
        asked, ahead, unread = self._drafts_of(steps, asked_by_step)
        beside = next((place for place, each in ahead.items() if each.beside), None)
        overhead = max(0.0, seconds.plan - plan.seconds) + seconds.commit
        costs.observe(len(steps), rows, sampled, seconds.verify + seconds.sample, overhead, beside)
        if any(each.waiting for each in asked_by_step):
            return  # a part of a text was read, or nothing: that says little of drafts
        if unread and costs.reads_mostly(asked, unread):
            if len(steps) == len(asked) == 1 and not any(map(costs.has_timed, asked)):
                costs.observe_drafts(asked, seconds.draft, drawn=sampled > 0, unread=unread)
            return
        for place, each in ahead.items():
            costs.observe_ahead(place, each.size, each.requests, each.missed, seconds.draft, sampled > 0)
        if asked and all(place in asked for place in ahead):
            costs.observe_drafts(asked, seconds.draft, drawn=sampled > 0)

    def _drafts_of(
        self, steps: Sequence[Step], asked_by_step: Sequence[Asked]
    ) -> tuple[dict[int, Drafted], dict[int, _Ahead], int]:
        """By source, the drafts that were made while the target waited; what there is to say of drafts that may have
        been made ahead; and the most tokens that one of the sources had to read first."""
        asked: dict[int, Drafted] = {}
        ahead: dict[int, _Ahead] = {}
        unread = 0
        for step, each in zip(steps, asked_by_step, strict=True):
            unread = max(unread, each.unread)
            for place in each.sources:
                drafted = self._size(self._sources[place], step)
                prepared = step.draft.prepared if step.draft.source == self._sources[place].name else None
                if prepared is not None:
                    ahead[place] = ahead.get(place, _Ahead()).with_draft(prepared, drafted)
                    if prepared.hit:
                        continue
                size, requests = asked.get(place, ((0, 0), 0))
                asked[place] = Drafted(_most(size, drafted), requests + 1)
        return asked, ahead, unread

    @staticmethod
    def _size(source: Source, step: Step) -> tuple[int, int]:
        """Nodes and levels that were drafted: of a tree, those that its budget buys, however deep what was kept of it
        goes."""
        if step.draft.source != source.name:
            return 0, 0
        if source.drafts_trees:
            return source.size(step.budget.max_nodes.get(source.name, 0))
        return step.draft.guesses, step.draft.guesses

    def release(self, request: int) -> None:
        self._shared.end_decision(request)
        self._states.pop(request, None)
