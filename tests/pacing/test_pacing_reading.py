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


class Readers:
    """Requests of a batch, the sources of which read pieces before they draft. tokens: by source, seconds of a draft's
    token. silent: sources that never have a draft."""

    def __init__(self, tokens: dict[str, float], positions: list[int], silent: tuple[str, ...] = ()) -> None:
        drafts = {name: DraftCost(0.0, token, 1e-8, 0.1) for name, token in tokens.items()}
        made = [Source(name, 12) for name in tokens]
        self.pacing = AdaptivePacing(made, StepCosts(FLAT, 0.0, drafts), clock=lambda: 0.0)
        self.tokens, self.positions, self.silent = tokens, dict(enumerate(positions)), silent
        self.held: dict[tuple[int, str], int] = {}

    def step(self) -> dict[int, Budget]:
        """What each request was allowed."""
        rows = [a_row(request, at, 4000) for request, at in self.positions.items()]
        plan = self.pacing.plan(rows)
        drafts = [self._draft(row.request, budget) for row, budget in zip(rows, plan.budgets, strict=True)]
        seconds = sum(self.tokens.get(draft.source, 0.0) * len(draft) for draft in drafts)
        steps = []
        for row, budget, draft in zip(rows, plan.budgets, drafts, strict=True):
            accepted = len(draft)
            verify = PLAIN + 1e-4 * sum(map(len, drafts))
            at = self.positions[row.request]
            steps.append(event(row.request, at, budget, draft, accepted, len(rows), seconds, verify))
            self.positions[row.request] += accepted + 1
        self.pacing.observe(plan, steps)
        return {row.request: budget for row, budget in zip(rows, plan.budgets, strict=True)}

    def _draft(self, request: int, budget: Budget) -> Draft:
        caught_up: tuple[CaughtUp, ...] = ()
        for name in self.tokens:
            nodes = min(budget.max_nodes.get(name, 0), budget.nodes)
            if not nodes or name in self.silent:
                continue
            held = self.held.get((request, name), 0)
            lacking = self.positions[request] - held
            read = min(PIECE, lacking)
            self.held[request, name] = held + read
            if read < lacking:
                caught_up += (CaughtUp(name, read, lacking - read),)
            else:
                return Draft((0,) * nodes, tuple(range(-1, nodes - 1)), source=name, caught_up=caught_up)
        return Draft(caught_up=caught_up)


def test_a_trial_does_not_go_on_because_another_source_reads() -> None:
    life = Readers({"dear": 0.03, "cheap": 0.001}, [40_000], silent=("dear",))
    budgets = [life.step()[0] for _ in range(350)]
    assert life.held[0, "cheap"] < 40_000, "it reads all the time"
    tried = sum(budget.max_nodes.get("dear", 0) > 0 for budget in budgets)
    assert 0 < tried <= 20


def dear(positions: list[int]) -> Readers:
    """Requests of a source so dear that it is asked on trial alone."""
    return Readers({"draft": 0.0105}, positions)


def test_a_trial_goes_on_for_those_alone_that_read() -> None:
    life = dear([4000] + [50] * 7)
    budgets = [life.step() for _ in range(500)]
    reader, others = (sum(each[request].nodes > 0 for each in budgets) for request in (0, 1))
    assert 40 <= reader <= 60, "it has read the text and answered"
    assert 0 < others <= 12


def test_a_trial_ends_with_its_request() -> None:
    life = dear([4000])
    while not life.step()[0].nodes:
        pass
    assert life.step()[0].nodes > 0
    life.pacing.release(0)
    life.positions = {1: 4000}
    assert not life.step()[1].nodes, "another request is not tried for what was paid for this one"
