"""For how long decisions stand, and what they count with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.pacing_life import FLAT, event
from support.rows import a_row

from headstart.pacing.belief import SourcePrior
from headstart.pacing.constants import SETTLED_STEPS
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.source import Source
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Purpose
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Draft, Sampling


def test_a_lone_rows_drafts_stand_until_one_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    pacing = AdaptivePacing([Source("ngram", 8)], StepCosts(FLAT, 0.0, {"ngram": DraftCost()}), clock=lambda: 0.0)
    group, at = pacing._shared, 0
    decisions: list[int] = []
    decide = group._decide

    def noted(*args: Any) -> Any:
        decisions.append(at)
        return decide(*args)

    monkeypatch.setattr(group, "_decide", noted)
    found = [True, True, True, False, False, False, False, False, False, True, False, False]
    for at, matches in enumerate(found):
        plan = pacing.plan([a_row(0, 10 + at, 500)])
        (budget,) = plan.budgets
        assert budget.nodes
        draft = Draft((0,) * budget.nodes, tuple(range(-1, budget.nodes - 1)), source="ngram") if matches else Draft()
        pacing.observe(plan, [event(0, 10 + at, budget, draft, 0, 1, 0.0, 0.01)])
    after_a_draft = {at + 1 for at, matches in enumerate(found[:-1]) if matches}
    assert after_a_draft <= set(decisions)
    others = sorted(set(decisions) - after_a_draft - {0})
    assert others == [3 + SETTLED_STEPS]


def test_the_share_of_steps_with_a_draft_nears_that_of_the_long_run() -> None:
    prior = SourcePrior(Source("ngram", 8).sizes)
    for _ in range(200):  # stretches of four steps with a draft, and of eight without
        for step in range(12):
            prior.answered(0 < step <= 4, step < 4)
    now = [prior.coverage(drafted, 1) for drafted in (False, True)]
    assert now[0] < 0.25 < 0.6 < now[1]
    for steps in (4, 16, 1000):
        later = [prior.coverage(drafted, steps) for drafted in (False, True)]
        assert now[0] < later[0] < later[1] < now[1]
        now = later
    assert now[1] - now[0] < 0.01
    chances = [prior.coverage(drafted, 1) for drafted in (False, True)]
    share, total = chances[0], 0.0
    for _ in range(16):
        total += share
        share = (1 - share) * chances[0] + share * chances[1]
    assert prior.coverage(False, 16) == pytest.approx(total / 16)


@pytest.mark.parametrize(("purpose", "distributions"), [(Purpose.DRAFT, 5), (Purpose.TOKEN, 2)])
def test_a_walk_counts_the_distributions_up_to_the_first_miss(
    purpose: Purpose, distributions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under rule "coupled", whose drawn drafts are walked like any other; "exact" has all of a drawn draft's."""
    pacing = AdaptivePacing([Source("draft", 8)], StepCosts(FLAT, 0.0, {"draft": DraftCost()}), clock=lambda: 0.0)
    seen: list[int] = []
    observe = pacing._shared.costs.observe

    def noted(batch: int, rows: float, sampled: int, *rest: Any) -> Any:
        seen.append(sampled)
        return observe(batch, rows, sampled, *rest)

    monkeypatch.setattr(pacing._shared.costs, "observe", noted)
    sampling_state = SamplingState(Sampling(temperature=1.0), (), 9, frozenset())
    plan = pacing.plan([replace(a_row(0, 10, 500), sampling_state=sampling_state, purpose=purpose)])
    draft = Draft.chain((0,) * 4, torch.full((4, 9), 1 / 9))
    pacing.observe(plan, [event(0, 10, plan.budgets[0], draft, 1, 1, 0.0, 0.01)])
    assert seen == [distributions]
