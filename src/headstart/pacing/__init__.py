"""How much each row may draft in the next step. A pacing is asked once per step, for all rows at once.

Whatever it answers, the text keeps its distribution: a budget is fixed before a single draft token of its round exists
(docs/concepts/pacing.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headstart.base.options import check_number
from headstart.pacing.reasons import not_guessing
from headstart.rule.row import Row
from headstart.types import Budget, Step

__all__ = ["FixedPacing", "Pacing", "Row"]


class Pacing(Protocol):
    """Asked before every step, told after it."""

    name: str

    def plan(self, rows: Sequence[Row]) -> Sequence[Budget]:
        """One budget for each row, in order. The rows are all those of the coming step."""
        ...

    def observe(self, step: Step) -> None:
        """What became of one row of the last step."""
        ...

    def release(self, request: int) -> None:
        """Forget a request; called once when it ends."""
        ...


class FixedPacing(Pacing):
    """The same K for every row and step."""

    name = "fixed"

    def __init__(self, k: int) -> None:
        check_number("num_speculative_tokens", k, low=0, integer=True)
        reason = f"K={k}, fixed"
        self._budget = Budget(k, reason, idle="" if k else not_guessing(reason))

    def plan(self, rows: Sequence[Row]) -> Sequence[Budget]:
        return [self._budget] * len(rows)

    def observe(self, step: Step) -> None:
        pass

    def release(self, request: int) -> None:
        pass
