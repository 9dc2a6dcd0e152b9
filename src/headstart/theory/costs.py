"""What a step costs: its forward by rows, its drafts by source and depth, and everything else. The only cost model.

Profiles, benches and the doctor measure one in seconds; the simulator and what-if take one in plain steps. Two figures
follow from it, and they mean the same in every report and formula:

    v(n)  a step of n rows without its drafts, over a plain step
    c     a drafted level (a token of a chain), over a plain step

A plain step is one row, nothing drafted. Source: the terms c and v(n) are those of `headstart.theory.speed`.

Forwards are measured on rows that have nothing to do with each other. In a mixture of experts those of a text cost
less, because they meet some of the same experts (`headstart.theory.mixture`), so a further row of a text counts as a
part of a measured one. In a dense model it counts as one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType

from headstart.base.options import check_number
from headstart.theory.mixture import DENSE, Routing
from headstart.theory.speed import verify_cost

DRAFT = "draft"
"""The source's name where there is only one and it was not named."""
_READING = 20
"""Reading the experts of one row, in the arithmetic of so many rows: only for forwards between and beyond those that
were measured."""
_NOTHING: Mapping[str, tuple[float, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DraftCost:
    """Seconds of a source's draft: start + token * depth + sibling * (nodes - depth), for one request.

    A level of a tree costs one forward of the drafter, like a token of a chain; further nodes of a level are further
    rows of that forward, and more to choose from.
    """

    start: float = 0.0
    """Seconds of a draft, whatever its depth."""
    token: float = 0.0
    """Seconds of each level."""
    read: float = 0.0
    """Seconds per token of context that the drafter has not read yet."""
    growth: float = 0.0
    """What each further request of a batch adds, as a share of the first one's seconds."""
    drawn: float = 0.0
    """Seconds that each level takes more where its token is drawn from the draft's distribution, at a temperature above
    0."""
    sibling: float = 0.0
    """Seconds of each node beyond one a level."""
    hidden: float = 0.0
    """The share of its drafts that are made while the target verifies, 0 to 1: of one of these only what outlasts the
    forward takes time; the others are made in turn, while the target waits."""
    slowing: float = 0.0
    """How much longer the target's forward takes while this source drafts beside it, as a share of the forward."""
    point_masses: bool = False
    """Whether its tokens are drawn from no distribution: of a sampled row the rule then needs the target's
    distributions only as far as it accepts, otherwise those of all nodes."""

    def seconds(self, depth: float, requests: float = 1, siblings: float = 0) -> float:
        """Seconds to draft `depth` levels, and so many nodes beyond one a level, for so many requests at a time, hidden
        or not."""
        return self._alone(depth, siblings) * (1 + self.growth * max(0.0, requests - 1))

    def late(self, depth: float, requests: float = 1, siblings: float = 0) -> float:
        """Seconds of these that are expected to be drafted in turn. Each request's draft is hidden or not by itself;
        those that are not are drafted together."""
        return self._alone(depth, siblings) * late_share(self.hidden, self.growth, max(1.0, requests))

    def _alone(self, depth: float, siblings: float) -> float:
        return self.start + self.token * depth + self.sibling * siblings

    def scaled(self, factor: float) -> DraftCost:
        """Everything so many times as slow."""
        changed = {name: getattr(self, name) * factor for name in ("start", "token", "read", "drawn", "sibling")}
        return replace(self, **changed)


@dataclass(frozen=True)
class StepCosts:
    """Costs of a target and its drafters, in seconds or in any one unit of time.

    Raises:
        ValueError: rows do not begin with 1 and ascend, or a cost is not a finite number of at least 0.
    """

    rows: tuple[tuple[int, float], ...]
    """(n, seconds of a forward of n rows of one request), ascending from one row; raw, as measured."""
    request: float = 0.0
    """Seconds that each further request of a batch adds to a forward of as many rows."""
    drafts: Mapping[str, DraftCost] = field(default_factory=dict)
    """By source."""
    overhead: float = 0.0
    """Seconds of a plain step outside its forward: the distribution, the rule, the text, the events."""
    row_overhead: float = 0.0
    """Seconds that each further row adds to the overhead."""
    sampled: float = 0.0
    """Seconds that sampled rows add to a step, however many there are: their distribution is a softmax, not an
    argmax."""
    sampled_row: float = 0.0
    """Seconds that each sampled row adds besides."""
    routing: Routing = DENSE
    """What rows of a text share."""
    alike: float = 0.0
    """The correlation of the measured rows' experts: nearly 0 where their tokens were chosen at random."""

    def __post_init__(self) -> None:
        numbers = [n for n, _ in self.rows]
        if not numbers or numbers[0] != 1 or numbers != sorted(set(numbers)):
            raise ValueError(f"costs must begin with a forward of one row and ascend: {numbers}")
        if any(not (math.isfinite(seconds) and seconds > 0) for _, seconds in self.rows):
            raise ValueError("the cost of a forward must be a positive number")
        found = [getattr(cost, each.name) for cost in self.drafts.values() for each in fields(cost)]
        if any(not (math.isfinite(x) and x >= 0) for x in (*self._others, *found)):
            raise ValueError("a cost must be a number of at least 0")
        if any(cost.hidden > 1 for cost in self.drafts.values()):
            raise ValueError("the share of drafts that are hidden cannot be above 1")
        if not 0 <= self.alike < 1:
            raise ValueError("the correlation of measured rows is at least 0 and below 1")

    @property
    def _others(self) -> tuple[float, ...]:
        return self.request, self.overhead, self.row_overhead, self.sampled, self.sampled_row

    @classmethod
    def in_plain_steps(cls, c: float = 0.1, v: Mapping[int, float] | None = None) -> StepCosts:
        """Costs in plain steps.

        Args:
            c: of a drafted token of the source `DRAFT`.
            v: {rows: cost}, with 1 among the rows, in any unit; without it a forward of any width costs a plain step.

        Raises:
            InvalidOption: c below 0, or a v that is no cost.
        """
        check_number("c", c, low=0)
        numbers = sorted(v) if v else [1]
        rows = tuple((int(n), float(verify_cost(v, n))) for n in numbers)
        verify_cost(v, 1)
        return cls(rows, drafts={DRAFT: DraftCost(token=float(c))})

    @cached_property
    def forwards(self) -> dict[int, float]:
        """Seconds of a forward by measured number of rows, never falling: see `rising`."""
        return dict(zip((n for n, _ in self.rows), rising([seconds for _, seconds in self.rows]), strict=True))

    def forward(self, rows: float, batch: int = 1) -> float:
        """Seconds of a target forward of so many rows in all, of texts. `rows` may be an expectation."""
        return self.unrelated(batch + self.further * (rows - batch)) + (batch - 1) * self.request

    @property
    def further(self) -> float:
        """What a further row of a text counts as, in measured rows."""
        return self.routing.further / (1 - self.alike)

    def unrelated(self, rows: float) -> float:
        """Seconds of a forward of so many rows of one request like those that were measured: straight lines between the
        measured numbers, over `place`, and the last slope beyond them."""
        numbers, places, seconds = self._curve
        if len(numbers) == 1:
            return seconds[0]
        high = min(max(bisect_right(numbers, rows), 1), len(numbers) - 1)
        slope = (seconds[high] - seconds[high - 1]) / (places[high] - places[high - 1])
        return seconds[high - 1] + slope * (self.place(max(rows, 1)) - places[high - 1])

    def place(self, rows: float) -> float:
        """Where so many measured rows are on a scale on which costs are a straight line: the rows themselves, and in
        a mixture what they read besides. Seconds are then a + b rows + c union."""
        if self.routing.dense:
            return rows
        read = self.routing.union(1 + (rows - 1) * (1 - self.alike)) / self.routing.chosen
        return rows + _READING * (float(read) - 1)

    def of_texts(self) -> StepCosts:
        """The same by rows of a text in place of measured ones: for where nothing tells how alike they choose, so that
        only forwards themselves can correct what they cost."""
        strangers = self.forward(2, batch=2) - self.forward(2)
        rows = tuple((n, self.forward(n)) for n in self.forwards)
        return replace(self, rows=rows, request=max(0.0, strangers), routing=DENSE, alike=0.0)

    def draft(self, source: str, depth: float, requests: float = 1, siblings: float = 0) -> float:
        """Seconds to draft `depth` levels for so many requests, hidden or not. siblings: nodes beyond one a level."""
        return self.drafts[source].seconds(depth, requests, siblings)

    def outside(self, rows: float) -> float:
        """Seconds of a step outside its forward and its drafts."""
        return self.overhead + self.row_overhead * (rows - 1)

    def step(self, rows: float, batch: int = 1, drafts: Mapping[str, tuple[float, ...]] = _NOTHING) -> float:
        """Seconds of a step of so many rows. drafts: (depth, requests that ask, nodes beyond one a level) by source;
        the last may be left out where there are none.

        Drafting in turn comes before the forward. Hidden drafts are made beside it: they slow it down, and where they
        take longer than it does, they are waited for. Source: the times of a hit and of a miss in `theory.ssd`.
        """
        slowing = sum(self.drafts[source].slowing for source in drafts)
        forward = (1 + slowing) * self.forward(rows, batch)
        late = hidden = share = 0.0
        for source, asked in drafts.items():
            cost = self.drafts[source]
            late += cost.late(*asked)
            if cost.hidden:
                hidden += cost.seconds(*asked)
                share = max(share, cost.hidden)
        return late + forward + share * max(0.0, hidden - forward) + self.outside(rows)

    @cached_property
    def plain(self) -> float:
        """Seconds of a plain step."""
        return self.step(1)

    def v(self, rows: float) -> float:
        """v(n): a step of n rows without its drafts, in plain steps."""
        return self.step(rows) / self.plain

    def c(self, source: str = DRAFT, depth: float = 1.0, siblings: float = 0) -> float:
        """c: a drafted level in plain steps, as the mean over a draft so deep. siblings: its nodes beyond one a
        level."""
        return self.draft(source, depth, siblings=siblings) / max(depth, 1.0) / self.plain

    @cached_property
    def _curve(self) -> tuple[list[int], list[float], list[float]]:
        return list(self.forwards), [self.place(n) for n in self.forwards], list(self.forwards.values())


def late_share(hidden: float, growth: float, requests: float) -> float:
    """What so many requests wait for drafts of which a share is hidden, in seconds of one draft in turn: as many drafts
    as are not hidden are made together, where there is any. See `DraftCost.growth`."""
    any_late = 1 - math.pow(hidden, requests)
    return (1 - growth) * any_late + growth * (1 - hidden) * requests


def rising(seconds: list[float]) -> list[float]:
    """The costs of forwards of more and more rows, without those that are above a later one: more rows never cost less,
    and noise only adds time, so the later measurement is right."""
    found: list[float] = []
    for value in reversed(seconds):
        found.append(min(value, found[-1]) if found else value)
    return found[::-1]
