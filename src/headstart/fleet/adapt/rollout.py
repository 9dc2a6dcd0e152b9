"""Replacing a drafter in a running fleet: one replica first, compared with the others, then the rest, or back.

The gate has proved a gain on held-out traffic. What it cannot see is everything else: another engine, another machine,
an export that went wrong. So one replica gets the new export, and both sides count under the same traffic at the same
time, in windows of time; a window, not a token, is the unit, since the tokens of a request are alike. The rest follow
as soon as tokens per forward of the new replica are proved to be no more than `tolerance` below those of the others.
The old export comes back if they are proved lower, if the new replica is proved to accept less than the others at some
position, as `headstart watch` compares replicas (which shows sooner, and whatever pacing and load do to tokens per
forward), if nothing is proved in time, or if the new replica fails.

Looks are made after 1, 2, 4, ... times `windows`; the j-th takes 6/(pi j)^2 of the error, half for either comparison,
so that all of them together have the level that was asked for. Texts are exact throughout: a drafter decides how fast
they come, not what they say.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headstart.base.errors import EndpointFailed, HeadstartError, InvalidOption
from headstart.base.options import check_fields, option, strict
from headstart.base.words import counted
from headstart.fleet.watch.counters import Counters, total
from headstart.fleet.watch.replicas import Unlike, tests_of, unlike
from headstart.fleet.watch.scrape import scrape
from headstart.theory.statistics import Interval, bootstrap

if TYPE_CHECKING:
    from headstart.fleet.launch.fleet import Fleet

Outcome = Literal["replaced", "back", "stopped"]
"""replaced: every replica runs the new export; back: none does; stopped: some do, because one could not be replaced."""


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOptions:
    """How long the new replica is compared, and with what it must come up."""

    window: float = option(
        30.0, "Seconds of a window of traffic.", "--rollout-window", metavar="SECONDS", panel="Rollout", above=0
    )
    windows: int = option(
        20, "Windows before the first judgement.", "--rollout-windows", metavar="N", panel="Rollout", low=10
    )
    tolerance: float = option(
        0.02, "By which share the new replica's tokens per forward may be lower for the others to follow.",
        "--rollout-tolerance", panel="Rollout", above=0, high=0.5,
    )  # fmt: skip
    patience: float = option(
        6.0, "Hours after which the old export is restored, if the new one is not proved better.", "--rollout-hours",
        metavar="HOURS",
        panel="Rollout", above=0,
    )  # fmt: skip
    level: float = option(
        0.95, "Confidence of all judgements together, below 1.", "--confidence", panel="Rollout", low=0.5, high=0.9999
    )

    def __post_init__(self) -> None:
        check_fields(self)


class Rollout:
    """One replacement, step by step. `step` is called every second or so, beside whatever else looks after the fleet;
    it takes long only while an engine is being replaced.

    Args:
        fleet: of two replicas or more.
        new, old: exports, see `headstart.fleet.export`.
        look: what a server has counted so far.
        clock: in seconds.

    Raises:
        InvalidOption: there is no other replica to compare with.
    """

    def __init__(
        self,
        fleet: Fleet,
        new: Path,
        old: Path,
        options: RolloutOptions | None = None,
        *,
        look: Callable[[str], Sequence[Counters]] = scrape,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if len(fleet.engines) < 2:
            raise InvalidOption("one replica alone cannot be compared with others", hint="launch two engines or more")
        self.outcome: Outcome | None = None
        """None while it is under way."""
        self.reason = ""
        """Why it ended as it did."""
        self.ratio = Interval(math.nan)
        """Of the last judgement: tokens per forward of the new replica to those of the others."""
        self._fleet, self._new, self._old = fleet, new, old
        self._options = options or RolloutOptions()
        self._look, self._clock = look, clock
        self._begun: float | None = None
        self._replaced = 0
        self._last: dict[str, Counters] = {}
        self._looked = 0.0
        self._windows: list[tuple[Counters, Counters]] = []
        self._judgements = 0

    def step(self) -> list[str]:
        """Do what is due; returns what happened, as sentences."""
        if self.outcome is not None:
            return []
        if self._begun is None:
            words = self._begin()
        elif self._replaced > 1:
            words = self._follow()
        else:
            words = self._watch(self._clock())
        if self.outcome is not None:
            self.reason = words[-1]
        return words

    def record(self) -> dict[str, Any]:
        """For a report."""
        return {
            "outcome": self.outcome, "reason": self.reason, "new": str(self._new), "old": str(self._old),
            "windows": len(self._windows), "judgements": self._judgements,
            "ratio": [self.ratio.value, self.ratio.low, self.ratio.high],
        }  # fmt: skip

    def _replace(self, place: int, export: Path) -> str:
        """Put an engine in a place; returns why that could not be, or "". A check that fails is such a reason."""
        try:
            self._fleet.replace(place, export)
        except HeadstartError as error:
            return error.message
        return ""

    # -- the first replica --------------------------------------------------------------------------------------------

    def _begin(self) -> list[str]:
        self._begun = self._looked = self._clock()
        if trouble := self._replace(0, self._new):
            self.outcome = "back"
            return [f"the new replica was not admitted, and the old one goes on: {trouble}"]
        self._replaced = 1
        self._begun = self._looked = self._clock()
        self._last = {}
        count = len(self._fleet.engines) - 1
        return [f"one replica runs {self._new}; it is compared with {count} other{'s' * (count > 1)}"]

    def _watch(self, now: float) -> list[str]:
        """Count a window if one has passed, and judge when there are enough of them."""
        assert self._begun is not None
        if now - self._looked < self._options.window:
            return []
        self._looked = now
        try:
            self._observe()
        except EndpointFailed as error:
            if not self._silent():
                return []
            return self._back(f"the new replica does not answer: {error.message}")
        if len(self._windows) >= self._options.windows * 2**self._judgements:
            return self._judge()
        if now - self._begun > self._options.patience * 3600:
            return self._back(f"nothing was proved in {counted(self._options.patience, 'hour', 'g')}")
        return []

    def _observe(self) -> None:
        """Add a window, if both sides have forwards in it and no engine was started again."""
        urls = [engine.url for engine in self._fleet.engines]
        now = {url: counters for url in urls if (counters := total(self._look(url))) is not None}
        before, self._last = self._last, now
        if any(url not in before or url not in now for url in urls):
            return
        deltas = [now[url] - before[url] for url in urls]
        rest = total(deltas[1:])
        if rest is None or any(delta.restarts for delta in deltas) or min(deltas[0].forwards, rest.forwards) <= 0:
            return
        self._windows.append((deltas[0], rest))

    def _silent(self) -> bool:
        """Whether it is the new replica that does not answer: others are not this rollout's business."""
        try:
            self._look(self._fleet.engines[0].url)
        except EndpointFailed:
            return True
        return False

    def _judge(self) -> list[str]:
        self._judgements += 1
        error = (1 - self._options.level) * 6 / (math.pi * self._judgements) ** 2 / 2
        units = np.array(
            [[new.generated, new.forwards, rest.generated, rest.forwards] for new, rest in self._windows], dtype=float
        )
        self.ratio = bootstrap(units, _ratio, level=1 - error, scale="log")
        seen = f"{counted(len(units), 'window')}{self._by_position()}"
        words = f"tokens per forward {self.ratio.times} of the others' in {seen}"
        if self.ratio.low > 1 - self._options.tolerance:
            self._replaced = 2
            return [f"{words}: the rest follow"]
        lower = self._lower(error)
        if lower is not None:
            return self._back(f"{words}; the new replica {lower.words}")
        if self.ratio.high < 1:
            return self._back(words)
        return [f"{words}: not decided yet"]

    def _lower(self, error: float) -> Unlike | None:
        """Where the new replica accepts less than the others, most; None where that is not proved, or where it accepts
        more elsewhere."""
        batches = [{"new": tests_of(new), "others": tests_of(rest)} for new, rest in self._windows]
        depth = min(len(counts) for batch in batches for counts in batch.values())
        if not depth:
            return None
        alike = [{side: counts[:depth] for side, counts in batch.items()} for batch in batches]
        found = unlike(alike, error)
        return found[0] if found and all(each.replica == "new" for each in found) else None

    def _by_position(self) -> str:
        """Acceptance by position of both sides, in words; nothing where it is not known."""
        new, rest = (total(side) for side in zip(*self._windows, strict=True))
        if new is None or rest is None:
            return ""
        pairs = []
        for place in range(min(len(new.accepted_per_position), len(rest.accepted_per_position))):
            own, other = new.acceptance_at(place), rest.acceptance_at(place)
            if own is None or other is None:
                break
            pairs.append(f"{own:.0%} against {other:.0%}")
        return f", acceptance by position {', '.join(pairs)}" if pairs else ""

    # -- the others, or back ------------------------------------------------------------------------------------------

    def _follow(self) -> list[str]:
        """Replace one more."""
        place = self._replaced - 1
        if trouble := self._replace(place, self._new):
            self.outcome = "stopped"
            return [f"replica {place} could not be replaced and goes on as it was: {trouble}"]
        self._replaced += 1
        if self._replaced > len(self._fleet.engines):
            self.outcome = "replaced"
            return [f"all {len(self._fleet.engines)} replicas run {self._new}"]
        return [f"{place + 1} of {counted(len(self._fleet.engines), 'replica')} run {self._new}"]

    def _back(self, why: str) -> list[str]:
        if trouble := self._replace(0, self._old):
            self.outcome = "stopped"
            return [f"{why}: the old export should come back, but was not admitted: {trouble}"]
        self.outcome = "back"
        return [f"{why}: {self._old} is back"]


def _ratio(units: Any) -> float:
    """Of tokens per forward, from units [n, 4]."""
    new, new_forwards, rest, rest_forwards = units.sum(0)
    return float(new / new_forwards / (rest / rest_forwards))
