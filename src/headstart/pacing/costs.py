"""What a step costs now: the figures of a profile, corrected while the engine runs.

`CurrentCosts` follows the machine: a level that all costs share (another process, a longer context), and corrections
of the shape, which is what decisions depend on. Each figure of the profile is corrected by much when steps first show
it, and by little later.

`rows` are always rows like those of the profile: `rows` and `weigh` say what requests and their drafts count as.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headstart.pacing.constants import (
    DOUBT,
    FIRST_ROUNDS,
    PRECISION,
    REFRESH_STEPS,
    RUNNING_SHARE,
    UNKNOWN_COST,
    WARM_UP_STEPS,
)
from headstart.pacing.corrections import Beside, DraftCorrection, DraftParts, ForwardTable, RowWeights, clipped
from headstart.theory.costs import DraftCost, StepCosts, late_share


class Drafted(NamedTuple):
    """What one source drafted in a step."""

    size: tuple[int, int]
    """Nodes and depth, each the most of any request."""
    requests: int


class Sizes(NamedTuple):
    """What drafts of one source cost in a batch, by size, those that share least first: the first is no draft.
    All [size]."""

    nodes: NDArray[Any]
    depths: NDArray[Any]
    weights: NDArray[Any]
    """What they count as, in rows of the forward."""
    own: NDArray[Any]
    """Seconds of drafting that each request adds."""
    shared: NDArray[Any]
    """Seconds of drafting that all of them share."""
    order: NDArray[Any] | None
    """Of the sizes as they were given, with none in front; None where they are in that order already."""


class CurrentCosts:
    """The costs of a profile as they are now. Without `observe` they stay what the profile says.

    Sources are numbered in the order of `sources`.
    """

    def __init__(self, costs: StepCosts, sources: Sequence[str]) -> None:
        self.sampled, self.sampled_row = costs.sampled, costs.sampled_row
        self._request = costs.request
        self._forwards = ForwardTable(costs.rows, costs.place)
        self._weights = RowWeights(costs)
        self._log_level = 0.0
        self._drafts = [costs.drafts.get(source, DraftCost()) for source in sources]
        self._beside = [Beside(cost) for cost in self._drafts]
        self._corrections = [DraftCorrection(cost) for cost in self._drafts]
        self._drafted = [0.0] * len(self._drafts)
        self._overhead = costs.overhead
        self._steps = self._last_plain = 0
        self._thinking = [0.0, 0.0], [0.0, 0.0]  # of a row; by whether there are several, and whether any drafts
        # Kept until one of the costs behind them has moved
        self._drafting: dict[tuple[int, float, bool], NDArray[Any]] = {}
        self._sizes: dict[tuple[int, int, float, int, bool], Sizes] = {}

    # -- asking -------------------------------------------------------------------------------------------------------

    def rows(self, batch: int) -> float:
        """What so many requests without drafts count as, in rows of a forward."""
        return self._weights.rows(batch)

    def weigh(self, nodes: Any, levels: Any) -> Any:
        """What drafts of so many nodes on so many levels count as. Numbers or arrays."""
        return self._weights.nodes(nodes, levels)

    def step(self, batch: int, rows: float, sampled: float = 0.0) -> float:
        """Seconds of a step without its drafts: `rows` rows of the target's forward, `sampled` of them with a
        distribution.

        Rows may be an expectation.
        """
        distribution = self.sampled + self.sampled_row * sampled if sampled else 0.0
        return self._forwards.seconds(rows) + (batch - 1) * self._request + self._overhead + distribution

    def step_now(self, batch: int) -> float:
        """Seconds of a step of so many requests without drafts on the machine as it is now: `step` leaves out the
        level, which all costs share."""
        return self.step(batch, self.rows(batch)) * math.exp(self._log_level)

    def steps(self, batch: int, rows: NDArray[Any], sampled: NDArray[Any] | float = 0.0) -> NDArray[Any]:
        """The same for many numbers of rows at once."""
        distribution = self.sampled * (np.asarray(sampled) > 0) + self.sampled_row * sampled
        seconds = self._forwards.seconds_of(rows)
        seconds += distribution + ((batch - 1) * self._request + self._overhead)
        return seconds

    def row_prices(self, rows: float, most: float) -> tuple[float, float]:
        """The least and the most seconds that a further row adds to a forward of `rows` to `most` rows."""
        return self._forwards.prices(rows, most)

    def drafting(
        self, source: int, nodes: NDArray[Any], depths: NDArray[Any], rows: float, sampled: bool
    ) -> NDArray[Any]:
        """[size] seconds that one request's drafts of these sizes add to a step of so many rows, without what must be
        read first.

        nodes, depths: of the sizes that a source can draft, or of the first few of them; the same at every call.
        """
        key = source, rows, sampled
        known = self._drafting.get(key)
        if known is None or len(known) < len(nodes):
            own, shared = self.shares(source, nodes, depths, rows, 1, sampled)
            weights = self.weigh(nodes, depths)
            known = self._forwards.seconds_of(rows + weights) - self._forwards.seconds(rows)
            known += own + shared
            if sampled and not self.point_masses(source):
                known += self.sampled_row * nodes  # of the others it depends on what is accepted
            self._drafting[key] = known
        return known if len(known) == len(nodes) else known[: len(nodes)]

    def sizes(
        self, source: int, nodes: NDArray[Any], depths: NDArray[Any], rows: float, requests: int, drawn: bool
    ) -> Sizes:
        """What drafts of these sizes, and none, cost in a step of so many requests. rows: as of `shares`."""
        key = source, len(nodes), rows, requests, drawn
        known = self._sizes.get(key)
        if known is None:
            nodes, depths, order = np.concatenate(([0], nodes)), np.concatenate(([0], depths)), None
            own, shared = self.shares(source, nodes, depths, rows, requests, drawn)
            if (np.diff(shared) < 0).any():  # so that all sizes that share at most so much stand in front
                order = shared.argsort(kind="stable")
                nodes, depths, own, shared = (each[order] for each in (nodes, depths, own, shared))
            known = self._sizes[key] = Sizes(nodes, depths, self.weigh(nodes, depths), own, shared, order)
        return known

    def shares(
        self, source: int, nodes: NDArray[Any], depths: NDArray[Any], rows: float, requests: int, drawn: bool
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """[size] seconds of drafts of so many requests, ahead or in turn, whatever is quicker: what each request adds,
        and what all share.

        rows: of the forward without these drafts.
        """
        one = (depths > 0) * self.start(source) + self.level(source, drawn) * depths
        if sibling := self.sibling(source):
            one += sibling * (nodes - depths)
        own, shared = self.growth(source) * one, (1 - self.growth(source)) * one
        if hidden := self.hidden(source):
            in_turn = requests * own + shared
            ahead = requests * (1 - hidden) * own + (1 - hidden**requests) * shared
            ahead += self.slowing(source) * self.steps(requests, rows + requests * self.weigh(nodes, depths))
            quicker = np.divide(ahead, in_turn, out=np.ones(len(one)), where=in_turn > ahead)
            own, shared = quicker * own, quicker * shared
        return own, shared

    def together(
        self, source: int, nodes: NDArray[Any], levels: NDArray[Any], steps: NDArray[Any], drawn: bool
    ) -> NDArray[Any]:
        """[plan] seconds that drafts of so many nodes on so many levels [plan, row] add to steps of so many seconds
        [plan] without them, ahead or in turn, whatever is quicker.

        Level by level, rows that are done leave: level * (1 + growth * (rows left - 1)), summed over the levels.
        """
        drafting, start, level, growth = levels > 0, self.start(source), self.level(source, drawn), self.growth(source)
        count = drafting.sum(1)
        own = growth * (start * count + level * levels.sum(1))
        shared = (1 - growth) * (start * (count > 0) + level * levels.max(1))
        if sibling := self.sibling(source):
            siblings = nodes - levels
            own += growth * sibling * siblings.sum(1)
            shared += (1 - growth) * sibling * siblings.max(1)
        in_turn: NDArray[Any] = own + shared
        if hidden := self.hidden(source):
            slower = self.slowing(source) * steps * (count > 0)
            in_turn = np.minimum(in_turn, (1 - hidden) * own + (1 - hidden**count) * shared + slower)
        return in_turn

    def point_masses(self, source: int) -> bool:
        """Whether a sampled row's distributions are needed only as far as this source's drafts are accepted."""
        return self._drafts[source].point_masses

    def start(self, source: int) -> float:
        """Seconds of a draft, whatever its depth."""
        return self._drafts[source].start * self._corrections[source].factors.start

    def level(self, source: int, drawn: bool = False) -> float:
        """Seconds of each level of a draft, whose tokens may be drawn."""
        cost = self._drafts[source]
        return (cost.token + cost.drawn if drawn else cost.token) * self._corrections[source].factors.level

    def sibling(self, source: int) -> float:
        """Seconds of each node of a draft beyond one a level."""
        return self._drafts[source].sibling * self._corrections[source].factors.sibling

    def read(self, source: int) -> float:
        """Seconds per token of context that a source has not read."""
        return self._drafts[source].read * self._corrections[source].factors.whole

    def growth(self, source: int) -> float:
        """What each further request of a batch adds to a draft, as a share of the first one's seconds."""
        return self._drafts[source].growth

    def hidden(self, source: int) -> float:
        """The share of a source's drafting that the target need not wait for, where it drafts ahead; 0 of others. It
        drafts in turn where that is quicker."""
        return self._beside[source].hidden

    def slowing(self, source: int) -> float:
        """How much longer a forward takes while a source drafts beside it, as a share of the forward."""
        return self._beside[source].slowing

    def _parts(self, source: int, size: tuple[int, int], drawn: bool) -> tuple[float, float, float]:
        """Seconds of one request's draft of `size`: of its start, its levels and its further nodes."""
        nodes, depth = size
        return self.start(source), self.level(source, drawn) * depth, self.sibling(source) * (nodes - depth)

    def in_turn(self, source: int, size: tuple[int, int], requests: int, drawn: bool = False) -> float:
        """Seconds of drafts of `size` (nodes, depth) for so many requests while the target waits."""
        if not requests:
            return 0.0
        return sum(self._parts(source, size, drawn)) * (1 + self.growth(source) * (requests - 1))

    def draft(self, source: int, size: tuple[int, int], requests: int, drawn: bool = False) -> float:
        """Seconds that drafts of `size` (nodes, depth) for so many requests add to a step, without their rows: ahead or
        in turn, whatever is quicker."""
        in_turn = self.in_turn(source, size, requests, drawn)
        hidden = self.hidden(source)
        if not requests or not hidden:
            return in_turn
        one = sum(self._parts(source, size, drawn))
        slower = self.slowing(source) * self.step(requests, self.rows(requests) + requests * self.weigh(*size))
        return min(in_turn, one * late_share(hidden, self.growth(source), requests) + slower)

    def thinking(self, batch: int, *, drafting: bool) -> float:
        """Seconds that pacing takes in a step of so many requests, of which some have drafts, or none. Not part of
        `step`.

        Where some have drafts it has more to do. So what is known of that bounds the other, which nobody sees while
        all steps have drafts: were it thought dear, they would have them for ever.
        """
        plain, drafted = self._thinking[batch > 1]
        return (drafted if drafting else min(plain, drafted or plain)) * batch

    @property
    def doubtful(self) -> bool:
        """Whether a plain step is due, to learn what decoding without drafts costs now: the sooner, the less is known
        of it.

        Drafts are weighed against it, and a draft that always pays would never let it be seen. As long as steps take
        the time that the profile says, it need not be.
        """
        if self._log_level**2 <= DOUBT:
            return False
        return self._steps - self._last_plain >= REFRESH_STEPS * DOUBT / self._forwards.shape[0].variance

    # -- learning -----------------------------------------------------------------------------------------------------

    def observe(
        self,
        batch: int,
        rows: float,
        sampled: int,
        seconds: float,
        overhead: float = 0.0,
        beside: int | None = None,
    ) -> None:
        """A step took this long for its forward and distributions, and its `overhead` for everything else but the
        drafts.
        beside: the source that drafted on meanwhile.

        The level follows, and slowly the shape near `rows`, or what is known of the drafter beside it.
        """
        if seconds <= 0:
            return
        self._steps += 1
        if rows <= self.rows(batch):
            self._last_plain = self._steps
        error = math.log(seconds / (self.step(batch, rows, sampled) - self._overhead)) - self._log_level
        if beside is not None:
            error -= self._beside[beside].log_slowing
        first = self._warming_up
        if first:
            self._log_level += error / self._steps
        error = clipped(error)
        if not first:
            self._log_level += RUNNING_SHARE * error
            known = self._overhead * math.exp(self._log_level) or overhead
            overhead = min(overhead, 2 * known)
            self._overhead += RUNNING_SHARE * (overhead * math.exp(-self._log_level) - self._overhead)
            for place, each in enumerate(self._beside):
                each.observe_forward(place == beside, error)
        # The shape is that of forwards with nothing beside them
        self._forwards.observe(rows, error if beside is None else None, learn=not first)
        if self._steps % REFRESH_STEPS == 0 or self._steps <= 2 * REFRESH_STEPS:
            self._forget()
            self._forwards.tabulate()

    def observe_experts(self, batch: int, nodes: int, levels: int, experts: int | None) -> None:
        """The forward of so many requests, whose drafts had so many nodes on so many levels, met so many experts, all
        layers together; None where nothing counts them."""
        if self._weights.observe(batch, nodes, levels, experts):
            self._forget()

    def _forget(self) -> None:
        """Costs have moved."""
        self._drafting.clear()
        self._sizes.clear()

    @property
    def _warming_up(self) -> bool:
        return self._steps <= WARM_UP_STEPS

    def has_timed(self, source: int) -> bool:
        """Whether a few drafts have shown what this source's take."""
        return self._drafted[source] >= FIRST_ROUNDS

    def doubts(self, source: int) -> bool:
        """Whether steps have shown too little of what a short draft of this source takes, and the forward with it."""
        shapes = self._forwards.shape
        return not (self._corrections[source].known and shapes[min(1, len(shapes) - 1)].known)

    def reads_mostly(self, asked: Mapping[int, Drafted], unread: int) -> bool:
        """Whether reading so many tokens takes some source longer than its draft. asked: as of `observe_drafts`."""
        return any(self.read(place) * unread > self.in_turn(place, *each) for place, each in asked.items())

    def observe_drafts(
        self, asked: Mapping[int, Drafted], seconds: float, drawn: bool = False, unread: int = 0
    ) -> None:
        """Drafts took this long together, in turn. asked: by source. unread: tokens that each source had to read
        first."""
        parts = {}
        for source, (size, requests) in asked.items():
            times = 1 + self.growth(source) * (requests - 1)
            found = [times * part for part in self._parts(source, size, drawn)]
            parts[source] = DraftParts(sum(found) + self.read(source) * unread, *found)
        expected = sum(each.whole for each in parts.values())
        if self._warming_up or expected <= 0 or seconds <= 0:
            return
        error = clipped(math.log(seconds / expected) - self._log_level)
        shares = {source: DraftParts(*[part / expected for part in each]) for source, each in parts.items()}
        spread = sum(self._corrections[source].spread(each) for source, each in shares.items())
        for source, each in shares.items():
            change = self._corrections[source].observe(error, each, spread)
            self._drafted[source] += each.whole
            if abs(change) > PRECISION:
                self._forget()

    def observe_ahead(
        self, source: int, size: tuple[int, int], requests: int, missed: int, seconds: float, drawn: bool = False
    ) -> None:
        """Drafts of so many requests could have been made ahead; of so many they were not, and took these seconds."""
        if self._warming_up or not requests:
            return
        waited = missed / requests
        if not missed:
            whole = self.in_turn(source, size, requests, drawn) * math.exp(self._log_level)
            waited = seconds / whole if whole > 0 else 0.0
        self._beside[source].observe_draft(waited)
        self._forget()

    def observe_thinking(self, batch: int, drafting: bool, seconds: float, *, tried: bool = False) -> None:
        """Pacing took this long in a step of so many requests, of which some had drafts, or none. tried: whether for a
        trial, which takes more thought than other drafts, so that it can only say that they take less."""
        if self._steps <= WARM_UP_STEPS:
            return
        seconds *= math.exp(-self._log_level) / batch
        thinking = self._thinking[batch > 1]
        # The first may have been interrupted, and so may any other
        known = thinking[drafting] or min(seconds, UNKNOWN_COST * self.step(1, 1) / batch)
        most = known if tried else 2 * known
        thinking[drafting] = known + RUNNING_SHARE * (min(seconds, most) - known)
