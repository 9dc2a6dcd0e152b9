"""What a step costs now: the figures of a profile, corrected while the engine runs.

`CurrentCosts` follows the machine: a level that all costs share (another process, a longer context), and corrections
of the shape, which is what decisions depend on. The first steps that meet a figure of the profile correct it by much,
later ones by little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.pacing.beside import Beside
from headstart.pacing.forward_table import ForwardTable
from headstart.pacing.learning import LEARNING, Correction, Scatter, clipped
from headstart.theory.costs import DraftCost, StepCosts, late_share


class CurrentCosts:
    """The costs of a profile as they are now. Without `observe` they stay what the profile says.

    Sources are numbered in the order of `sources`.
    """

    def __init__(self, costs: StepCosts, sources: Sequence[str]) -> None:
        self.sampled, self.sampled_row = costs.sampled, costs.sampled_row
        self._request = costs.request
        self._forwards = ForwardTable(costs.rows)
        self._log_level = 0.0
        self._drafts = [costs.drafts.get(source, DraftCost()) for source in sources]
        self._beside = [Beside(cost) for cost in self._drafts]
        self._corrections = [Correction(LEARNING.doubt, Scatter()) for _ in self._drafts]
        self._factors = [1.0] * len(self._drafts)
        self._drafted = [0.0] * len(self._drafts)
        self._overhead = costs.overhead
        self._steps = self._last_plain = 0
        self.thinking = 0.0
        """Seconds that a decision for one row takes, with what is learnt from its step. Not part of `step`."""
        self._thinking_per_row = {True: 0.0, False: 0.0}  # of a batch, in steps that draft and in steps that do not
        self._drafting: dict[tuple[int, int, bool], NDArray[Any]] = {}

    # -- asking -------------------------------------------------------------------------------------------------------

    def step(self, batch: int, rows: float, sampled: float = 0.0) -> float:
        """Seconds of a step without its drafts: `rows` rows of the target's forward, `sampled` of them with a
        distribution.

        Rows may be an expectation.
        """
        distribution = self.sampled + self.sampled_row * sampled if sampled else 0.0
        return self._forwards.seconds(rows) + (batch - 1) * self._request + self._overhead + distribution

    def steps(self, batch: int, rows: NDArray[Any], sampled: NDArray[Any] | float = 0.0) -> NDArray[Any]:
        """The same for many numbers of rows at once."""
        distribution = self.sampled * (np.asarray(sampled) > 0) + self.sampled_row * sampled
        seconds = self._forwards.seconds_of(rows)
        seconds += distribution + ((batch - 1) * self._request + self._overhead)
        return seconds

    def further(self, rows: int, nodes: NDArray[Any]) -> NDArray[Any]:
        """Seconds that so many nodes more than `rows` rows add to a forward."""
        return self._forwards.further(rows, nodes)

    def drafting(
        self, source: int, nodes: NDArray[Any], depths: NDArray[Any], rows: int, sampled: bool
    ) -> NDArray[Any]:
        """[size] seconds that drafts of these sizes add to a step of so many rows, without what must be read first.

        nodes, depths: of the sizes that a source can draft, or of the first few of them; the same at every call.
        """
        key = source, rows, sampled
        known = self._drafting.get(key)
        if known is None or len(known) < len(nodes):
            in_turn = self.level(source, sampled) * depths + self.start(source)
            beside = self._beside[source]
            if beside.hidden:
                ahead = in_turn * (1 - beside.hidden) + beside.slowing * self.steps(1, rows + nodes)
                in_turn = np.minimum(in_turn, ahead)
            known = self.further(rows, nodes) + in_turn
            if sampled and not self.point_masses(source):
                known += self.sampled_row * nodes  # of the others it depends on what is accepted
            self._drafting[key] = known
        return known if len(known) == len(nodes) else known[: len(nodes)]

    def point_masses(self, source: int) -> bool:
        """Whether a sampled row's distributions are needed only as far as this source's drafts are accepted."""
        return self._drafts[source].point_masses

    def start(self, source: int) -> float:
        """Seconds of a draft, whatever its depth."""
        return self._drafts[source].start * self._factors[source]

    def level(self, source: int, drawn: bool = False) -> float:
        """Seconds of each level of a draft, whose tokens may be drawn."""
        cost = self._drafts[source]
        return (cost.token + cost.drawn if drawn else cost.token) * self._factors[source]

    def read(self, source: int) -> float:
        """Seconds per token of context that a source has not read."""
        return self._drafts[source].read * self._factors[source]

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

    def in_turn(self, source: int, depth: int, requests: int, drawn: bool = False) -> float:
        """Seconds of drafts of `depth` for so many requests while the target waits."""
        if not requests:
            return 0.0
        one = self.start(source) + self.level(source, drawn) * depth
        return one * (1 + self.growth(source) * (requests - 1))

    def draft(self, source: int, depth: int, requests: int, drawn: bool = False) -> float:
        """Seconds that drafts of `depth` for so many requests add to a step, without their rows: ahead or in turn,
        whatever is quicker."""
        in_turn = self.in_turn(source, depth, requests, drawn)
        hidden = self.hidden(source)
        if not requests or not hidden:
            return in_turn
        one = self.start(source) + self.level(source, drawn) * depth
        slower = self.slowing(source) * self.step(requests, requests * (1 + depth))
        return min(in_turn, one * late_share(hidden, self.growth(source), requests) + slower)

    def thinking_of_batch(self, batch: int, drafting: bool) -> float:
        """Seconds that pacing takes in a step of several requests, of which some have drafts, or none. Not part of
        `step`."""
        return self._thinking_per_row[drafting] * batch

    @property
    def doubtful(self) -> bool:
        """Whether a plain step is due, to learn what decoding without drafts costs now.

        Drafts are weighed against it, and a draft that always pays would never let it be seen. As long as steps take
        the time that the profile says, it need not be.
        """
        known = self._forwards.doubt_of_one_row < LEARNING.little_doubt
        due = LEARNING.plain_every_steps if known else LEARNING.plain_every_steps_at_first
        return abs(self._log_level) > LEARNING.doubtful_log_level and self._steps - self._last_plain >= due

    # -- learning -----------------------------------------------------------------------------------------------------

    def observe(
        self,
        batch: int,
        rows: int,
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
        if rows == batch:
            self._last_plain = self._steps
        error = math.log(seconds / (self.step(batch, rows, sampled) - self._overhead)) - self._log_level
        if beside is not None:
            error -= self._beside[beside].log_slowing
        first = self._steps <= LEARNING.first_steps
        if first:
            self._log_level += error / self._steps
        error = clipped(error, LEARNING.max_log_error)
        if not first:
            self._log_level += LEARNING.level_step * error
            known = self._overhead * math.exp(self._log_level) or overhead
            overhead = min(overhead, 2 * known)
            self._overhead += LEARNING.level_step * (overhead * math.exp(-self._log_level) - self._overhead)
            for place, each in enumerate(self._beside):
                each.observe_forward(place == beside, error, LEARNING.level_step)
        # The shape is that of forwards with nothing beside them
        self._forwards.observe(rows, error if beside is None else None, learn=not first)
        if self._steps % LEARNING.refresh_steps == 0 or self._steps <= 2 * LEARNING.refresh_steps:
            self._drafting.clear()
            self._forwards.tabulate()

    def has_timed(self, source: int) -> bool:
        """Whether a few drafts have shown what this source's take."""
        return self._drafted[source] >= LEARNING.known_drafts

    def doubts(self, source: int) -> bool:
        """Whether steps have shown too little of what a short draft of this source takes, and the forward with it."""
        variances = self._corrections[source].variance, self._forwards.doubt_of_short_drafts
        return max(variances) > 0.6 * LEARNING.doubt

    def observe_drafts(
        self, asked: Mapping[int, tuple[int, int]], seconds: float, drawn: bool = False, unread: int = 0
    ) -> None:
        """Drafts took this long together, in turn. asked: depth and number of requests by source. unread: tokens that
        each source had to read first."""
        parts = {
            source: self.in_turn(source, depth, requests, drawn) + self.read(source) * unread
            for source, (depth, requests) in asked.items()
        }
        expected = sum(parts.values())
        if self._steps <= LEARNING.first_steps or expected <= 0 or seconds <= 0:
            return
        error = clipped(math.log(seconds / expected) - self._log_level, LEARNING.max_log_error)
        for source, part in parts.items():
            share, correction = part / expected, self._corrections[source]
            change = correction.observe(error, share)
            self._factors[source] = math.exp(correction.value)
            self._drafted[source] += share
            if abs(change) > LEARNING.notable_log_change:
                self._drafting.clear()

    def observe_ahead(
        self, source: int, depth: int, requests: int, missed: int, seconds: float, drawn: bool = False
    ) -> None:
        """Drafts of so many requests could have been made ahead; of so many they were not, and took these seconds."""
        if self._steps <= LEARNING.first_steps or not requests:
            return
        waited = missed / requests
        if not missed:
            whole = self.in_turn(source, depth, requests, drawn) * math.exp(self._log_level)
            waited = seconds / whole if whole > 0 else 0.0
        self._beside[source].observe_draft(waited)
        self._drafting.clear()

    def observe_thinking(self, seconds: float) -> None:
        """A decision, and learning from its step, took this long."""
        if self._steps <= LEARNING.first_steps:
            return
        self.thinking = self._thought(self.thinking, seconds)

    def observe_thinking_of_batch(self, batch: int, drafting: bool, seconds: float) -> None:
        """Pacing took this long in a step of several requests, of which some had drafts, or none."""
        if self._steps <= LEARNING.first_steps:
            return
        self._thinking_per_row[drafting] = self._thought(self._thinking_per_row[drafting], seconds / batch)

    def _thought(self, known: float, seconds: float) -> float:
        seconds *= math.exp(-self._log_level)
        known = known or min(seconds, LEARNING.first_thinking * self.step(1, 1))
        return known + LEARNING.thinking_share * (min(seconds, 2 * known) - known)
