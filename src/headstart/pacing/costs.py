"""What a step costs now: the figures of a profile, corrected while the engine runs.

`CurrentCosts` follows the machine: a level that all costs share (another process, a longer context), and corrections
of the shape, which is what decisions turn on: bold where a figure of the profile is first met in life, slow after that.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.pacing.beside import Beside
from headstart.theory.costs import DraftCost, StepCosts, late_share, rising


@dataclass(frozen=True)
class Learning:
    """How fast costs are corrected. An error is the logarithm of measured over expected seconds."""

    level_step: float = 0.1
    """Share of an error that the level takes up."""
    first_shape_step: float = 0.5
    """Share of an error that the shape takes up where a number of rows is first met."""
    shape_step: float = 0.03
    """The same once it has been met often."""
    max_log_error: float = 0.25
    """Most that one step may say: machines hiccup."""
    max_first_log_error: float = 1.5
    """The same for the first steps."""
    first_steps: int = 6
    """Steps that only set the level, because they warm caches; also those that count as first ones."""
    max_log_correction: float = 2.5
    """Most that the shape is ever corrected by."""
    doubtful_log_level: float = 0.25
    """From such a level on the machine is not what its profile says."""
    plain_every_steps_at_first: int = 16
    """Steps between two plain ones then, until a few of them have been seen."""
    plain_every_steps: int = 128
    """The same later."""
    refresh_steps: int = 16
    """Observed steps between two tables."""
    notable_log_change: float = 0.01
    """A correction of a draft's cost above this counts at once, a smaller one from the next table on."""
    thinking_share: float = 0.05
    """How far one decision moves what decisions are known to take."""


LEARNING = Learning()
TABLE_ROWS = 64
"""Forwards of up to so many rows are looked up; beyond, costs are a straight line."""


class CurrentCosts:
    """The costs of a profile as they are now. Without `observe` they stay what the profile says.

    Sources are numbered in the order of `sources`.
    """

    def __init__(self, costs: StepCosts, sources: Sequence[str]) -> None:
        self.sampled, self.sampled_row = costs.sampled, costs.sampled_row
        self._request = costs.request
        self._numbers = [n for n, _ in costs.rows]
        self._measured = rising([seconds for _, seconds in costs.rows])
        self._log_shape = [0.0] * len(self._numbers)
        self._met = [0.0] * len(self._numbers)  # steps that had about so many rows
        self._recent = [0.0] * len(self._numbers)  # their share of the steps from which the level was learnt
        self._log_level = 0.0
        self._drafts = [costs.drafts.get(source, DraftCost()) for source in sources]
        self._beside = [Beside(cost) for cost in self._drafts]
        self._factors = [1.0] * len(self._drafts)
        self._drafted = [0.0] * len(self._drafts)
        self._overhead = costs.overhead
        self._steps = self._last_plain = self._plain = 0
        self.thinking = 0.0
        """Seconds that a decision for one row takes, with what is learnt from its step. Not part of `step`."""
        self._thinking_per_row = {True: 0.0, False: 0.0}  # of a batch, in steps that draft and in steps that do not
        self._drafting: dict[tuple[int, int, bool], NDArray[Any]] = {}
        self._tabulate()

    # -- asking -------------------------------------------------------------------------------------------------------

    def step(self, batch: int, rows: float, sampled: float = 0.0) -> float:
        """Seconds of a step without its drafts: `rows` rows of the target's forward, `sampled` of them with a law.

        Rows may be an expectation.
        """
        below = min(int(rows), TABLE_ROWS)
        seconds: float = self._list[below] + (rows - below) * (
            self._slope if below == TABLE_ROWS else self._rises[below]
        )
        law = self.sampled + self.sampled_row * sampled if sampled else 0.0
        return seconds + (batch - 1) * self._request + self._overhead + law

    def steps(self, batch: int, rows: NDArray[Any], sampled: NDArray[Any] | float = 0.0) -> NDArray[Any]:
        """The same for many numbers of rows at once."""
        below = np.minimum(rows.astype(int), TABLE_ROWS)
        law = self.sampled * (np.asarray(sampled) > 0) + self.sampled_row * sampled
        seconds: NDArray[Any] = self._table[below] + (rows - below) * self._rise_table[below]
        seconds += law + ((batch - 1) * self._request + self._overhead)
        return seconds

    def further(self, rows: int, nodes: NDArray[Any]) -> NDArray[Any]:
        """Seconds that so many nodes more than `rows` rows add to a forward."""
        seconds: NDArray[Any]
        if rows + int(nodes[-1]) <= TABLE_ROWS:
            seconds = self._table[rows + nodes] - self._list[rows]
        else:
            seconds = self.steps(1, rows + nodes) - self.step(1, rows)
        return seconds

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
            if sampled:
                known += self.sampled_row * nodes
            self._drafting[key] = known
        return known if len(known) == len(nodes) else known[: len(nodes)]

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
        few = self._plain < LEARNING.first_steps
        due = LEARNING.plain_every_steps_at_first if few else LEARNING.plain_every_steps
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
        """A step took this long for its forward and laws, and its `overhead` for everything else but the drafts.
        beside: the source that drafted on meanwhile.

        The level follows, and slowly the shape near `rows`, or what is known of the drafter beside it.
        """
        if seconds <= 0:
            return
        self._steps += 1
        if rows == batch:
            self._plain += 1
            self._last_plain = self._steps
        error = math.log(seconds / (self.step(batch, rows, sampled) - self._overhead)) - self._log_level
        if beside is not None:
            error -= self._beside[beside].log_slowing
        if self._steps <= LEARNING.first_steps:
            self._log_level += error / self._steps
        else:
            self._log_level += LEARNING.level_step * _clipped(error, LEARNING.max_log_error)
            known = self._overhead * math.exp(self._log_level) or overhead
            overhead = min(overhead, 2 * known)
            self._overhead += LEARNING.level_step * (overhead * math.exp(-self._log_level) - self._overhead)
        self._recent = [(1 - LEARNING.level_step) * share for share in self._recent]
        if self._steps > LEARNING.first_steps:
            clipped = _clipped(error, LEARNING.max_first_log_error)
            for place, each in enumerate(self._beside):
                each.observe_forward(place == beside, clipped, LEARNING.level_step)
        below = max(0, bisect_right(self._numbers, rows) - 1)
        beyond = self._between(below, rows)
        for place, share in ((below, 1 - beyond), (below + 1, beyond)):
            if share:
                if beside is None:  # the shape is that of forwards with nothing beside them
                    self._correct(place, error, share)
                self._recent[place] += LEARNING.level_step * share
        if self._steps % LEARNING.refresh_steps == 0 or self._steps <= 2 * LEARNING.refresh_steps:
            self._tabulate()

    def _correct(self, place: int, error: float, share: float) -> None:
        """Move a measured number's cost, and less far those beside it of which less is known.

        An error tells this number from the others as far as the level comes from others: where all steps are alike,
        nothing is learnt about the shape, and noise must not be taken for it.
        """
        if self._steps > LEARNING.first_steps:
            change = share * _shape_step(error, self._met[place]) * (1 - self._recent[place])
            self._log_shape[place] = _clipped(self._log_shape[place] + change, LEARNING.max_log_correction)
            for beside in (place - 1, place + 1):
                if 0 <= beside < len(self._met) and self._met[beside] < self._met[place]:
                    self._log_shape[beside] += change / 2
        self._met[place] += share

    def observe_drafts(self, asked: Mapping[int, tuple[int, int]], seconds: float, drawn: bool = False) -> None:
        """Drafts took this long together, in turn. asked: depth and number of requests by source."""
        parts = {source: self.in_turn(source, depth, requests, drawn) for source, (depth, requests) in asked.items()}
        expected = sum(parts.values())
        if self._steps <= LEARNING.first_steps or expected <= 0 or seconds <= 0:
            return
        error = math.log(seconds / expected) - self._log_level
        for source, part in parts.items():
            share = part / expected
            change = share * _shape_step(error, self._drafted[source])
            self._factors[source] *= math.exp(change)
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
        known = known or seconds
        return known + LEARNING.thinking_share * (min(seconds, 2 * known) - known)

    def _between(self, below: int, rows: int) -> float:
        """How far `rows` lies from the measured number `below` to the next, 0 to 1."""
        if below + 1 >= len(self._numbers):
            return 0.0
        low, high = self._numbers[below], self._numbers[below + 1]
        return (rows - low) / (high - low)

    def _tabulate(self) -> None:
        """Seconds by number of rows: straight lines between the measured ones, and the last slope beyond."""
        self._drafting.clear()
        known = rising([s * math.exp(shape) for s, shape in zip(self._measured, self._log_shape, strict=True)])
        self._slope = (known[-1] - known[-2]) / (self._numbers[-1] - self._numbers[-2]) if len(known) > 1 else 0.0
        rows = np.arange(TABLE_ROWS + 1)
        table = np.interp(rows, self._numbers, known) + self._slope * np.maximum(0, rows - self._numbers[-1])
        self._table, self._list = table, table.tolist()
        self._rise_table = np.append(np.diff(table), self._slope)
        self._rises = self._rise_table.tolist()


def _shape_step(error: float, met: float) -> float:
    """How far to move for an error, by how often the thing was met before."""
    most = LEARNING.max_first_log_error if met < LEARNING.first_steps else LEARNING.max_log_error
    return max(LEARNING.shape_step, LEARNING.first_shape_step / (1 + met)) * _clipped(error, most)


def _clipped(value: float, most: float) -> float:
    return max(-most, min(most, value))
