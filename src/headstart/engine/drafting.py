"""The engine's side of drafting: asks the drafter, holds it to its contract, and survives it.

A drafter may raise, propose nonsense or be absent; the target's text must not suffer. A failure ends speculation
for the requests concerned, with a typed reason in their stats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headstart.drafters import DraftContext, Drafter, Observation
from headstart.engine.request import Request
from headstart.engine.scheduler import Plan, PlanRow
from headstart.errors import DrafterFailed
from headstart.rule.noise import Purpose
from headstart.types import Draft, Rule, Speculation

NO_DRAFT = Draft()


class Drafting:
    """A drafter that never raises; without one, every draft is empty and plain decoding is what remains."""

    def __init__(self, drafter: Drafter | None, *, rule: Rule, vocab_size: int, reason: str) -> None:
        self.drafter = drafter
        self.name = "none" if drafter is None else drafter.name
        self.default_budget = 0 if drafter is None else drafter.default_budget
        self.taps = () if drafter is None else drafter.taps
        self.draws = drafter is not None and drafter.draws
        self.reads = drafter is not None and drafter.reads
        # Point masses, and the noise of rule "coupled", give a seed one text whatever the drafts
        self.pins = rule == "exact" and self.draws
        self.initial = Speculation(drafter is not None, self.name, "" if drafter is not None else reason)
        # Under rule "coupled" a drafter that draws uses the very noise the target will use
        self._purpose = Purpose.TOKEN if rule == "coupled" else Purpose.DRAFT
        self._vocab_size = vocab_size

    def propose(self, plan: Plan) -> list[Draft]:
        """A draft for each row of the plan, empty where the row has no budget or the drafter failed."""
        drafts: dict[int, Draft] = {}
        wanted = [row for row in plan.rows if row.budget.nodes > 0]
        if wanted and self.drafter is not None:
            try:
                proposed = self.drafter.propose([self._context(row) for row in wanted])
                for row, draft in zip(wanted, proposed, strict=True):
                    self._check(draft, row.budget.nodes)
                    named = draft.source or not len(draft)
                    drafts[row.request.number] = draft if named else replace(draft, source=self.name)
            except Exception as error:  # whatever it is, the target goes on
                drafts = {}
                self._fail([row.request for row in wanted], error)
        return [drafts.get(row.request.number, NO_DRAFT) for row in plan.rows]

    def observe(self, request: Request, observation: Observation) -> None:
        if self.drafter is None or not request.speculation.on:
            return
        try:
            self.drafter.observe(observation)
        except Exception as error:  # as above
            self._fail([request], error)

    def release(self, request: Request) -> None:
        if self.drafter is None:
            return
        try:
            self.drafter.release(request.number)
        except Exception as error:  # as above
            self._fail([request], error)

    def _context(self, row: PlanRow) -> DraftContext:
        request = row.request
        return DraftContext(
            request.number,
            request.tokens,
            row.budget.nodes,
            request.law,
            request.noise,
            self._purpose,
            row.budget.caps,
            request.sampling.cache_salt,
            row.slot,
            row.budget.worth,
            self.pins and request.seeded,
        )

    def _check(self, draft: Draft, budget: int) -> None:
        if len(draft) > budget:
            raise ValueError(f"{len(draft)} nodes for a budget of {budget}")
        if any(not 0 <= token < self._vocab_size for token in draft.tokens):
            raise ValueError(f"a draft token is outside the vocabulary of {self._vocab_size}")
        if draft.q is not None and tuple(draft.q.shape) != (len(draft), self._vocab_size):
            raise ValueError(f"q has the shape {tuple(draft.q.shape)}, not {(len(draft), self._vocab_size)}")

    @staticmethod
    def _fail(requests: Sequence[Request], error: Exception) -> None:
        reason = f"the drafter raised {type(error).__name__}: {error}"
        failure = DrafterFailed(reason, hint="the text is the target's own; report the drafter's traceback")
        failure.__cause__ = error
        for request in requests:
            request.stop_speculating(reason, failure)
