"""The step loop: schedule, propose, one target forward, judge, commit.

A step serves a ragged batch: every request has its own sampling, draft and accepted length, and joins or leaves
between steps. The loop knows no drafter by name and has no mode: plain decoding is a draft without nodes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from headstart.drafters import Observation
from headstart.engine.guards import Listeners, Recorders
from headstart.model.packed import Segment
from headstart.pacing import Plan
from headstart.types import NO_DRAFT, Draft, FinishReason, Seconds, Step

if TYPE_CHECKING:
    from torch import Tensor

    from headstart.engine.guarded_drafter import GuardedDrafter
    from headstart.engine.guards import GuardedPacing
    from headstart.engine.judging import Judge, Outcome
    from headstart.engine.request import Request
    from headstart.engine.scheduler import Scheduler
    from headstart.model.cache import Slots
    from headstart.model.runner import ModelRunner
    from headstart.rule.row import Row


class StepLoop:
    """Advances the requests of a scheduler.

    Args:
        target: the model whose distribution is kept.
        cache: of the target.
        scheduler: says who runs.
        drafter: guesses tokens.
        pacing: says how many each row may guess.
        judge: decides what is kept of the guesses.
    """

    def __init__(
        self,
        target: ModelRunner,
        cache: Slots,
        scheduler: Scheduler,
        drafter: GuardedDrafter,
        pacing: GuardedPacing,
        judge: Judge,
    ) -> None:
        self.pacing = pacing
        self.listeners = Listeners()
        self.recorders = Recorders()
        self._target = target
        self._cache = cache
        self._scheduler = scheduler
        self._drafter = drafter
        self.judge = judge

    def step(self) -> list[Step]:
        """Advance the running requests by one target forward; returns one event for each that had a part in it.

        Pacing, drafter, forward and judge change nothing that another request or a later step could see, except for
        what they keep for themselves. Only `_commit`, and `_record` after it, change the cache and the requests.
        """
        clock = _Clock()
        self._scheduler.admit()
        requests, rows, plan = self._plan()
        if not rows:
            return []
        clock.lap("plan")
        drafts = self._drafter.propose(rows)
        clock.lap("draft")
        segments = [
            Segment(row.slot, row.feed, draft, judged=len(draft) + 1 if row.judged else 0)
            for row, draft in zip(rows, drafts, strict=True)
        ]
        forward = self._target.forward(segments, self._cache, taps=self._drafter.taps)
        experts = self._target.experts_touched
        clock.lap("verify")
        outcomes = self.judge.outcomes(rows, drafts, forward.logits)
        clock.lap("sample")
        emitted = [self._commit(*each) for each in zip(requests, rows, outcomes, strict=True)]
        clock.lap("commit")
        hidden = forward.hidden_of(segments)
        observations = [
            self._record(request, row, draft, outcome, tokens, states, len(rows), clock, experts)
            for request, row, draft, outcome, tokens, states in zip(
                requests, rows, drafts, outcomes, emitted, hidden, strict=True
            )
        ]
        steps = [observation.step for observation in observations]
        self.pacing.observe(plan, steps)
        for request, observation in zip(requests, observations, strict=True):
            self._publish(request, observation)
        prompts = sum(len(row.feed) for row in rows if len(row.feed) > 1)
        self._scheduler.chunks.took(prompts, clock.passed, [each for draft in drafts for each in draft.caught_up])
        return steps

    def _plan(self) -> tuple[Sequence[Request], Sequence[Row], Plan]:
        """The requests that have a part in this step, their rows with the budgets that pacing gives them, and its
        plan."""
        found = self._scheduler.rows()
        if not found:
            return (), (), Plan(())
        requests, rows = zip(*found, strict=True)
        return requests, *self.pacing.plan(rows)

    def _commit(self, request: Request, row: Row, outcome: Outcome) -> tuple[int, ...]:
        """Change cache and request; returns the tokens that were emitted. All rows are committed before the first is
        published."""
        self._cache.keep(row.slot, len(row.feed), outcome.path)
        request.explain(row.budget)
        self._note_failures(request)
        emitted = request.extend(outcome.tokens)
        if outcome.error is not None and request.finish_reason is None:
            request.error, request.finish_reason = outcome.error, "error"
        return emitted

    def _record(
        self,
        request: Request,
        row: Row,
        draft: Draft,
        outcome: Outcome,
        emitted: tuple[int, ...],
        hidden: Mapping[int, Tensor],
        batch: int,
        clock: _Clock,
        experts: int | None,
    ) -> Observation:
        """What the step made of a request, as an event and for the drafter. A request that has ended leaves."""
        feed = len(row.feed)
        step = Step(
            request=request.number,
            index=request.steps,
            position=len(row.tokens),
            draft=draft,
            path=outcome.path,
            tokens=emitted,
            logprobs=None if outcome.logprobs is None else outcome.logprobs[: len(emitted)],
            rows=feed + len(draft),
            batch=batch,
            seconds=clock.seconds,
            finish_reason=request.finish_reason,
            speculation=request.speculation,
            budget=row.budget,
            began=clock.began,
            experts=experts,
        )
        cached = (*row.feed, *(draft.tokens[node] for node in outcome.path))
        start = self._cache.lengths[row.slot] - len(cached)
        request.record(step)
        if request.finish_reason is not None:
            self._scheduler.remove(request)
        return Observation(step, cached, start, _kept(hidden, feed, outcome.path), row, outcome.distributions)

    # -- around a step --------------------------------------------------------------------------------------------

    def _publish(self, request: Request, observation: Observation) -> None:
        """Show the step to drafter, listeners and recorders; a failure of one hurts no request and no other."""
        step = observation.step
        if request.speculation.on:
            self._drafter.observe(observation)
        if request.finish_reason is not None:
            self._drafter.release(request.number)
            self.pacing.release(request.number)
        self._note_failures(request)
        self.listeners.publish(step)
        self.recorders.publish(observation, request)

    def _note_failures(self, request: Request) -> None:
        """End speculation where drafter or pacing have failed."""
        failure = self._drafter.failures.pop(request.number, None) or self.pacing.failure
        if failure is not None and request.speculation.on:
            request.stop_speculating(failure.message, failure)

    def time_plain_step(self) -> tuple[Sequence[Row], float] | None:
        """See `Engine.time_plain_step`."""
        rows = [row for _, row in self._scheduler.rows()]
        if not rows or not all(row.judged and len(row.feed) == 1 for row in rows):
            return None
        began = time.perf_counter()
        segments = [Segment(row.slot, row.feed, NO_DRAFT, judged=1) for row in rows]
        logits = self._target.forward(segments, self._cache).logits
        self.judge.outcomes(rows, [NO_DRAFT] * len(rows), logits)
        return rows, time.perf_counter() - began

    def end(self, request: Request, reason: FinishReason) -> None:
        """Close a request between steps, with an event of its own."""
        request.finish_reason = reason
        step = Step(
            request=request.number,
            index=request.steps,
            position=len(request.tokens),
            draft=NO_DRAFT,
            path=(),
            tokens=(),
            logprobs=None,
            rows=0,
            batch=0,
            seconds=Seconds(),
            finish_reason=reason,
            speculation=request.speculation,
        )
        request.record(step)
        self._scheduler.remove(request)
        self._publish(request, Observation(step))


class _Clock:
    """Splits a step's wall-clock time."""

    def __init__(self) -> None:
        self._laps: dict[str, float] = {}
        self.began = self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._laps[name] = now - self._last
        self._last = now

    @cached_property
    def seconds(self) -> Seconds:
        """After the last lap; one value for all requests."""
        return Seconds(**self._laps)

    @property
    def passed(self) -> float:
        """Seconds since the step began."""
        return time.perf_counter() - self.began


def _kept(hidden: Mapping[int, Tensor], feed: int, path: Sequence[int]) -> Mapping[int, Tensor]:
    """The hidden states of the rows that stay in the cache: the fed tokens and the accepted path."""
    if not hidden:
        return hidden
    if list(path) != list(range(len(path))):
        device = next(iter(hidden.values())).device
        rows = torch.tensor([*range(feed), *(feed + node for node in path)], device=device)
        return {layer: states.index_select(0, rows) for layer, states in hidden.items()}
    count = feed + len(path)
    return {layer: states if states.shape[0] == count else states[:count] for layer, states in hidden.items()}
