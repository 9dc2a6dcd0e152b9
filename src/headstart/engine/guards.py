"""What a pacing or a listener does wrong must not hurt the text: guards that contain and report it.

A pacing that raises or answers nonsense is not asked again; stats carry a typed reason, and the target goes on alone. A
listener that raises is logged; the others still get the step. A recorder that raises is logged and called no more: what
it has written must not have a hole in it. Drafters have a file of their own, `guarded_drafter`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from headstart.base.errors import CONTAINED, HeadstartError, InvalidOption, PacingFailed
from headstart.engine.in_words import in_words
from headstart.pacing import Plan
from headstart.types import Budget, Step

if TYPE_CHECKING:
    from headstart.drafters import Observation, Row
    from headstart.engine.request import Request
    from headstart.pacing import Pacing

Recorder: TypeAlias = "Callable[[Observation, Request], None]"
PACING_HINT = "a pacing has plan(rows) -> headstart.pacing.Plan, observe(plan, steps) and release(request)"
log = logging.getLogger(__name__)


class GuardedPacing:
    """A pacing that never raises. After its first failure nothing is drafted any more, because of `failure`.

    idle: why the last step had no row for which something is guessed, in a sentence; empty where one had.

    Raises:
        InvalidOption: the pacing's `observe` does not take a plan and its steps, as that of older versions.
    """

    def __init__(self, pacing: Pacing) -> None:
        try:
            inspect.signature(pacing.observe).bind(Plan(()), ())
        except TypeError:
            name = type(pacing).__name__
            raise InvalidOption(f"{name}.observe does not take (plan, steps)", hint=PACING_HINT) from None
        self.pacing = pacing
        self.failure: HeadstartError | None = None
        self.idle = ""

    def plan(self, rows: Sequence[Row]) -> tuple[list[Row], Plan]:
        """The rows, each with its budget, and the plan for `observe`."""
        if self.failure is None:
            try:
                plan = self.pacing.plan(rows)
                if not isinstance(plan, Plan):
                    raise InvalidOption(f"plan() returned a {type(plan).__name__}, not a Plan", hint=PACING_HINT)
                budgets = plan.budgets
                told = [budget.idle for budget in budgets if budget.reason]  # others have no room for a draft
                if told:
                    self.idle = told[0] if all(told) else ""
                within = [row.with_budget(budget.within(row.room)) for row, budget in zip(rows, budgets, strict=True)]
                return within, plan
            except CONTAINED as error:  # whatever it is, the target goes on
                self._fail(error)
        budget = Budget(0, str(self.failure))
        return [row.with_budget(budget) for row in rows], Plan([budget] * len(rows))

    def observe(self, plan: Plan, steps: Sequence[Step]) -> None:
        self._guarded(lambda: self.pacing.observe(plan, steps))

    def release(self, request: int) -> None:
        self._guarded(lambda: self.pacing.release(request))

    def _guarded(self, action: Callable[[], None]) -> None:
        if self.failure is None:
            try:
                action()
            except CONTAINED as error:  # whatever it is, the target goes on
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        log.exception("the pacing %s raised; nothing is drafted any more", self.pacing.name)
        self.failure = PacingFailed(
            f"the pacing raised {in_words(error)}",
            hint="the text is the target's own; report the pacing's traceback",
        )
        self.failure.__cause__ = error
        self.idle = f"not guessing: {self.failure.message}"


class Listeners:
    """Functions that are called with every step."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Step], None]] = []

    def add(self, listener: Callable[[Step], None]) -> Callable[[], None]:
        """Returns a function that takes it out again."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def publish(self, step: Step) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(step)
            except CONTAINED:  # whatever it is, the text goes on
                log.exception("a listener raised at step %d of request %d", step.index, step.request)


class Recorders:
    """Functions that are shown what every step made of each request, distributions included. Without any, nothing is
    done."""

    def __init__(self) -> None:
        self._recorders: list[Recorder] = []

    def add(self, recorder: Recorder) -> Callable[[], None]:
        """Returns a function that takes it out again."""
        self._recorders.append(recorder)
        return lambda: self._remove(recorder)

    def publish(self, observation: Observation, request: Request) -> None:
        if self._recorders:
            for recorder in tuple(self._recorders):
                try:
                    recorder(observation, request)
                except CONTAINED:  # whatever it is, the text goes on
                    log.exception("a recorder raised at step %d of request %d", observation.step.index, request.number)
                    self._remove(recorder)

    def _remove(self, recorder: Recorder) -> None:
        if recorder in self._recorders:
            self._recorders.remove(recorder)
