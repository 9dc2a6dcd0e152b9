"""Who runs in the next step: first come, first served; long prompts are read in chunks beside running rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.engine.request import Request
from headstart.model.cache import Slots
from headstart.pacing import Pacing, PacingRow
from headstart.types import Budget


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One request in a step: how many uncached tokens it feeds, how much it may draft and why.

    `judged` is False for a chunk of a prompt that ends before x0: no logits are needed from it.
    """

    request: Request
    slot: int
    feed: tuple[int, ...]
    budget: Budget
    judged: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of one step."""

    rows: tuple[PlanRow, ...]

    @property
    def judged(self) -> tuple[PlanRow, ...]:
        return tuple(row for row in self.rows if row.judged)


class Scheduler:
    """Waiting and running requests. A request joins when a slot is free and leaves when it ends.

    pin: whether a seed's text depends on draft lengths here, so that a seeded request must be paced by itself.
    """

    def __init__(self, cache: Slots, *, prefill_chunk: int, pin: bool = False) -> None:
        self._cache = cache
        self._chunk = prefill_chunk
        self._pin = pin
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def admit(self) -> None:
        """Give free slots to waiting requests, in order of arrival."""
        while self.waiting and self._cache.free_slots:
            request = self.waiting.popleft()
            request.slot = self._cache.acquire()
            self.running.append(request)

    def remove(self, request: Request) -> None:
        """Take out an ended request and free its slot."""
        if request.slot is None:
            self.waiting.remove(request)
            return
        self.running.remove(request)
        self._cache.release(request.slot)
        request.slot = None

    def plan(self, pacing: Pacing) -> Plan:
        """Rows that decode always run; prompts share `prefill_chunk` tokens a step, the oldest first."""
        feeds: list[tuple[Request, int, tuple[int, ...], bool]] = []
        left = self._chunk
        for request in self.running:
            assert request.slot is not None, "a running request has a slot"
            unread = request.tokens[self._cache.lengths[request.slot] :]
            if len(unread) > 1:
                if left == 0:
                    continue
                feed = unread[:left]
                left -= len(feed)
            else:
                feed = unread
            feeds.append((request, request.slot, tuple(feed), len(feed) == len(unread)))
        if not feeds:
            return Plan(())
        asked = [self._pacing_row(request, judged) for request, _, _, judged in feeds]
        return Plan(
            tuple(
                PlanRow(request, slot, feed, budget.within(row.room), judged)
                for (request, slot, feed, judged), row, budget in zip(feeds, asked, pacing.plan(asked), strict=True)
            )
        )

    def _pacing_row(self, request: Request, judged: bool) -> PacingRow:
        room = max(0, request.room) if judged and request.speculation.on else 0
        return PacingRow(request.number, len(request.tokens), room, self._pin and request.seeded)

    def requests(self) -> Sequence[Request]:
        return (*self.running, *self.waiting)
