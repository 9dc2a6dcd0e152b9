"""Steps of an engine that does not exist, for an adaptive pacing that does."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.costs import CurrentCosts
from headstart.pacing.source import Source
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Budget, Draft, Seconds, Speculation, Step
from support.rows import a_row

FLAT = tuple((n, 0.01 * (1 + 0.01 * n)) for n in (1, 2, 4, 8, 16, 32, 64))
STEEP = tuple((n, 0.01 * n) for n in (1, 2, 4, 8, 16, 32, 64))


class Life:
    """Steps of an engine that does not exist: who drafts, and how many of its guesses hold, is told."""

    def __init__(
        self,
        sources: dict[str, float],
        rows: Any = FLAT,
        limit: int = 12,
        batch: int = 1,
        read: float = 0.0,
        coverage: dict[str, float] | None = None,
        waits: Callable[[np.random.Generator], float] = lambda rng: 0.0,
        seed: int = 0,
        same_model: Collection[str] = (),
    ) -> None:
        """sources: seconds of a drafted token, in the order in which they are asked; read: of a token of context, of
        all but copying ones, which take no time; coverage: how often a source has a draft, 1 where it is not given;
        waits: seconds that a forward waits for other work on the machine; same_model: sources that are the target at a
        lower precision."""
        drafts = {name: DraftCost(0.0, token, read if token else 0.0, 0.1) for name, token in sources.items()}
        self.costs = StepCosts(rows, 0.0, drafts)
        self.coverage = coverage or {}
        self.known: dict[tuple[str, int], int] = {}
        self.names = list(sources)
        self.truth = CurrentCosts(self.costs, self.names)
        made = [Source(name, limit, same_model=name in same_model) for name in sources]
        self.pacing = AdaptivePacing(made, self.costs, clock=lambda: 0.0)
        self.positions = [10] * batch
        self.index = 0
        self.spent = self.plain = 0.0
        self.rng = np.random.default_rng(seed)
        self.waits = waits
        self.draft_waits: Callable[[np.random.Generator], float] = lambda rng: 0.0

    def step(self, acceptance: dict[str, float], room: int = 500) -> list[Budget]:
        """One engine step in which the first source with a cap drafts, and each guess holds with its acceptance."""
        rows = [a_row(r, at, room) for r, at in enumerate(self.positions)]
        plan = self.pacing.plan(rows)
        budgets, steps = list(plan.budgets), []
        drafts = [self._draft(budget) for budget in budgets]
        nodes = sum(len(draft) for draft in drafts)
        batch = len(rows)
        verify = self.truth.step(batch, batch + nodes) + self.waits(self.rng)
        drafting = sum(self.truth.draft(self.names.index(d.source), (len(d), len(d)), 1) for d in drafts if len(d))
        drafting += sum(self.draft_waits(self.rng) for draft in drafts if len(draft))
        reading = sum(self._read(draft.source, r) for r, draft in enumerate(drafts) if len(draft))
        for r, (budget, draft) in enumerate(zip(budgets, drafts, strict=True)):
            right = self.rng.random(len(draft)) < acceptance.get(draft.source, 0.0)
            accepted = len(draft) if right.all() else int(right.argmin())
            steps.append(event(r, self.positions[r], budget, draft, accepted, batch, drafting + reading, verify))
            self.positions[r] += accepted + 1
            self.plain += (accepted + 1) * self.truth.step(batch, batch) / batch
        self.pacing.observe(plan, steps)
        self.spent += verify + drafting + reading
        self.index += 1
        return budgets

    def answer(self, prompt: int, tokens: int, acceptance: dict[str, float]) -> None:
        """A request from its prompt to its end, after the last one's."""
        self.pacing.release(0)
        self.known.clear()
        self.positions = [prompt]
        while (room := prompt + tokens - self.positions[0]) > 0:
            self.step(acceptance, room - 1)

    def _read(self, source: str, request: int) -> float:
        """Seconds to read what a source has not read of a text."""
        place, at = self.names.index(source), self.positions[request]
        unread = at - self.known.get((source, request), 0) - 2
        self.known[source, request] = at
        return self.truth.read(place) * max(0, unread)

    def _draft(self, budget: Budget) -> Draft:
        for name in self.names:
            has_one = name not in self.coverage or self.rng.random() < self.coverage[name]
            if budget.max_nodes.get(name) and has_one:
                return Draft((0,) * budget.max_nodes[name], tuple(range(-1, budget.max_nodes[name] - 1)), source=name)
        return Draft()

    def run(self, steps: int, acceptance: dict[str, float]) -> list[int]:
        """Nodes of each step, of all rows."""
        return [sum(b.nodes for b in self.step(acceptance)) for _ in range(steps)]


def event(
    request: int, position: int, budget: Budget, draft: Draft, accepted: int, batch: int, draft_s: float, verify: float
) -> Step:
    return Step(
        request, 0, position, draft, tuple(range(accepted)), (0,) * (accepted + 1), None, 1 + len(draft), batch,
        Seconds(draft=draft_s, verify=verify), None, Speculation(True, "x"), budget,
    )  # fmt: skip
