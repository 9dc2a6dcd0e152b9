"""Never slower: each step, every row drafts as much as should make the whole step yield most tokens per second.

Rows are decided on in groups. All ordinary rows of the engine are one group: they share costs that follow the
machine, what past requests taught about each source, and an allowance for probing. A pinned row is a group of its
own, with the costs of the profile and an experience that starts from nothing: its draft lengths, and so its text, are a
function of its seed and prompt alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from headstart.pacing import Pacing
from headstart.pacing.beliefs import DEEPEST
from headstart.pacing.costs import Costs, Prices
from headstart.pacing.group import Group, RowState, Source
from headstart.row import Row
from headstart.types import Budget, Step

BEHIND = 8
"""Tokens that a draft may have had to read first, for its time to count as that of a draft."""


class AdaptivePacing(Pacing):
    """Budgets from measured costs and observed acceptance.

    Args:
        sources: in the order in which they are asked.
        costs: of the target's forward and of each source's drafts.
    """

    name = "adaptive"

    def __init__(self, sources: Sequence[Source], costs: Costs) -> None:
        if any(source.limit < 1 for source in sources):
            raise ValueError("a source that may draft nothing is none")
        self._sources = tuple(
            source if source.sizes else Source(source.name, min(source.limit, DEEPEST)) for source in sources
        )
        self._places = {source.name: place for place, source in enumerate(self._sources)}
        self._profile = Prices(costs, list(self._places))  # never told anything, so it stays what it is
        self._shared = Group(self._sources, Prices(costs, list(self._places)))
        self._rows: dict[int, RowState] = {}
        self._last: list[Step] = []
        self._dozing = False  # steps are not thought about, nor listened to
        self._slept: dict[int, int] = {}  # tokens that each request has emitted meanwhile

    def plan(self, rows: Sequence[Row]) -> Sequence[Budget]:
        if self._shared.rests(rows):
            self._dozing = True
            return self._shared.rest
        self._wake()
        self._last.clear()
        budgets: dict[int, Budget] = {}
        free: list[tuple[Row, RowState]] = []
        for row in rows:
            state = self._rows.get(row.request)
            if state is None:
                state = self._rows[row.request] = self._meet(row)
            state.asked = ()
            if row.room <= 0 or not self._sources:
                budgets[row.request] = Budget()
            elif row.reproducible:
                budgets[row.request] = state.group.plan([(row, state)], 1)[0]
            else:
                free.append((row, state))
        extra = sum(budget.nodes for budget in budgets.values())
        for (row, _), budget in zip(free, self._shared.plan(free, len(rows), extra), strict=True):
            budgets[row.request] = budget
        return [budgets[row.request] for row in rows]

    def _wake(self) -> None:
        if self._dozing:
            for request, tokens in self._slept.items():
                self._rows[request].drift(tokens)
            self._slept.clear()
            self._dozing = False

    def _meet(self, row: Row) -> RowState:
        return RowState(Group(self._sources, self._profile) if row.reproducible else self._shared)

    def observe(self, step: Step) -> None:
        if self._dozing:  # one plain step is much like the next, and listening takes time as well
            if step.request in self._rows:  # else it ends before it was ever planned: cancelled while it waited
                self._slept[step.request] = self._slept.get(step.request, 0) + len(step.tokens)
            return
        state = self._rows.get(step.request)
        if state is None or not step.rows:
            return
        for other in step.draft.passed_over:
            if other.source in self._places:
                state.overhear(self._places[other.source], other, step.tokens)
        state.learn(step, self._places.get(step.draft.source))
        self._last.append(step)
        if len(self._last) == step.batch:
            self._learn_costs(self._last)
            self._last.clear()

    def _learn_costs(self, steps: Sequence[Step]) -> None:
        """What the whole step cost, once all of its rows have been heard of."""
        rows = sum(step.rows for step in steps)
        if rows != len(steps) + sum(len(step.draft) for step in steps):
            return  # prompts were read
        seconds = steps[0].seconds
        prices = self._shared.prices
        prices.observe(len(steps), rows, seconds.verify + seconds.law + seconds.commit)
        asked: dict[int, tuple[int, int]] = {}
        for step in steps:
            state = self._rows.get(step.request)
            for place in state.asked if state is not None else ():
                depth, requests = asked.get(place, (0, 0))
                mine = self._depth(place, step) if self._places.get(step.draft.source) == place else 0
                asked[place] = max(depth, mine), requests + 1
        met = [state for step in steps if (state := self._rows.get(step.request)) is not None]
        if asked and all(state.behind <= BEHIND for state in met):  # else the time went into reading
            prices.observe_drafts(asked, seconds.draft)

    def _depth(self, place: int, step: Step) -> int:
        """Levels that were drafted: of a tree, those that its budget buys, however deep what was kept of it goes."""
        source = self._sources[place]
        return source.levels(step.budget.max_nodes.get(source.name, 0)) if source.sizes else len(step.draft)

    def release(self, request: int) -> None:
        self._wake()
        self._rows.pop(request, None)
