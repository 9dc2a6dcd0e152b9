"""How much each row may draft in the next step. A pacing decides it once per step, for all rows at once.

Whatever it decides, the text keeps its distribution: a budget is fixed before a single draft token of its round exists
(docs/concepts/pacing.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headstart.base.options import check_number
from headstart.pacing.reasons import not_guessing
from headstart.rule.row import Row
from headstart.types import Budget, Step

__all__ = ["FixedPacing", "Pacing", "Plan", "Row"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pacing decided for one step. A pacing that wants to see more of it again in `observe` adds fields in a
    subclass."""

    budgets: Sequence[Budget]
    """One for each row, in the order of the rows."""


class Pacing(Protocol):
    """Plans every step before it runs, and observes it afterwards."""

    name: str

    def plan(self, rows: Sequence[Row]) -> Plan:
        """How much each row may draft. The rows are all those of the coming step."""
        ...

    def observe(self, plan: Plan, steps: Sequence[Step]) -> None:
        """What became of a plan: one step for each of its rows, in their order. It is called once for each plan, before
        any of these requests is released."""
        ...

    def release(self, request: int) -> None:
        """Forget a request. It is called once, when the request ends."""
        ...


class FixedPacing(Pacing):
    """The same K for every row and step."""

    name = "fixed"

    def __init__(self, k: int) -> None:
        check_number("num_speculative_tokens", k, low=0, integer=True)
        reason = f"K={k}, fixed"
        self._budget = Budget(k, reason, idle="" if k else not_guessing(reason))

    def plan(self, rows: Sequence[Row]) -> Plan:
        return Plan([self._budget] * len(rows))

    def observe(self, plan: Plan, steps: Sequence[Step]) -> None:
        pass

    def release(self, request: int) -> None:
        pass
