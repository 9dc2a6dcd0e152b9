"""Pacing while a source catches up with a text piece by piece: that is no answer, and does not say what drafts take."""

from __future__ import annotations

import pytest
from support.pacing_life import FLAT, event
from support.rows import a_row

from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.source import Source
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Budget, CaughtUp, Draft

PIECE, PLAIN = 100, 0.0101


class Catching:
    """One request at a position, whose source reads pieces before it drafts. token, read: of its profile."""

    def __init__(self, position: int, token: float = 0.001, read: float = 1e-5) -> None:
        costs = StepCosts(FLAT, 0.0, {"draft": DraftCost(0.0, token, read, 0.1)})
        self.pacing = AdaptivePacing([Source("draft", 12)], costs, clock=lambda: 0.0)
        self.position, self.held = position, 0

    def step(self, *, seconds: float = 0.0) -> tuple[Budget, Draft]:
        """A step whose drafting takes so long."""
        plan = self.pacing.plan([a_row(0, self.position, 4000)])
        (budget,) = plan.budgets
        draft = self._draft(budget)
        accepted = len(draft)
        step = event(0, self.position, budget, draft, accepted, 1, seconds, PLAIN + 1e-4 * accepted)
        self.pacing.observe(plan, [step])
        self.position += accepted + 1
        return budget, draft

    def _draft(self, budget: Budget) -> Draft:
        if not budget.nodes:
            return Draft()
        lacking = self.position - self.held
        read = min(PIECE, lacking)
        self.held += read
        if read < lacking:
            return Draft(caught_up=(CaughtUp("draft", read, lacking - read),))
        return Draft((0,) * budget.nodes, tuple(range(-1, budget.nodes - 1)), source="draft")

    @property
    def coverage(self) -> float:
        return float(self.pacing._states[0].beliefs[0].coverage())

    @property
    def unread(self) -> int:
        return self.position - self.pacing._states[0].read[0]


def test_what_is_not_drafted_yet_is_no_answer() -> None:
    life = Catching(1000)
    life.step()
    believed = life.coverage
    lacks = []
    for _ in range(8):
        budget, draft = life.step()
        assert budget.nodes > 0, "it is asked on"
        assert not len(draft)
        assert life.coverage == pytest.approx(believed)
        lacks.append(life.unread)
    assert lacks == sorted(lacks, reverse=True), "what it lacks becomes less"
    assert lacks[0] - lacks[-1] == 7 * (PIECE - 1)
    life.step()
    budgets = [life.step() for _ in range(3)]
    assert all(len(draft) == budget.nodes > 0 for budget, draft in budgets)


@pytest.mark.parametrize("seconds", [1e-6, 0.5])
def test_steps_of_reading_teach_no_costs(seconds: float) -> None:
    life = Catching(4000)
    for _ in range(30):
        assert not len(life.step(seconds=seconds)[1])
    costs = life.pacing._shared.costs
    assert costs.level(0) == pytest.approx(0.001)
    assert not costs.has_timed(0)


def test_a_trial_goes_on_until_the_source_has_answered() -> None:
    """It has been paid for, with all that there is to read."""
    life = Catching(10, token=0.0093)  # so dear that it is asked on trial alone
    tried: list[int] = []
    for number in range(600):
        if number == 300:
            life.held -= 450  # as if it had not seen the last of the text
        budget, draft = life.step(seconds=0.0093 if tried else 0.0)
        tried.append(budget.nodes)
        if budget.nodes and not len(draft):
            following, _ = life.step()
            assert following.nodes > 0, "a trial ended before it was answered"
            return
    raise AssertionError("nothing was tried")
