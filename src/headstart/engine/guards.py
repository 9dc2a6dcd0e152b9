"""What a drafter, a pacing or a listener does wrong must not hurt the text: guards that contain and report it.

A drafter or pacing that raises or answers nonsense is not asked again for the requests concerned; their stats carry a
typed reason, and the target goes on alone. A listener that raises is logged; the others still get the step. A recorder
that raises is logged and called no more: what it has written must not have a hole in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from headstart.drafters import Drafter, Observation, Row
from headstart.engine.request import Request
from headstart.errors import DrafterFailed, HeadstartError, PacingFailed
from headstart.pacing import Pacing
from headstart.types import Budget, Draft, Step

Recorder = Callable[[Observation, Request], None]
NO_DRAFT = Draft()
log = logging.getLogger(__name__)


class GuardedDrafter:
    """A drafter that never raises.

    failures: by request, why the drafter is not asked for it any more; the engine takes them out at commit.
    """

    def __init__(self, drafter: Drafter, vocab_size: int) -> None:
        self.drafter = drafter
        self.failures: dict[int, HeadstartError] = {}
        self._vocab_size = vocab_size
        self._vocabularies: dict[str, Tensor] = {}

    @property
    def taps(self) -> tuple[int, ...]:
        """Layers of the target whose inputs it wants to be shown."""
        return self.drafter.taps

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        """A draft for each row, empty where the row has no budget or the drafter failed."""
        wanting = [row for row in rows if row.budget.nodes > 0]
        if not wanting:
            return [NO_DRAFT] * len(rows)
        try:
            asked = [row for row in wanting if self.drafter.applies(row)]
            proposed = self.drafter.propose(asked) if asked else ()
            drafts = {row.request: self._checked(row, draft) for row, draft in zip(asked, proposed, strict=True)}
        except Exception as error:  # whatever it is, the target goes on
            self._fail([row.request for row in wanting], error)
            return [NO_DRAFT] * len(rows)
        return [drafts.get(row.request, NO_DRAFT) for row in rows]

    def observe(self, observation: Observation) -> None:
        try:
            self.drafter.observe(observation)
        except Exception as error:  # whatever it is, the target goes on
            self._fail([observation.step.request], error)

    def release(self, request: int) -> None:
        try:
            self.drafter.release(request)
        except Exception as error:  # whatever it is, the target goes on
            self._fail([request], error)

    def _checked(self, row: Row, draft: Draft) -> Draft:
        if len(draft) > row.budget.nodes:
            raise ValueError(f"{len(draft)} nodes for a budget of {row.budget.nodes}")
        if any(not 0 <= token < self._vocab_size for token in draft.tokens):
            raise ValueError(f"a draft token is outside the vocabulary of {self._vocab_size}")
        width = self._vocab_size if draft.vocabulary is None else self._width_of(draft.vocabulary, draft.source)
        if draft.q is not None and tuple(draft.q.shape) != (len(draft), width):
            raise ValueError(f"q has the shape {tuple(draft.q.shape)}, not {(len(draft), width)}")
        return draft if draft.source or not len(draft) else replace(draft, source=self.drafter.name)

    def _width_of(self, vocabulary: Tensor, source: str) -> int:
        """The columns of a law over a part of the vocabulary. Each source's last one is looked through once."""
        if vocabulary is not self._vocabularies.get(source):
            ids = vocabulary.tolist()
            if len(set(ids)) < len(ids) or any(not 0 <= token < self._vocab_size for token in ids):
                raise ValueError(f"a vocabulary must name tokens below {self._vocab_size}, each once")
            self._vocabularies[source] = vocabulary
        return len(vocabulary)

    def _fail(self, requests: Sequence[int], error: Exception) -> None:
        failure = DrafterFailed(
            f"the drafter raised {type(error).__name__}: {error}",
            hint="the text is the target's own; report the drafter's traceback",
        )
        failure.__cause__ = error
        self.failures.update(dict.fromkeys(requests, failure))


class GuardedPacing:
    """A pacing that never raises. After its first failure nothing is drafted any more, because of `failure`.

    idle: why the last step had no row for which something is guessed, in a sentence; empty where one had.
    """

    def __init__(self, pacing: Pacing) -> None:
        self.pacing = pacing
        self.failure: HeadstartError | None = None
        self.idle = ""

    def plan(self, rows: Sequence[Row]) -> list[Row]:
        """The rows, each with its budget."""
        if self.failure is None:
            try:
                budgets = self.pacing.plan(rows)
                told = [budget.idle for budget in budgets if budget.reason]  # others have no room for a draft
                if told:
                    self.idle = told[0] if all(told) else ""
                return [row.with_budget(budget.within(row.room)) for row, budget in zip(rows, budgets, strict=True)]
            except Exception as error:  # whatever it is, the target goes on
                self._fail(error)
        budget = Budget(0, str(self.failure))
        return [row.with_budget(budget) for row in rows]

    def observe(self, step: Step) -> None:
        self._guarded(lambda: self.pacing.observe(step))

    def release(self, request: int) -> None:
        self._guarded(lambda: self.pacing.release(request))

    def _guarded(self, action: Callable[[], None]) -> None:
        if self.failure is None:
            try:
                action()
            except Exception as error:  # whatever it is, the target goes on
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.exception("the pacing %s raised; nothing is drafted any more", self.pacing.name)
        self.failure = PacingFailed(
            f"the pacing raised {type(error).__name__}: {error}",
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
            except Exception:  # whatever it is, the text goes on
                log.exception("a listener raised at step %d of request %d", step.index, step.request)


class Recorders:
    """Functions that are shown what every step made of each request, laws included. Without any, nothing is done."""

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
                except Exception:  # whatever it is, the text goes on
                    log.exception("a recorder raised at step %d of request %d", observation.step.index, request.number)
                    self._remove(recorder)

    def _remove(self, recorder: Recorder) -> None:
        if recorder in self._recorders:
            self._recorders.remove(recorder)
