"""Rows that are decided on together: what they share, their budgets, and for how long a decision stands."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from headstart.pacing.reasons import MEASURING, drafting, not_guessing, probing, resting
from headstart.pacing.source import Source
from headstart.rule.row import Row
from headstart.types import Budget, Draft, Step


class Asked(NamedTuple):
    """The sources that one row asked for a draft in one step."""

    sources: Sequence[int] = ()
    unread: int = 0
    """Tokens that one of them had to read first."""
    waits: bool = False
    """Whether one of them still lacks some of the text and has not said what it would draft."""


NOTHING_ASKED = Asked()


class GroupPlan(NamedTuple):
    """What a group of rows drafts in one step."""

    budgets: Sequence[Budget]
    """One for each row of the group, in their order."""
    decided: bool = False
    """Whether this was a new decision, which took time."""
    tried: int | None = None
    """The source that is on trial in this step."""


class RowState:
    """One request: what is believed of each source, and how much of the text each has read."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.beliefs = [Belief(prior) for prior in group.priors]
        self.read = [0] * len(self.beliefs)

    def learn(self, step: Step, sources: Sequence[Source], tried: int | None) -> Asked:
        """Judge the source that drafted. Those that were asked before it had no draft; of later ones nothing is known,
        but for what they would have drafted where the drafter says so.

        Args:
            tried: the source that was on trial in this step.
        """
        asked = NOTHING_ASKED
        if step.budget.nodes and step.rows and (step.draft.guesses or not step.draft.forced):
            for other in step.draft.passed_over:
                self._learn_unused(other, step, sources)
            asked = self._learn_used(step, sources)
            if tried is not None and step.draft.source == sources[tried].name:
                self.group.refund(step)
            if tried is not None and asked.waits:
                self.group.go_on_trying()
        return asked

    def _learn_used(self, step: Step, sources: Sequence[Source]) -> Asked:
        asked: list[int] = []
        unread, waits = 0, False
        lacks = {each.source: each.unread for each in step.draft.caught_up}
        for place, (source, belief) in enumerate(zip(sources, self.beliefs, strict=True)):
            nodes = min(step.budget.max_nodes.get(source.name, 0), step.budget.nodes)
            if nodes == 0:
                continue
            asked.append(place)
            lacking = lacks.get(source.name, 0)
            unread = max(unread, step.position - lacking - self.read[place] - 2)
            self.read[place] = step.position - lacking
            if lacking:
                waits = True
                continue
            drafted = step.draft.source == source.name and len(step.draft) > 0
            belief.answered(drafted)
            if not drafted:
                continue
            if belief.prior.trees is not None:
                belief.learn_tree(step.draft, step.path, nodes)
            else:
                belief.learn(step.draft.guesses_in(step.path), step.draft.guessed_levels)
            break
        return Asked(asked, unread, waits)

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
        self._held = self._holds = 0
        self._deciding = 0.0  # seconds of a decision on a batch; 0 while nobody has timed one
        self._unfinished = False  # whether the source on trial was still reading

    def standing(self, rows: Sequence[Row]) -> Sequence[Budget] | None:
        """The budgets of these rows, which are those of a whole step, where the last decision was about the same rows
        and stands as it is: most steps, at a tenth of what `plan` takes. None where it does not."""
        (batch, requests), budgets = self._decided
        if self._held >= self._holds or not batch == len(requests) == len(rows) or self.costs.doubtful:
            return None
        for row, request, budget in zip(rows, requests, budgets, strict=True):
            if row.request != request or row.room < max(1, budget.nodes):
                return None
        self._held += 1
        return budgets

    def go_on_trying(self) -> None:
        """The source on trial still reads what it lacks of a text, which has been paid for: it is asked again in the
        next step."""
        self._unfinished, self._holds = True, 0

    def end_decision(self) -> None:
        """The last decision stands no longer: a request has ended."""
        self._holds = 0

    def plan(self, rows: Sequence[tuple[Row, RowState]], batch: int = 1, extra: int = 0) -> GroupPlan:
        """Budgets of `rows`, of a step of `batch` requests in which others draft `extra` nodes."""
        if not rows:
            return GroupPlan(())
        if self.costs.doubtful:
            self._holds = 0
            return GroupPlan([Budget(0, MEASURING)] * len(rows), decided=True)
        asked = [row.request for row, _ in rows]
        tried = None
        decides = self._held >= self._holds or self._decided[0] != (batch, asked)
        if decides:
            budgets, standing, tried = self._decide(rows, batch, extra)
            self._decided = (batch, asked), standing
            self._held = 0
        else:
            self._held += 1
            budgets = self._decided[1]
        within = [_within(budget, row.room) for (row, _), budget in zip(rows, budgets, strict=True)]
        return GroupPlan(within, decides, tried)

    def decided_in(self, seconds: float, batch: int) -> None:
        """A decision on so many rows took this long. It then stands until it has taken 0.5% of the time, up to a
        limit: a small model's step takes little longer than a decision."""
        if batch < 2:
            return
        known = self._deciding or seconds
        self._deciding = known + RUNNING_SHARE * (min(seconds, 2 * known) - known)
        share = self._deciding / self.costs.step_now(batch) / MIN_TIME_SHARE
        self._holds = max(self._holds, min(int(share), REFRESH_STEPS - 1))

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
    ) -> tuple[list[Budget], list[Budget], int | None]:
        """Budgets of the coming step, those of the steps after it, in which nothing is on trial, and the source that is
        on trial in the coming one."""
        sampled = [not row.sampling.greedy for row, _ in rows]
        options = [self._options(row, state) for row, state in rows]
        choice = choose(options, self.costs, batch=batch, extra=extra, sampled=sampled, rate=self._rate)
        self._rate = choice.rate
        if self._unfinished:
            verdict, self._unfinished = self._probe.last, False
        else:
            verdict = self._probe.decide(options, choice, batch, any(sampled), 1 + self._held, self._decision(batch))
        states = [state for _, state in rows]
        at_rest = functools.cache(functools.partial(self._resting, batch=batch, verdict=verdict))
        budgets = standing = [
            self._budget(*each, batch, at_rest) for each in zip(states, options, choice.nodes, sampled, strict=True)
        ]
        if verdict.place is not None:
            budgets = [
                self._probing(state, mine, nodes, verdict.place, budget.idle) or budget
                for state, mine, nodes, budget in zip(states, options, choice.nodes, standing, strict=True)
            ]
        self._holds = self._how_long(standing, verdict)
        return budgets, standing, verdict.place

    def _how_long(self, budgets: Sequence[Budget], verdict: Verdict) -> int:
        """Further steps for which these budgets stand: deciding costs as much as a tenth of a small model's step.

        A batch's drafts, and what is drafted after a trial, stand for one step more with every two rows. Drafts of a
        lone row are decided in every step. "No drafts" stands until the next trial is due, within bounds, and for long
        where no source could pay even if every guess were right.
        """
        if len(budgets) > 1 and (verdict.place is not None or any(budget.nodes for budget in budgets)):
            return min(SETTLED_STEPS, len(budgets) // 2)
        if verdict.place is not None or budgets[0].nodes:
            return 0
        if math.isinf(verdict.due_steps):
            return HORIZON_STEPS - 1
        most = REFRESH_STEPS if len(budgets) == 1 else HORIZON_STEPS
        return min(max(SETTLED_STEPS, int(verdict.due_steps)), most) - 1  # the step that decides counts, too

    def _options(self, row: Row, state: RowState) -> list[DraftOption]:
        found, length = [], len(row.tokens)
        for place, (source, belief) in enumerate(zip(self._sources, state.beliefs, strict=True)):
            gains = belief.gains()
            if belief.prior.rounds < FIRST_ROUNDS and len(gains):
                # Of the first guess alone, so that it says whether to draft and not how much
                gains = np.minimum(gains + gains[0] * (1 / NEW_SOURCE_SHARE - 1), source.depths)
            nodes, depths = source.nodes, source.depths
            room = row.room if source.may_draft is None or source.may_draft(row) else 0
            if room < source.limit:
                fit = int(nodes.searchsorted(room, side="right"))
                nodes, depths, gains = nodes[:fit], depths[:fit], gains[:fit]
            option = DraftOption(place, belief.coverage, nodes, depths, gains, belief.prior.rounds < PRIOR_ROUNDS)
            unread = length - state.read[place] - 2  # a draft always has a token or two to read
            if unread > 0:
                option.backlog = self.costs.read(place) * unread
                drafts_left = (row.room + 1) / (1 + float(gains[-1])) if len(gains) else 1.0
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
        batch: int,
        at_rest: Callable[..., Budget],
    ) -> Budget:
        most = max(nodes)
        able = [place for place, option in enumerate(options) if len(option.nodes)]  # the others are no reason
        chances = [round(state.beliefs[place].chance, 2) for place in able]
        if most:
            names, sizes = tuple([self._names[place] for place in able]), tuple([nodes[place] for place in able])
            reason, named = drafting(names, sizes, tuple(chances)), dict(zip(self._names, nodes, strict=True))
            return Budget(most, reason, named, self._expected_gain(options, nodes, sampled))
        payable = zip(able, chances, strict=True)
        useful = [chance for place, chance in payable if self._probe.can_pay(place, batch, sampled)]
        return at_rest(tuple(able or range(len(nodes))), max(useful, default=None), sampled)

    def _resting(
        self, places: tuple[int, ...], chance: float | None, sampled: bool, *, batch: int, verdict: Verdict
    ) -> Budget:
        """No drafts, because of what the smallest one of the cheapest of these sources takes. Most rows of a batch
        share it.

        chance: of the likeliest guess, of the sources that could pay at all; None where there are none.
        """
        costs, sizes = self.costs, [self._sources[place].smallest for place in places]
        drafts = [costs.draft(place, depth, batch, sampled) for place, (_, depth) in zip(places, sizes, strict=True)]
        draft, (least, depth) = min(zip(drafts, sizes, strict=True))
        rows, base = batch * (1 + least), costs.rows(batch)
        step = costs.step(batch, base, batch * sampled)
        checking = costs.step(batch, base + batch * costs.weigh(least, depth), rows * sampled)
        prices = checking / step, draft / step, costs.thinking(batch, drafting=True) / step
        reason = resting(chance, least, rows, prices, verdict.interval_steps)
        return Budget(0, reason, dict.fromkeys(self._names, 0), idle=not_guessing(reason))

    def _expected_gain(self, options: Sequence[DraftOption], nodes: Sequence[int], sampled: bool) -> dict[str, float]:
        """What each source that may draft should bring, where there are several."""
        if len(nodes) == 1:
            return {}
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
