"""How much each row may draft in the next step. A pacing is asked once per step, for all rows at once.

Whatever it answers, the text keeps its law: a budget is fixed before a single draft token of its round exists
(docs/concepts/pacing.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headstart.options import check_number
from headstart.types import Budget, Step


@dataclass(frozen=True, slots=True)
class PacingRow:
    """One request of the step to come, as a pacing sees it.

    tokens: how many are committed. room: the most draft tokens that could be of use; 0 where the row may not draft.
    pinned: a seed promises its text, and the text depends on the draft lengths: then they may depend on nothing but
    the request itself and what was known when the engine was loaded, so neither on clocks nor on other requests.
    """

    request: int
    tokens: int
    room: int
    pinned: bool = False


class Pacing(Protocol):
    """Asked before every step, told after it."""

    name: str

    def plan(self, rows: Sequence[PacingRow]) -> Sequence[Budget]:
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
        self._budget = Budget(k, f"K={k}, fixed")

    def plan(self, rows: Sequence[PacingRow]) -> Sequence[Budget]:
        return [self._budget] * len(rows)

    def observe(self, step: Step) -> None:
        pass

    def release(self, request: int) -> None:
        pass
