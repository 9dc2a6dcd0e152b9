"""For how long decisions stand, and what they count with."""

from __future__ import annotations

from typing import Any

import pytest
from support.pacing_life import FLAT, event
from support.rows import a_row

from headstart.pacing.belief import SourcePrior
from headstart.pacing.constants import SETTLED_STEPS
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.source import Source
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Draft


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
