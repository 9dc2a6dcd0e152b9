"""What drafting ahead leaves behind: of one draft (`Preparation`), and counted over a request (`AheadStats`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class Preparation:
    """How a draft was made by a drafter that drafts ahead, while the target judged the round before.

    hit: whether the draft was ready, in part or whole.
    node: the last accepted node of the draft before, -1 for x0; None if no round was foreseen.
    depth: how many tokens of it were accepted.
    rank: the rank of the bonus token among the drafter's likeliest tokens there, from 0; None if it was not among them.
    branches: outcomes for which drafts were being made.
    forwards: the drafter's forwards for these drafts.
    begin, end: when the first of these forwards began and the last ended, in seconds of `time.perf_counter`; equal if
        there was none.
    asked, answered: when this draft was asked for, and when the engine had it. Between them the engine waited.
    beside: whether drafts are made ahead while the target judges this one.
    """

    hit: bool
    node: int | None = None
    depth: int = 0
    rank: int | None = None
    branches: int = 0
    forwards: int = 0
    begin: float = 0.0
    end: float = 0.0
    asked: float = 0.0
    answered: float = 0.0
    beside: bool = False

    @property
    def foreseen(self) -> bool:
        """Whether there was a round to foresee: not before the first draft of a request."""
        return self.branches > 0

    @property
    def waited(self) -> float:
        """Seconds that the engine waited for the draft."""
        return self.answered - self.asked


@dataclass(frozen=True, slots=True)
class AheadStats:
    """What drafting ahead gained a request: how often its draft was ready when it was asked for.

    A round counts where something was foreseen of it. Not before the first draft of a request, nor where the target
    was done before the drafter had drafted anything; so `drafts` is more than hits and misses.

    drafts: drafts of a drafter that drafts ahead.
    hits: rounds after which the draft was ready, in part or whole.
    misses: rounds that came to an outcome for which nothing was drafted; the draft was made then.
    waits: of both, rounds whose next draft was asked for while the drafter was still in a forward for what might come.
    seconds_on_hits, seconds_on_misses: that the engine waited for those drafts. Requests of a batch share them, as they
        share `Seconds.draft`.
    rounds_per_depth: [k] counts the rounds of which k draft tokens were accepted.
    hits_per_depth: [k] counts the hits among them.
    """

    drafts: int = 0
    hits: int = 0
    misses: int = 0
    waits: int = 0
    seconds_on_hits: float = 0.0
    seconds_on_misses: float = 0.0
    rounds_per_depth: tuple[int, ...] = ()
    hits_per_depth: tuple[int, ...] = ()

    @property
    def rounds(self) -> int:
        """Rounds of which something was foreseen."""
        return self.hits + self.misses

    @property
    def hit_rate(self) -> float:
        """The share of hits among these rounds; 0 where there are none."""
        return self.hits / self.rounds if self.rounds else 0.0

    def counting(self, prepared: Preparation) -> AheadStats:
        """The same with one draft more."""
        if not prepared.foreseen:
            return replace(self, drafts=self.drafts + 1)
        hit = prepared.hit
        at = () if prepared.node is None else (*(0,) * prepared.depth, 1)
        return self + AheadStats(
            drafts=1,
            hits=int(hit),
            misses=int(not hit),
            waits=int(prepared.end > prepared.asked),
            seconds_on_hits=prepared.waited if hit else 0.0,
            seconds_on_misses=0.0 if hit else prepared.waited,
            rounds_per_depth=at,
            hits_per_depth=at if hit else (0,) * len(at),
        )

    def __add__(self, other: AheadStats) -> AheadStats:
        return AheadStats(
            self.drafts + other.drafts,
            self.hits + other.hits,
            self.misses + other.misses,
            self.waits + other.waits,
            self.seconds_on_hits + other.seconds_on_hits,
            self.seconds_on_misses + other.seconds_on_misses,
            _added(self.rounds_per_depth, other.rounds_per_depth),
            _added(self.hits_per_depth, other.hits_per_depth),
        )


def _added(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))
