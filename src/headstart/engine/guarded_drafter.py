"""What a drafter does wrong must not hurt the text: a drafter that raises, or proposes what is no draft, is contained.

It is not asked again for the requests concerned; their stats carry a typed reason, and the target goes on alone. What
a drafter says of itself is read once, when an engine is made, where a drafter that cannot be used is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import index

from headstart.base.errors import CONTAINED, DrafterFailed, HeadstartError, InvalidOption
from headstart.drafters import Drafter, Foresees, Observation, Row, capabilities, may_draft
from headstart.drafters.forced import as_if_come, behind, first_run, with_certain, without_asking
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
            parts = capabilities.parts(drafter)
            self.sources = tuple(str(part.name) for part in parts)
            self.taps = tuple(map(index, capabilities.taps(drafter)))
            self.draws = capabilities.draws(drafter)
            self._reading = tuple(part for part in parts if capabilities.reads_unsettled(part))
            self.default_budget = index(drafter.default_budget)
        if self.taps and not 0 <= min(self.taps) <= max(self.taps) <= target.layers:
            raise InvalidOption(
                f"the drafter {self.name} taps the layers {self.taps}",
                hint=f"this target has the inputs of layers 0 to {target.layers - 1}, and {target.layers} for its end",
            )
        self._check = DraftCheck(target.vocab_size)

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        """A draft for each row: what is certain there, and what the drafter guesses. Nothing is guessed where the row
        has no budget or the drafter failed."""
        runs = {row.request: first_run(row) for row in rows if row.room > 0 and row.sampling_state.masks}
        wanting = [row for row in rows if row.budget.nodes > 0]
        drafts: dict[int, Draft] = {}
        try:
            asked: list[Row] = []
            for row in wanting:
                run = runs.get(row.request)
                if run and self._goes_behind(row, run):
                    asked.append(as_if_come(row, run))
                    continue
                known = None if run is None else without_asking(row, self.drafter, run)
                if known is not None:
                    drafts[row.request] = self._marked(row, self._check.take(known, row.room, self.name))
                elif capabilities.applies(self.drafter, row):
                    asked.append(row)
            proposed = self.drafter.propose(asked) if asked else ()
            rows_of = {row.request: row for row in wanting}
            for shown, draft in zip(asked, proposed, strict=True):
                row = rows_of[shown.request]
                drafts[row.request] = self._taken(row, draft, runs.get(row.request), shown)
        except CONTAINED as error:  # whatever it is, the target goes on
            self._fail([row.request for row in wanting], error)
            drafts = {}
        found = [(drafts.get(row.request, NO_DRAFT), runs.get(row.request, NO_DRAFT)) for row in rows]
        return [_caught_up(draft or run, draft) for draft, run in found]

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

    def _goes_behind(self, row: Row, run: Draft) -> bool:
        """Whether the drafter is asked for what follows a run that is certain."""
        if len(run) >= row.room or not capabilities.applies(self.drafter, row):
            return False
        return any(row.budget.max_nodes.get(part.name, 1) > 0 and may_draft(part, row) for part in self._reading)

    def _taken(self, row: Row, draft: Draft, run: Draft | None, shown: Row) -> Draft:
        """The draft as the rule takes it. Where it is refused, its own request alone goes on without.

        run: what is certain after x0; None where nothing can be. shown: the row that the drafter was shown.
        """
        try:
            taken = self._check.take(draft, shown.budget.nodes, self.name)
            if run is None:
                return taken
            if taken.q is None and not taken.is_chain:
                taken = allowed_part(taken, shown.sampling_state.place)
            splice = with_certain if shown is row else behind
            whole = splice(row, self.drafter, taken, run)
            checked = whole if whole is taken else self._check.take(whole, row.room, self.name)
            return _caught_up(self._marked(row, checked), taken)
        except DrafterFailed as failure:
            self.failures[row.request] = failure
            return NO_DRAFT

    def _marked(self, row: Row, draft: Draft) -> Draft:
        """The draft, in which the nodes are named that are certain."""
        places = [row.sampling_state.place]
        forced = []
        for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            above = places[parent + 1]
            if above.forced() == token:
                forced.append(node)
            places.append(above.after((token,)))
        return replace(draft, forced=tuple(forced)) if forced else draft

    def _fail(self, requests: Sequence[int], error: BaseException) -> None:
        failure = DrafterFailed(
            f"the drafter raised {in_words(error)}",
            hint="the text is the target's own; report the drafter's traceback",
        )
        failure.__cause__ = error
        self.failures.update(dict.fromkeys(requests, failure))


def _caught_up(draft: Draft, asked: Draft) -> Draft:
    """The draft that a row gets, with what was read for the one that its drafter was asked for."""
    return draft if draft.caught_up == asked.caught_up else replace(draft, caught_up=asked.caught_up)


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
