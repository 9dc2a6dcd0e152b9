"""What a drafter does wrong must not hurt the text: a drafter that raises, or proposes what is no draft, is contained.

It is not asked again for the requests concerned; their stats carry a typed reason, and the target goes on alone. What
a drafter says of itself is read once, when an engine is made, where a drafter that cannot be used is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import index

from headstart.base.errors import CONTAINED, DrafterFailed, HeadstartError, InvalidOption
from headstart.drafters import Drafter, Foresees, Observation, Row, capabilities
from headstart.engine.drafts import DraftCheck, allowed_part
from headstart.engine.in_words import in_words
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.types import NO_DRAFT, Draft


class GuardedDrafter:
    """A drafter that never raises, and what it says of itself.

    failures: by request, why the drafter is not asked for it any more; the engine takes them out at commit.

    Raises:
        DrafterFailed: it cannot say what it is.
        InvalidOption: it wants to be shown layers that the target has not.
    """

    def __init__(self, drafter: Drafter, target: ModelRunner) -> None:
        self.drafter = drafter
        self.failures: dict[int, HeadstartError] = {}
        with asking(drafter):
            self.name = str(drafter.name)
            self.sources = tuple(str(part.name) for part in capabilities.parts(drafter))
            self.taps = tuple(map(index, capabilities.taps(drafter)))
            self.draws = capabilities.draws(drafter)
            self.default_budget = index(drafter.default_budget)
        if self.taps and not 0 <= min(self.taps) <= max(self.taps) <= target.layers:
            raise InvalidOption(
                f"the drafter {self.name} taps the layers {self.taps}",
                hint=f"this target has the inputs of layers 0 to {target.layers - 1}, and {target.layers} for its end",
            )
        self._check = DraftCheck(target.vocab_size)

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        """A draft for each row, empty where the row has no budget or the drafter failed."""
        wanting = [row for row in rows if row.budget.nodes > 0]
        if not wanting:
            return [NO_DRAFT] * len(rows)
        try:
            asked = [row for row in wanting if capabilities.applies(self.drafter, row)]
            proposed = self.drafter.propose(asked) if asked else ()
            drafts = {row.request: self._taken(row, draft) for row, draft in zip(asked, proposed, strict=True)}
        except CONTAINED as error:  # whatever it is, the target goes on
            self._fail([row.request for row in wanting], error)
            return [NO_DRAFT] * len(rows)
        return [drafts.get(row.request, NO_DRAFT) for row in rows]

    def observe(self, observation: Observation) -> None:
        try:
            self.drafter.observe(observation)
        except CONTAINED as error:  # whatever it is, the target goes on
            self._fail([observation.step.request], error)

    def release(self, request: int) -> None:
        try:
            self.drafter.release(request)
        except CONTAINED as error:  # whatever it is, the target goes on
            self._fail([request], error)

    def _taken(self, row: Row, draft: Draft) -> Draft:
        """The draft as the rule takes it. Where it is refused, its own request alone goes on without."""
        try:
            taken = self._check.take(draft, row.budget.nodes, self.name)
            state = row.sampling_state
            return allowed_part(taken, state.place) if taken.q is None and state.masks else taken
        except DrafterFailed as failure:
            self.failures[row.request] = failure
            return NO_DRAFT

    def _fail(self, requests: Sequence[int], error: BaseException) -> None:
        failure = DrafterFailed(
            f"the drafter raised {in_words(error)}",
            hint="the text is the target's own; report the drafter's traceback",
        )
        failure.__cause__ = error
        self.failures.update(dict.fromkeys(requests, failure))


def attach(drafter: Drafter, target: ModelRunner, cache: Slots) -> None:
    """Attach a drafter to its target, and read all that an engine and its pacing will ask it about itself.

    Raises:
        DrafterFailed: that raised something that is not headstart's.
    """
    with asking(drafter):
        capabilities.attach(drafter, target, cache)
        for each in dict.fromkeys((drafter, *capabilities.parts(drafter))):
            _ = each.name, capabilities.limit(each), tuple(capabilities.sizes(each)), capabilities.copies(each)
            _ = isinstance(each, Foresees), capabilities.in_turn(each)


@contextmanager
def asking(drafter: object) -> Iterator[None]:
    """While an engine is made, what a drafter raises is a `DrafterFailed`, unless it is headstart's own error."""
    try:
        yield
    except HeadstartError:
        raise
    except CONTAINED as error:
        raise DrafterFailed(
            f"the drafter {type(drafter).__name__} cannot be used: it raised {in_words(error)}",
            hint="fix the drafter or use another one; its own traceback is the cause of this error",
        ) from error
