"""What a step costs: a target forward of n rows, and a draft of each source. Measured at load, corrected while running.

`StepCosts` are the figures of a profile, in seconds, and never change. `Prices` follow the machine: a level that all
costs share (another process, a longer context), and corrections of the shape, which is what decisions turn on: bold
where a figure of the profile is first met in life, slow after that.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.theory.costs import DraftCost as DraftCost
from headstart.theory.costs import StepCosts, rising

_LEVEL = 0.1
_BOLD, _SLOW = 0.5, 0.03
_CLIP, _YOUNG_CLIP, _YOUNG = 0.25, 1.5, 6  # what one step may say, as a logarithm: machines hiccup
_SETTLED = 6  # steps before the shape is touched: the first ones warm caches
_BENT = 2.5  # most that a shape is ever corrected by, as a logarithm
_DOUBT = 0.25  # from such a level on, as a logarithm, the machine is not what its profile says
_OFTEN, _SELDOM = 16, 128  # steps between two plain ones then: at first, and once some have been seen
_FRESH = 16  # observed steps between two new tables, once there are many
_TABLE = 64


Costs = StepCosts  # the name that pacing knows it by


class Prices:
    """Costs as they are now, for quick look-ups. Without `observe` they stay what the profile says."""

    def __init__(self, costs: Costs, sources: Sequence[str]) -> None:
        self._request = costs.request
        self._numbers = [n for n, _ in costs.rows]
        self._measured = rising([seconds for _, seconds in costs.rows])
        self._shape = [0.0] * len(self._numbers)  # logarithms
        self._met = [0.0] * len(self._numbers)  # steps that had about so many rows
        self._lately = [0.0] * len(self._numbers)  # their share of the last steps: of what the level was learnt from
        self._level = 0.0
        self._drafts = [costs.drafts.get(source, DraftCost()) for source in sources]
        self._factors = [1.0] * len(self._drafts)
        self._drafted = [0.0] * len(self._drafts)
        self._steps = self._last_plain = self._plain = 0
        self._places = np.arange(_TABLE + 1)
        self.version = 0
        self._tabulate()

    # -- asking -------------------------------------------------------------------------------------------------------

    def forward(self, batch: int, rows: float) -> float:
        """Seconds of a target forward; `rows` may be an expectation."""
        table = self._table
        below = int(rows)
        if below >= _TABLE:
            seconds = table[_TABLE] + (rows - _TABLE) * self._slope
        else:
            seconds = table[below]
            if rows != below:
                seconds += (rows - below) * (table[below + 1] - seconds)
        return seconds + (batch - 1) * self._request

    def forwards(self, batch: int, rows: NDArray[Any]) -> NDArray[Any]:
        """The same for many numbers of rows at once."""
        seconds: NDArray[Any] = np.interp(rows, self._places, self._table)
        seconds += np.maximum(rows - _TABLE, 0) * self._slope + (batch - 1) * self._request
        return seconds

    def further(self, rows: int, count: int) -> list[float]:
        """Seconds that 1, 2, ... `count` rows more than `rows` add to a forward."""
        table = self._table
        if rows + count <= _TABLE:
            base = table[rows]
            return [seconds - base for seconds in table[rows + 1 : rows + count + 1]]
        base = self.forward(1, rows)
        return [self.forward(1, rows + k) - base for k in range(1, count + 1)]

    def start(self, source: int) -> float:
        return self._drafts[source].start * self._factors[source]

    def token(self, source: int) -> float:
        return self._drafts[source].token * self._factors[source]

    def read(self, source: int) -> float:
        return self._drafts[source].read * self._factors[source]

    def growth(self, source: int) -> float:
        return self._drafts[source].growth

    def draft(self, source: int, depth: int, requests: int) -> float:
        """Seconds of drafts of `depth` for so many requests."""
        if not requests:
            return 0.0
        one = self._drafts[source]
        return (one.start + one.token * depth) * self._factors[source] * (1 + one.growth * (requests - 1))

    @property
    def doubtful(self) -> bool:
        """Whether a plain step is due, to learn what decoding without drafts costs now.

        Drafts are weighed against it, and a draft that always pays would never let it be seen. As long as steps take
        the time that the profile says, it need not be.
        """
        due = _OFTEN if self._plain < _YOUNG else _SELDOM
        return abs(self._level) > _DOUBT and self._steps - self._last_plain >= due

    # -- learning -----------------------------------------------------------------------------------------------------

    def observe(self, batch: int, rows: int, seconds: float) -> None:
        """A step without its drafts took this long: the level follows, and slowly the shape near `rows`."""
        if seconds <= 0:
            return
        self._steps += 1
        if rows == batch:
            self._plain += 1
            self._last_plain = self._steps
        surprise = math.log(seconds / self.forward(batch, rows)) - self._level
        if self._steps <= _SETTLED:
            self._level += surprise / self._steps
        else:
            self._level += _LEVEL * max(-_CLIP, min(_CLIP, surprise))
        below = max(0, bisect_right(self._numbers, rows) - 1)
        further = self._between(below, rows)
        self._lately = [(1 - _LEVEL) * share for share in self._lately]
        self._correct(below, surprise, 1 - further)
        if further:
            self._correct(below + 1, surprise, further)
        if self._steps % _FRESH == 0 or self._steps <= 2 * _FRESH:
            self._tabulate()

    def _correct(self, place: int, surprise: float, share: float) -> None:
        """Move a measured number's cost, and less far those beside it of which less is known.

        A surprise tells this number from the others as far as the level comes from others: where all steps are alike,
        nothing is learnt about the shape, and noise must not be taken for it.
        """
        if self._steps > _SETTLED:
            change = share * _step(surprise, self._met[place]) * (1 - self._lately[place])
            self._shape[place] = max(-_BENT, min(_BENT, self._shape[place] + change))
            for beside in (place - 1, place + 1):
                if 0 <= beside < len(self._met) and self._met[beside] < self._met[place]:
                    self._shape[beside] += change / 2
        self._met[place] += share
        self._lately[place] += _LEVEL * share

    def observe_drafts(self, asked: Mapping[int, tuple[int, int]], seconds: float) -> None:
        """Drafts took this long together. asked: depth and number of requests by source."""
        parts = {source: self.draft(source, depth, requests) for source, (depth, requests) in asked.items()}
        expected = sum(parts.values())
        if self._steps <= _SETTLED or expected <= 0 or seconds <= 0:
            return
        surprise = math.log(seconds / expected) - self._level
        for source, part in parts.items():
            share = part / expected
            self._factors[source] *= math.exp(share * _step(surprise, self._drafted[source]))
            self._drafted[source] += share

    def _between(self, below: int, rows: int) -> float:
        """How far `rows` lies from the measured number `below` to the next, 0 to 1."""
        if below + 1 >= len(self._numbers):
            return 0.0
        low, high = self._numbers[below], self._numbers[below + 1]
        return (rows - low) / (high - low)

    def _tabulate(self) -> None:
        """Seconds by number of rows, straight lines between the measured ones and the last slope beyond."""
        known = rising([s * math.exp(shape) for s, shape in zip(self._measured, self._shape, strict=True)])
        table = [known[0], known[0]]  # no forward has fewer than one row
        for place, high in enumerate(self._numbers[1:]):
            low, before = self._numbers[place], known[place]
            step = (known[place + 1] - before) / (high - low)
            table += [before + step * i for i in range(1, high - low + 1)]
        self._slope = (known[-1] - known[-2]) / (self._numbers[-1] - self._numbers[-2]) if len(known) > 1 else 0.0
        while len(table) <= _TABLE:
            table.append(table[-1] + self._slope)
        self._table = table
        self.version += 1


def _step(surprise: float, met: float) -> float:
    """How far to move for a surprise, by how often the thing was met before."""
    clip = _YOUNG_CLIP if met < _YOUNG else _CLIP
    return max(_SLOW, _BOLD / (1 + met)) * max(-clip, min(clip, surprise))
