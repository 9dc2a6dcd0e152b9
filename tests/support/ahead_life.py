"""Steps of an engine that does not exist, whose drafter can draft beside a target that it slows down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from headstart.drafters.foreseeing.ahead_or_in_turn import AheadOrInTurn
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.costs import CurrentCosts
from headstart.pacing.source import Source
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Budget, Draft, Preparation, Seconds, Speculation, Step
from support.rows import a_row

ROWS = tuple((n, 0.01 * (1 + 0.01 * n)) for n in (1, 2, 4, 8, 16, 32, 64))
NAME = "ahead:draft"


@dataclass
class AheadLife:
    """One machine: how often an outcome was foreseen, how much slower the target is meanwhile, and what a drafted token
    costs. profiled: what pacing believes of the first two at the start. ahead: False is the same drafter in turn."""

    hit: float
    slowing: float
    token: float
    acceptance: float = 0.8
    profiled: tuple[float, float] = (0.6, 0.0)
    ahead: bool = True
    always: bool = False
    batch: int = 1
    noise: float = 0.05
    spent: float = 0.0
    plain: float = 0.0
    nodes: list[int] = field(default_factory=list)
    beside: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        hidden, slowing = self.profiled if self.ahead else (0.0, 0.0)
        cost = DraftCost(0.0, self.token, 0.0, 0.1)
        self.truth = CurrentCosts(StepCosts(ROWS, 0.0, {NAME: cost}), [NAME])
        costs = StepCosts(ROWS, 0.0, {NAME: replace(cost, hidden=hidden, slowing=slowing)})
        self.pacing = AdaptivePacing([Source(NAME, 12)], costs, clock=lambda: 0.0)
        self.quicker = AheadOrInTurn()
        self.rng = np.random.default_rng(0)
        self.positions = [10] * self.batch
        self.foreseen = [False] * self.batch

    def step(self) -> list[Budget]:
        plan = self.pacing.plan([a_row(r, at, 500) for r, at in enumerate(self.positions)])
        budgets = list(plan.budgets)
        sizes = [budget.nodes for budget in budgets]
        beside = self.ahead and any(sizes) and (self.always or self.quicker.ahead)
        hits = [bool(k) and seen and self.rng.random() < self.hit for k, seen in zip(sizes, self.foreseen, strict=True)]
        late = [k for k, hit in zip(sizes, hits, strict=True) if k and not hit]
        drafting = self.truth.in_turn(0, (max(late, default=0),) * 2, len(late)) + 1e-5 * any(sizes)
        judging = self.truth.step(self.batch, self.batch + sum(sizes)) * (1 + self.slowing * beside)
        seconds = Seconds(draft=drafting * self.hiccup(), verify=judging * self.hiccup())
        steps = []
        for r, (budget, hit) in enumerate(zip(budgets, hits, strict=True)):
            steps.append(self.judge(r, budget, hit, beside, seconds))
            self.foreseen[r] = beside and budget.nodes > 0
        self.pacing.observe(plan, steps)
        self.spent += seconds.draft + seconds.verify
        self.nodes.append(sum(sizes))
        self.beside.append(beside)
        return budgets

    def judge(self, r: int, budget: Budget, hit: bool, beside: bool, seconds: Seconds) -> Step:
        right = self.rng.random(budget.nodes) < self.acceptance
        accepted = len(right) if right.all() else int(right.argmin())
        draft = Draft()
        if budget.nodes:
            prepared = Preparation(hit, branches=8 * self.foreseen[r], beside=beside) if self.ahead else None
            draft = replace(Draft.chain((0,) * budget.nodes), source=NAME, prepared=prepared)
        step = Step(
            r, 0, self.positions[r], draft, tuple(range(accepted)), (0,) * (accepted + 1), None, 1 + len(draft),
            self.batch, seconds, None, Speculation(True, "x"), budget,
        )  # fmt: skip
        self.quicker.observe(step, NAME)
        self.positions[r] += accepted + 1
        self.plain += (accepted + 1) * self.truth.step(self.batch, self.batch) / self.batch
        return step

    def hiccup(self) -> float:
        return float(np.exp(self.noise * self.rng.standard_normal()))

    def run(self, steps: int) -> float:
        """Tokens per second over those of plain decoding, of these steps alone."""
        self.spent = self.plain = 0.0
        self.nodes.clear()
        self.beside.clear()
        for _ in range(steps):
            self.step()
        return self.plain / self.spent
