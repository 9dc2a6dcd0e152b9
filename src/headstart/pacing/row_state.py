"""One request as pacing sees it: what is believed of each source, and how much of the text each has read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headstart.pacing.belief import Belief
from headstart.pacing.source import Source
from headstart.rule.row import Row
from headstart.types import Draft, Step

if TYPE_CHECKING:
    from headstart.pacing.group import Group


class Asked(NamedTuple):
    """The sources that one row asked for a draft in one step."""

    sources: Sequence[int] = ()
    unread: int = 0
    """Tokens that one of them had to read first."""
    waiting: Sequence[int] = ()
    """Those of them that still lack some of the text and have not said what they would draft."""


NOTHING_ASKED = Asked()


class RowState:
    """One request: what is believed of each source, and how much of the text each has read. row: any of its rows."""

    def __init__(self, group: Group, row: Row, sources: Sequence[Source]) -> None:
        self.group = group
        self._beliefs = [Belief(prior) for prior in group.priors]
        self.read = [0] * len(self._beliefs)
        self._length = len(row.tokens)  # of the text that the beliefs have drifted for
        self._told: tuple[Any, str] = (None, "")
        self.able = [source.may_draft is None or source.may_draft(row) for source in sources]
        """By source, whether it may be asked: the same for all rows of a request."""

    @property
    def beliefs(self) -> list[Belief]:
        """By source, after all that steps have shown."""
        self.group.settle()
        return self._beliefs

    def drift_to(self, length: int) -> None:
        """The text has so many tokens now."""
        if length > self._length:
            for belief in self._beliefs:
                belief.drift(length - self._length)
            self._length = length

    def reason_of(self, nodes: Sequence[int], make: Callable[[list[float]], str]) -> str:
        """The last reason, where it is of as many nodes by source and nearly true: chances of the same tenth are no
        news, and to put them in words takes a tenth of a decision's time. Else a new one.

        make: from the chance that the next guess of each source is accepted.
        """
        chances = [belief.chance for belief in self.beliefs]
        said = nodes, [round(chance, 1) for chance in chances]
        if said != self._told[0]:
            self._told = said, make(chances)
        return self._told[1]

    def learn(self, step: Step, sources: Sequence[Source], tried: int | None) -> Asked:
        """Judge the source that drafted, when the group settles. Those that were asked before it had no draft; of later
        ones nothing is known, but for what they would have drafted where the drafter says so.

        Args:
            tried: the source that was on trial for this request.
        """
        draft = step.draft
        if not (step.budget.nodes and step.rows and (draft.guesses or not draft.forced)):
            return NOTHING_ASKED
        asked = self._asked(step, sources)
        self.group.later(partial(self._believe, step, asked, sources))
        if draft.q is not None or any(each.q is not None for each in draft.passed_over):
            self.group.settle()  # distributions take much room
        if asked.unread or len(draft) or any(map(len, draft.passed_over)):
            self.group.judged_alone(news=tried is not None)
        if tried is not None:
            if draft.source == sources[tried].name:
                self.group.refund(step)
            self.group.tried(step.request, tried, answered=tried not in asked.waiting)
        return asked

    def _asked(self, step: Step, sources: Sequence[Source]) -> Asked:
        asked: list[int] = []
        waiting: list[int] = []
        unread = 0
        draft, wanted, position = step.draft, step.budget.max_nodes, step.position
        lacks = {each.source: each.unread for each in draft.caught_up} if draft.caught_up else {}
        for place, source in enumerate(sources):
            if not wanted.get(source.name):
                continue
            asked.append(place)
            lacking = lacks.get(source.name, 0)
            read = max(0, position - lacking)
            unread = max(unread, read - self.read[place] - 2)
            self.read[place] = read
            if lacking:
                waiting.append(place)
            elif draft.tokens and draft.source == source.name:
                break
        return Asked(asked, unread, waiting)

    def _believe(self, step: Step, asked: Asked, sources: Sequence[Source]) -> None:
        self.drift_to(step.position)
        draft = step.draft
        for other in draft.passed_over:
            self._learn_unused(other, step, sources)
        for place in asked.sources:
            if place in asked.waiting:
                continue
            belief, name = self._beliefs[place], sources[place].name
            drafted = draft.source == name and len(draft) > 0
            belief.answered(drafted)
            if drafted and belief.prior.trees is not None:
                belief.learn_tree(draft, step.path, min(step.budget.max_nodes[name], step.budget.nodes))
            elif drafted:
                belief.learn(draft.guesses_in(step.path), draft.guessed_levels)

    def _learn_unused(self, draft: Draft, step: Step, sources: Sequence[Source]) -> None:
        """A source that was passed over would have drafted this chain, or nothing, and these tokens came."""
        place = next((place for place, source in enumerate(sources) if source.name == draft.source), None)
        if place is None:
            return
        belief = self._beliefs[place]
        belief.answered(len(draft) > 0)
        if not len(draft) or belief.prior.trees is not None:
            return
        pairs = zip(draft.tokens, step.tokens, strict=False)
        right = next((i for i, (guess, token) in enumerate(pairs) if guess != token), None)
        if right is None:  # of the rest, if there is one, nobody knows
            right = tested = min(len(draft), len(step.tokens))
        else:
            tested = len(draft)
        belief.learn(right, tested)
