"""Rows that are decided on together: what they share, their budgets, and for how long a decision stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from headstart.pacing.belief import SourcePrior
from headstart.pacing.constants import (
    FIRST_ROUNDS,
    HORIZON_STEPS,
    MIN_TIME_SHARE,
    NEW_SOURCE_SHARE,
    PRECISION,
    PRIOR_ROUNDS,
    REFRESH_STEPS,
    RUNNING_SHARE,
    SETTLED_STEPS,
    UNKNOWN_COST,
)
from headstart.pacing.costs import CurrentCosts
from headstart.pacing.decision import DraftOption, choose
from headstart.pacing.probe import Probe, Verdict
from headstart.pacing.reasons import MEASURING, at_rest, drafting, not_guessing, probing
from headstart.pacing.row_state import RowState
from headstart.pacing.source import Source
from headstart.rule.row import Row
from headstart.types import Budget, Step


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


class Group:
    """Rows that share costs, what was learnt of each source, and an allowance for probing.

    Args:
        lasting: whether later requests will share them, too.
    """

    def __init__(self, sources: Sequence[Source], costs: CurrentCosts, *, lasting: bool = False) -> None:
        self.costs = costs
        self._priors = [
            SourcePrior(
                source.sizes,
                trees=source.drafts_trees and len(source.sizes) > 1,
                right=PRIOR_ROUNDS if source.same_model else 0,
            )
            for source in sources
        ]
        self._sources = sources
        self._names = tuple(source.name for source in sources)
        self._probe = Probe(sources, costs, self._priors, lasting=lasting)
        self._rate = 0.0
        self._decided: tuple[tuple[int, list[int]], list[Budget]] = ((0, []), [])
        self._resting = _Resting(0, 0, {})
        self._held = self._holds = 0
        self._usual = 1  # steps for which the last decision on a lone row was to stand, about
        self._often = 1.0  # chance that a lone row's step has a draft
        self._unjudged = 0  # drafts that a decision on a lone row has still to stand for
        self._deciding = [0.0, 0.0]  # seconds of a decision, on a lone row and a batch; 0 while nobody has timed one
        # Of a reproducible row, whose text a clock must not change, a decision is never timed
        self._few = 1 if lasting else 2
        self.deciding_share = 0.0
        """Seconds of the last decision for each step in which it is to stand."""
        # Of requests on trial the budgets, and the sources that have read a part of the text and not answered yet.
        # Those trials have been paid for, and go on beside a decision that stands
        self._trials: dict[int, Budget] = {}
        self._reading: dict[int, int] = {}
        self._shown: list[Callable[[], object]] = []  # by steps, and not believed yet

    @property
    def priors(self) -> list[SourcePrior]:
        """By source, after all that steps have shown."""
        self.settle()
        return self._priors

    def later(self, believe: Callable[[], object]) -> None:
        """A step has shown something. While a decision stands nobody asks what is believed, and code that changes it
        has left the caches in a forward. At the end of the decision it runs for all of its steps at once."""
        self._shown.append(believe)

    def settle(self) -> None:
        """Believe what steps have shown, in their order."""
        if self._shown:
            waiting, self._shown = self._shown, []
            for believe in waiting:
                believe()

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
        self.settle()
        self._reading.pop(request, None)
        self._holds = 0

    def judged_alone(self, *, news: bool = False) -> None:
        """A draft was judged, or a source has read what it had not. If the last decision was one on a lone row, it
        stands until the last of a few of these, and no longer where there are news: a source was on trial."""
        if len(self._decided[1]) == 1:
            self._unjudged -= 1
            if news or self._unjudged <= 0:
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

    def steps_for(self, seconds: float, batch: int) -> int:
        """Steps of so many requests of which these seconds are 0.5%, at most `HORIZON_STEPS`."""
        return int(min(seconds / self.costs.step_now(batch) / MIN_TIME_SHARE, HORIZON_STEPS))

    def decided_in(self, seconds: float, batch: int, learning: float = 0.0) -> None:
        """A decision on so many rows took this long. It then stands until it has taken 0.5% of the time, up to a
        limit: a small model's step takes little longer than a decision. One on a lone row stands until some drafts were
        judged, at most a few.

        learning: seconds that went before it into what the steps since the last one had shown. There is more of that
        the longer a decision stands, so that steps pay for it, but decisions do not stand longer for it.
        """
        several, drafts = batch > 1, any(budget.nodes for budget in self._decided[1])
        # The first may have been interrupted, and so may any other
        known = self._deciding[several] or min(seconds, UNKNOWN_COST * self.costs.step_now(batch))
        known = self._deciding[several] = known + RUNNING_SHARE * (min(seconds, 2 * known) - known)
        share = self.steps_for(known, batch)
        if self._holds:  # after a lone row's trial comes a decision
            self._holds = max(self._holds, min(share, REFRESH_STEPS if drafts else HORIZON_STEPS) - 1)
        stands = 1.0 + self._holds
        if not several:
            self._unjudged = max(self._few, min(share, SETTLED_STEPS))
            if drafts:
                stands = max(1.0, min(stands, self._unjudged / self._often))
            self._usual = min(round(stands), REFRESH_STEPS)
        self.deciding_share = (seconds + learning) / stands

    def _decision(self, batch: int) -> float:
        """Seconds of a decision on a batch, as costs are: without the level that all of them share."""
        deciding = self._deciding[True] if batch > 1 else 0.0
        return deciding * self.costs.step(batch, self.costs.rows(batch)) / self.costs.step_now(batch)

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
        self.settle()
        sampled = [not row.sampling.greedy for row, _ in rows]
        steps = REFRESH_STEPS if len(rows) > 1 else self._usual  # for which it stands, about
        options = [self._options(row, state, steps) for row, state in rows]
        choice = choose(options, self.costs, batch=batch, extra=extra, sampled=sampled, rate=self._rate)
        self._rate = choice.rate
        verdict = self._probe.decide(options, choice, batch, any(sampled), 1 + self._held, self._decision(batch))
        used = [each.coverage for each, nodes in zip(options[0], choice.nodes[0], strict=True) if nodes]
        self._often = max(max(used, default=1.0), PRECISION)
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
        self._holds, self._unjudged, self.deciding_share = self._how_long(standing, verdict), self._few, 0.0
        return standing, tried

    def _how_long(self, budgets: Sequence[Budget], verdict: Verdict) -> int:
        """Further steps for which these budgets stand: deciding costs as much as a fifth of a small model's step.

        A batch's drafts, and what is drafted after a trial, stand for one step more with every two rows. Those of a
        lone row stand until drafts were judged: where an n-gram finds nothing, there is nothing new to decide on.
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
        state.drift_to(length)
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
            option.asked = belief.prior.answers >= PRIOR_ROUNDS
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
        if any(nodes):
            reason = state.reason_of(nodes, partial(self._words, options, nodes))
            named = dict(zip(self._names, nodes, strict=True))
            gains = self._expected_gain(options, nodes, sampled) if len(nodes) > 1 else {}
            return Budget(max(nodes), reason, named, gains)
        able = [place for place, option in enumerate(options) if len(option.nodes)]  # the others are no reason
        useful = [
            round(state.beliefs[place].chance, 2)
            for place in able
            if self._probe.can_pay(place, resting.batch, sampled)
        ]
        resting_for = tuple(able or range(len(nodes))), max(useful, default=None), sampled
        known = resting.budgets.get(resting_for)
        return known or resting.budgets.setdefault(resting_for, self._rest(*resting_for, resting))

    def _words(self, options: Sequence[DraftOption], nodes: Sequence[int], chances: Sequence[float]) -> str:
        """Why so many nodes. chances: that the next guess of each source is accepted."""
        able = [place for place, option in enumerate(options) if len(option.nodes)]
        return drafting(max(nodes), [(self._names[place], nodes[place], chances[place]) for place in able])

    def _rest(self, places: tuple[int, ...], chance: float | None, sampled: bool, resting: _Resting) -> Budget:
        """No drafts, because of what the smallest one of the cheapest of these sources takes.

        chance: of the likeliest guess, of the sources that could pay at all; None where there are none.
        """
        batch = resting.batch
        costs, sizes = self.costs, [self._sources[place].smallest for place in places]
        drafts = [costs.draft(place, size, batch, sampled) for place, size in zip(places, sizes, strict=True)]
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
            seconds = self.costs.draft(option.source, source.size(most), 1, sampled) if most else 0.0
            found[source.name] = option.gain(most) - self._rate * seconds
        return found


def _within(budget: Budget, room: int) -> Budget:
    """The same, with at most `room` nodes of any source."""
    if budget.nodes <= room:
        return budget
    named = {name: min(most, room) for name, most in budget.max_nodes.items()}
    return replace(budget, nodes=room, max_nodes=named)
