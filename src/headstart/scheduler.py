"""Who runs in the next step: first come, first served; long prompts are read in chunks beside running rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.model.cache import KVCache
from headstart.pacing import Pacing
from headstart.request import Request


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One request in a step: how many uncached tokens it feeds, and how many nodes it may draft.

    `judged` is False for a chunk of a prompt that ends before x0: no logits are needed from it.
    """

    request: Request
    slot: int
    feed: tuple[int, ...]
    budget: int
    judged: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of one step."""

    rows: tuple[PlanRow, ...]

    @property
    def judged(self) -> tuple[PlanRow, ...]:
        return tuple(row for row in self.rows if row.judged)


class Scheduler:
    """Waiting and running requests. A request joins when a slot is free and leaves when it ends."""

    def __init__(self, cache: KVCache, *, prefill_chunk: int) -> None:
        self._cache = cache
        self._chunk = prefill_chunk
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
        rows: list[PlanRow] = []
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
            judged = len(feed) == len(unread)
            budget = self._budget(request, pacing) if judged else 0
            rows.append(PlanRow(request, request.slot, tuple(feed), budget, judged))
        return Plan(tuple(rows))

    @staticmethod
    def _budget(request: Request, pacing: Pacing) -> int:
        return max(0, min(pacing.budget(request.number), request.room)) if request.speculation.on else 0

    def requests(self) -> Sequence[Request]:
        return (*self.running, *self.waiting)
