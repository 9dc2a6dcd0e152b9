"""Rows that are decided on together: what they share, their budgets, and for how long a decision stands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from headstart.pacing.belief import Belief, SourcePrior
from headstart.pacing.constants import (
    FIRST_ROUNDS,
    HORIZON_STEPS,
    MIN_TIME_SHARE,
    NEW_SOURCE_SHARE,
    PRIOR_ROUNDS,
    REFRESH_STEPS,
    RUNNING_SHARE,
    SETTLED_STEPS,
)
from headstart.pacing.costs import CurrentCosts
from headstart.pacing.decision import DraftOption, choose
from headstart.pacing.probe import Probe, Verdict
from headstart.pacing.reasons import MEASURING, at_rest, drafting, not_guessing, probing
from headstart.pacing.source import Source
from headstart.rule.row import Row
from headstart.types import Budget, Draft, Step


class Asked(NamedTuple):
    """The sources that one row asked for a draft in one step."""

    sources: Sequence[int] = ()
    unread: int = 0
    """Tokens that one of them had to read first."""
    waiting: Sequence[int] = ()
    """Those of them that still lack some of the text and have not said what they would draft."""


NOTHING_ASKED = Asked()


class GroupPlan(NamedTuple):
    """What a group of rows drafts in one step."""

    budgets: Sequence[Budget]
    """One for each row of the group, in their order."""
    decided: bool = False
    """Whether this was a new decision, which took time."""
    tried: Mapping[int, int] = MappingProxyType({})
    """By request, the source that is on trial in this step."""


class _Resting(NamedTuple):
    """Why rows of one step draft nothing. Most of a batch share a budget."""

    batch: int
    every: int
    """Steps between two trials."""
    budgets: dict[tuple[tuple[int, ...], float | None, bool], Budget]
    """Of these rows, by what there is to say of them."""


class RowState:
    """One request: what is believed of each source, and how much of the text each has read. row: any of its rows."""

    def __init__(self, group: Group, row: Row, sources: Sequence[Source]) -> None:
        self.group = group
        self.beliefs = [Belief(prior) for prior in group.priors]
        self.read = [0] * len(self.beliefs)
        self.able = [source.may_draft is None or source.may_draft(row) for source in sources]
        """By source, whether it may be asked: the same for all rows of a request."""

    def learn(self, step: Step, sources: Sequence[Source], tried: int | None) -> Asked:
        """Judge the source that drafted. Those that were asked before it had no draft; of later ones nothing is known,
        but for what they would have drafted where the drafter says so.

        Args:
            tried: the source that was on trial for this request.
        """
        asked = NOTHING_ASKED
        if step.budget.nodes and step.rows and (step.draft.guesses or not step.draft.forced):
            for other in step.draft.passed_over:
                self._learn_unused(other, step, sources)
            asked = self._learn_used(step, sources)
            if tried is not None and step.draft.source == sources[tried].name:
                self.group.refund(step)
            if tried is not None:
                self.group.tried(step.request, tried, answered=tried not in asked.waiting)
        return asked

    def _learn_used(self, step: Step, sources: Sequence[Source]) -> Asked:
        asked: list[int] = []
        waiting: list[int] = []
        unread = 0
        budget, draft, position = step.budget, step.draft, step.position
        lacks = {each.source: each.unread for each in draft.caught_up}
        for place, source in enumerate(sources):
            nodes = min(budget.max_nodes.get(source.name, 0), budget.nodes)
            if nodes == 0:
                continue
            asked.append(place)
            lacking = lacks.get(source.name, 0)
            read = max(0, position - lacking)
            unread = max(unread, read - self.read[place] - 2)
            self.read[place] = read
            if lacking:
                waiting.append(place)
                continue
            belief, drafted = self.beliefs[place], draft.source == source.name and len(draft) > 0
            belief.answered(drafted)
            if not drafted:
                continue
            if belief.prior.trees is not None:
                belief.learn_tree(draft, step.path, nodes)
            else:
                belief.learn(draft.guesses_in(step.path), draft.guessed_levels)
            break
        if unread or len(draft):
            self.group.end_lone_decision()
        return Asked(asked, unread, waiting)

    def _learn_unused(self, draft: Draft, step: Step, sources: Sequence[Source]) -> None:
        """A source that was passed over would have drafted this chain, or nothing, and these tokens came."""
        place = next((place for place, source in enumerate(sources) if source.name == draft.source), None)
        if place is None:
            return
        belief = self.beliefs[place]
        belief.answered(len(draft) > 0)
        if not len(draft) or belief.prior.trees is not None:
            return
        pairs = zip(draft.tokens, step.tokens, strict=False)
        right = next((i for i, (guess, token) in enumerate(pairs) if guess != token), None)
        if right is None:  # of the rest, if there is one, nobody knows
            right = tested = min(len(draft), len(step.tokens))
        else:
            tested = len(draft)
        belief.learn(right, tested)
        self.group.end_lone_decision()


class Group:
    """Rows that share costs, what was learnt of each source, and an allowance for probing.

    Args:
        lasting: whether later requests will share them, too.
    """

    def __init__(self, sources: Sequence[Source], costs: CurrentCosts, *, lasting: bool = False) -> None:
        self.costs = costs
        self.priors = [
            SourcePrior(
                source.sizes,
                trees=source.drafts_trees and len(source.sizes) > 1,
                right=PRIOR_ROUNDS if source.same_model else 0,
            )
            for source in sources
        ]
        self._sources = sources
        self._names = tuple(source.name for source in sources)
        self._probe = Probe(sources, costs, self.priors, lasting=lasting)
        self._rate = 0.0
        self._decided: tuple[tuple[int, list[int]], list[Budget]] = ((0, []), [])
        self._alone: dict[tuple[int, float], Budget] = {}  # of an only source: they come over and over again
        self._resting = _Resting(0, 0, {})
        self._held = self._holds = 0
        self._deciding = 0.0  # seconds of a decision on a batch; 0 while nobody has timed one
        self.deciding_share = 0.0
        """Seconds of the last decision for each step in which it is to stand; 0 of one on a lone row, which counts in
        the step that made it."""
        # Of requests on trial the budgets, and the sources that have read a part of the text and not answered yet.
        # Those trials have been paid for, and go on beside a decision that stands
        self._trials: dict[int, Budget] = {}
        self._reading: dict[int, int] = {}

    def standing(self, rows: Sequence[Row]) -> Sequence[Budget] | None:
        """The budgets of these rows, which are those of a whole step, where the last decision was about the same rows
        and stands as it is: most steps, at a tenth of what `plan` takes. None where it does not."""
        (batch, requests), budgets = self._decided
        if self._reading or self._held >= self._holds or not batch == len(requests) == len(rows) or self.costs.doubtful:
            return None
        for row, request, budget in zip(rows, requests, budgets, strict=True):
            if row.request != request or row.room < max(1, budget.nodes):
                return None
        self._held += 1
        return budgets

    def tried(self, request: int, place: int, *, answered: bool) -> None:
        """A source was on trial. Where it has read a part of what it lacks of the text, it is asked again in the next
        step."""
        if answered:
            self._reading.pop(request, None)
        else:
            self._reading[request] = place

    def end_decision(self, request: int) -> None:
        """The last decision stands no longer: a request has ended."""
        self._reading.pop(request, None)
        self._holds = 0

    def end_lone_decision(self) -> None:
        """The last decision, if it was one on a lone row, stands no longer: a draft was judged, or a source has read
        what it had not."""
        if len(self._decided[1]) == 1:
            self._holds = 0

    def plan(self, rows: Sequence[tuple[Row, RowState]], batch: int = 1, extra: int = 0) -> GroupPlan:
        """Budgets of `rows`, of a step of `batch` requests in which others draft `extra` nodes."""
        if not rows:
            return GroupPlan(())
        if self.costs.doubtful:
            self._holds = 0
            return GroupPlan([Budget(0, MEASURING)] * len(rows), decided=True)
        asked = [row.request for row, _ in rows]
        decides = self._held >= self._holds or self._decided[0] != (batch, asked)
        if decides:
            standing, tried = self._decide(rows, batch, extra)
            self._decided = (batch, asked), standing
            self._held = 0
        else:
            self._held += 1
            standing, tried = self._decided[1], {each: self._reading[each] for each in asked if each in self._reading}
        budgets = [self._trials[each] if each in tried else mine for each, mine in zip(asked, standing, strict=True)]
        within = [_within(budget, row.room) for (row, _), budget in zip(rows, budgets, strict=True)]
        return GroupPlan(within, decides, tried)

    def decided_in(self, seconds: float, batch: int) -> None:
        """A decision on so many rows took this long. It then stands until it has taken 0.5% of the time, up to a
        limit: a small model's step takes little longer than a decision."""
        known = self._deciding or seconds
        self._deciding = known + RUNNING_SHARE * (min(seconds, 2 * known) - known)
        share = self._deciding / self.costs.step_now(batch) / MIN_TIME_SHARE
        self._holds = max(self._holds, min(int(share), REFRESH_STEPS - 1))
        self.deciding_share = seconds / (1 + self._holds)

    def _decision(self, batch: int) -> float:
        """Seconds of a decision on a batch, as costs are: without the level that all of them share."""
        if not self._deciding or batch < 2:
            return 0.0
        return self._deciding * self.costs.step(batch, self.costs.rows(batch)) / self.costs.step_now(batch)

    def refund(self, step: Step) -> None:
        """Give back to the allowance what a trial saved: the allowance pays for what trials lose, not for their whole
        price."""
        plain = self.costs.step(step.batch, self.costs.rows(step.batch)) / step.batch
        self._probe.refund(len(step.path) * plain)

    def _decide(
        self, rows: Sequence[tuple[Row, RowState]], batch: int, extra: int
    ) -> tuple[list[Budget], dict[int, int]]:
        """Budgets of the steps in which nothing is on trial, and by request the source that is on trial in the coming
        one."""
        sampled = [not row.sampling.greedy for row, _ in rows]
        steps = REFRESH_STEPS if len(rows) > 1 else 1  # for which a decision stands, about
        options = [self._options(row, state, steps) for row, state in rows]
        choice = choose(options, self.costs, batch=batch, extra=extra, sampled=sampled, rate=self._rate)
        self._rate = choice.rate
        verdict = self._probe.decide(options, choice, batch, any(sampled), 1 + self._held, self._decision(batch))
        states = [state for _, state in rows]
        every = max(1, round(verdict.interval_steps))
        if (batch, every) != self._resting[:2]:  # which moves with the costs that the reasons name
            self._resting = _Resting(batch, every, {})
        standing = [
            self._budget(*each, self._resting) for each in zip(states, options, choice.nodes, sampled, strict=True)
        ]
        tried: dict[int, int] = {}
        self._trials = {}
        for (row, state), mine, nodes, budget in zip(rows, options, choice.nodes, standing, strict=True):
            place = self._reading.pop(row.request, verdict.place)
            trial = None if place is None else self._probing(state, mine, nodes, place, budget.idle)
            if place is not None and trial is not None:
                tried[row.request], self._trials[row.request] = place, trial
        self._holds, self.deciding_share = self._how_long(standing, verdict), 0.0
        return standing, tried

    def _how_long(self, budgets: Sequence[Budget], verdict: Verdict) -> int:
        """Further steps for which these budgets stand: deciding costs as much as a tenth of a small model's step.

        A batch's drafts, and what is drafted after a trial, stand for one step more with every two rows. Those of a
        lone row stand until a draft was judged: where an n-gram finds nothing, there is nothing new to decide on.
        "No drafts" stands until the next trial is due, within bounds, and for long where no source could pay even if
        every guess were right.
        """
        if len(budgets) > 1 and (verdict.place is not None or any(budget.nodes for budget in budgets)):
            return min(SETTLED_STEPS, len(budgets) // 2)
        if verdict.place is not None:
            return 0
        if budgets[0].nodes:
            return SETTLED_STEPS - 1
        if math.isinf(verdict.due_steps):
            return HORIZON_STEPS - 1
        most = REFRESH_STEPS if len(budgets) == 1 else HORIZON_STEPS
        return min(max(SETTLED_STEPS, int(verdict.due_steps)), most) - 1  # the step that decides counts, too

    def _options(self, row: Row, state: RowState, steps: int) -> list[DraftOption]:
        found, length = [], len(row.tokens)
        for place, source in enumerate(self._sources):
            belief = state.beliefs[place]
            gains, rounds = belief.gains(), belief.prior.rounds
            if rounds < FIRST_ROUNDS and len(gains):
                # Of the first guess alone, so that it says whether to draft and not how much
                gains = np.minimum(gains + gains[0] * (1 / NEW_SOURCE_SHARE - 1), source.depths)
            nodes, depths = source.nodes, source.depths
            room = row.room if state.able[place] else 0
            if room < source.limit:
                fit = int(nodes.searchsorted(room, side="right"))
                nodes, depths, gains = nodes[:fit], depths[:fit], gains[:fit]
            option = DraftOption(place, belief.coverage(steps), nodes, depths, gains, rounds < PRIOR_ROUNDS)
            unread = length - state.read[place] - 2  # a draft always has a token or two to read
            if unread > 0:
                option.backlog = self.costs.read(place) * unread
                left = row.room + 1 if row.left is None else row.left
                drafts_left = left / (1 + float(gains[-1])) if len(gains) else 1.0
                option.catch_up = option.backlog / min(max(1.0, drafts_left), HORIZON_STEPS)
            found.append(option)
        return found

    def _probing(
        self, state: RowState, options: Sequence[DraftOption], nodes: Sequence[int], place: int, idle: str
    ) -> Budget | None:
        """The chosen budget with the smallest draft of this source besides; None where it has one, or cannot. idle: of
        the chosen one, which a trial does not change."""
        if nodes[place] or not len(options[place].nodes):
            return None
        source = self._sources[place]
        named = dict(zip(self._names, nodes, strict=True))
        named[source.name] = source.smallest[0]
        most = max(named.values())
        return Budget(most, probing(most, source.name, state.beliefs[place].chance), named, idle=idle)

    def _budget(
        self,
        state: RowState,
        options: Sequence[DraftOption],
        nodes: Sequence[int],
        sampled: bool,
        resting: _Resting,
    ) -> Budget:
        most = max(nodes)
        able = [place for place, option in enumerate(options) if len(option.nodes)]  # the others are no reason
        beliefs = state.beliefs
        if most and len(nodes) == 1:
            asked = most, round(beliefs[0].chance, 2)
            return self._alone.get(asked) or self._alone.setdefault(asked, self._of_one(*asked))
        if most:
            parts = [(self._names[place], nodes[place], beliefs[place].chance) for place in able]
            named = dict(zip(self._names, nodes, strict=True))
            return Budget(most, drafting(most, parts), named, self._expected_gain(options, nodes, sampled))
        useful = [
            round(beliefs[place].chance, 2) for place in able if self._probe.can_pay(place, resting.batch, sampled)
        ]
        reason = tuple(able or range(len(nodes))), max(useful, default=None), sampled
        return resting.budgets.get(reason) or resting.budgets.setdefault(reason, self._rest(*reason, resting))

    def _of_one(self, nodes: int, chance: float) -> Budget:
        """Of the only source, the guesses of which are so likely to be accepted."""
        (name,) = self._names
        return Budget(nodes, drafting(nodes, [(name, nodes, chance)]), {name: nodes})

    def _rest(self, places: tuple[int, ...], chance: float | None, sampled: bool, resting: _Resting) -> Budget:
        """No drafts, because of what the smallest one of the cheapest of these sources takes.

        chance: of the likeliest guess, of the sources that could pay at all; None where there are none.
        """
        batch = resting.batch
        costs, sizes = self.costs, [self._sources[place].smallest for place in places]
        drafts = [costs.draft(place, depth, batch, sampled) for place, (_, depth) in zip(places, sizes, strict=True)]
        draft, (least, depth) = min(zip(drafts, sizes, strict=True))
        rows, base = batch * (1 + least), costs.rows(batch)
        step = costs.step(batch, base, batch * sampled)
        checking = costs.step(batch, base + batch * costs.weigh(least, depth), rows * sampled)
        prices = checking / step, draft / step, costs.thinking(batch, drafting=True) / step
        reason = at_rest(chance, least, rows, prices, resting.every)
        return Budget(0, reason, dict.fromkeys(self._names, 0), idle=not_guessing(reason))

    def _expected_gain(self, options: Sequence[DraftOption], nodes: Sequence[int], sampled: bool) -> dict[str, float]:
        """What each source that may draft should bring."""
        found = {}
        for source, option, most in zip(self._sources, options, nodes, strict=True):
            seconds = self.costs.draft(option.source, source.levels(most), 1, sampled) if most else 0.0
            found[source.name] = option.gain(most) - self._rate * seconds
        return found


def _within(budget: Budget, room: int) -> Budget:
    """The same, with at most `room` nodes of any source."""
    if budget.nodes <= room:
        return budget
    named = {name: min(most, room) for name, most in budget.max_nodes.items()}
    return replace(budget, nodes=room, max_nodes=named)
