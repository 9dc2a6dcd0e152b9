"""The simple rule, to compare with: one more where the last five rounds went well, one less where they did not."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from headstart.pacing import Pacing, Plan
from headstart.rule.row import Row
from headstart.types import Budget, Step

_ROUNDS = 5
_LEAST, _MOST = 2, 10
_START = 5
_GOOD, _BAD = 0.8, 0.5


class StepwisePacing(Pacing):
    """K + 1 if the last five rounds accepted over 80% of what was drafted, K - 1 if under 50%; between 2 and 10."""

    name = "stepwise"

    def __init__(self) -> None:
        self._k: dict[int, int] = {}
        self._last: dict[int, deque[tuple[int, int]]] = {}

    def plan(self, rows: Sequence[Row]) -> Plan:
        budgets = []
        for row in rows:
            k = self._k.get(row.request, _START)
            budgets.append(Budget(k, f"K={k}, stepwise"))
        return Plan(budgets)

    def observe(self, plan: Plan, steps: Sequence[Step]) -> None:  # noqa: ARG002
        for step in steps:
            if len(step.draft):
                self._judge(step)

    def _judge(self, step: Step) -> None:
        last = self._last.setdefault(step.request, deque(maxlen=_ROUNDS))
        last.append((len(step.path), len(step.draft)))
        if len(last) == _ROUNDS:
            rate = sum(kept for kept, _ in last) / sum(drafted for _, drafted in last)
            change = (rate > _GOOD) - (rate < _BAD)
            self._k[step.request] = min(_MOST, max(_LEAST, self._k.get(step.request, _START) + change))

    def release(self, request: int) -> None:
        self._k.pop(request, None)
        self._last.pop(request, None)
