"""What speculation saved a request: the plain steps that its tokens would have taken, less the time that they took.

Plain steps are measured here and now. Steps that happen to have no drafts count, and every few steps the engine runs
one plain step more, of the rows that run just then, and keeps nothing of it, until enough is known of such steps for an
hour. Known means: at this number of requests in a step, with a mean context of the same power of two, with or without
sampling. Of a step's seconds those of the forward and of sampling count; the commit, which a plain step has as well, is
left out on both sides.

A step that writes k tokens of a request saves k plain steps, less its own plan, draft, forward and sampling. Where it
reads a prompt as well, a plain step would have had to do that too: it saves k - 1, less its draft and the share of its
forward that the drafted rows are.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean, variance
from typing import NamedTuple

from headstart.rule.row import Row
from headstart.theory.statistics import student
from headstart.types import Saved, Step

LEVEL = 0.95
"""Of the interval."""
LEAST, ENOUGH = 3, 8
"""Plain steps of a kind before which nothing is said, and up to which further ones are run."""
SOON, SELDOM = 4, 32
"""Steps between two that are run, while there are fewer than `LEAST`, and from then on."""
KEPT, KEPT_SECONDS = 64, 3600.0
"""The latest plain steps of a kind that count, and for how long."""
_SHORT = 8
"""Contexts of up to 2**8 tokens are one kind."""


class Kind(NamedTuple):
    """Steps that take alike long without drafts."""

    requests: int
    sampled: bool
    """Whether any request samples."""
    context: int
    """The power of two that the mean context is below."""

    @classmethod
    def of(cls, contexts: Sequence[int], *, sampled: bool) -> Kind:
        """contexts: of each request, its tokens so far."""
        mean = sum(contexts) // len(contexts)
        return cls(len(contexts), sampled, max(_SHORT, mean.bit_length()))


@dataclass(slots=True)
class _Spent:
    """What a request did in steps of one kind."""

    plain: int = 0
    """Plain steps that its tokens would have taken."""
    tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Tally:
    """One request's steps, by kind."""

    spent: defaultdict[Kind, _Spent] = field(default_factory=lambda: defaultdict(_Spent))

    def add(self, step: Step, steps: Sequence[Step], kind: Kind) -> None:
        """steps: all of the same forward."""
        written = len(step.tokens)
        if not written:
            return
        spent, seconds = self.spent[kind], step.seconds
        forward = seconds.verify + seconds.sample
        spent.tokens += written
        if _reads(steps):
            rows, drafted = sum(each.rows for each in steps), sum(len(each.draft) for each in steps)
            spent.plain += written - 1
            spent.seconds += seconds.draft + forward * drafted / rows
        else:
            spent.plain += written
            spent.seconds += seconds.plan + seconds.draft + forward


class PlainSteps:
    """The plain steps that were measured lately.

    clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._measured: defaultdict[Kind, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._kind: Kind | None = None
        self._since = 0

    def observe(self, steps: Sequence[Step], *, sampled: bool) -> Kind:
        """Take note of the steps of one forward; returns their kind."""
        kind = Kind.of([step.position for step in steps], sampled=sampled)
        self._since += 1
        reads = _reads(steps)
        if not reads and not any(len(step.draft) for step in steps):
            self._add(kind, steps[0].seconds.verify + steps[0].seconds.sample)
        # a step in which drafters read is as long as anybody should wait: a plain one would come on top of it
        caught_up = any(each.read or each.unread for step in steps for each in step.draft.caught_up)
        self._kind = None if reads or caught_up else kind
        return kind

    @property
    def due(self) -> bool:
        """Whether a plain step should be run now."""
        if self._kind is None:
            return False
        known = len(list(self._recent(self._kind)))
        return known < ENOUGH and self._since >= (SOON if known < LEAST else SELDOM)

    def timed(self, rows: Sequence[Row], seconds: float) -> None:
        """A plain step of these rows was run."""
        self._since = 0
        sampled = any(not row.sampling.greedy for row in rows)
        self._add(Kind.of([len(row.tokens) for row in rows], sampled=sampled), seconds)

    def _add(self, kind: Kind, seconds: float) -> None:
        self._measured[kind].append((self._clock(), seconds))

    def _recent(self, kind: Kind) -> Iterator[float]:
        oldest = self._clock() - KEPT_SECONDS
        return (seconds for at, seconds in self._measured.get(kind, ()) if at >= oldest)

    def saved(self, tally: Tally) -> Saved | None:
        """What speculation saved the request; None where none of its plain steps were measured.

        The interval is a prediction interval of level 0.95 for what these very steps would have taken: Student's, from
        the mean and the scatter of the measured ones, as if the times of plain steps were normal and independent. For N
        steps of a kind of which n were measured with a variance s2, the sum N * mean has the variance
        s2 * (N + N**2 / n); kinds add up, and the degrees of freedom are those of the kind with fewest. What the
        request took is known and adds nothing.
        """
        seconds = scatter = 0.0
        tokens, counts = 0, []
        for kind, spent in tally.spent.items():
            measured = list(self._recent(kind)) if spent.plain else []
            if len(measured) >= LEAST:
                counts.append(len(measured))
                seconds += spent.plain * fmean(measured)
                scatter += variance(measured) * (spent.plain + spent.plain**2 / len(measured))
            elif spent.plain:
                continue
            seconds -= spent.seconds
            tokens += spent.tokens
        if not counts:
            return None
        reach = _quantile(min(counts) - 1) * math.sqrt(scatter)
        return Saved(seconds, seconds - reach, seconds + reach, tokens)


def _reads(steps: Sequence[Step]) -> bool:
    """Whether a prompt is read in these steps of one forward."""
    return sum(step.rows - len(step.draft) for step in steps) > len(steps)


@cache
def _quantile(freedom: int) -> float:
    return student(freedom, (1 + LEVEL) / 2)
