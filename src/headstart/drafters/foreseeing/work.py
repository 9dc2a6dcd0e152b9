"""What the worker of `AheadDrafter` does: it drafts for rows, and between two calls foresees what may come of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from headstart.drafters import Drafter, Foreseen, Foresees, Foresight, Observation, Row
from headstart.drafters.foreseeing.outcomes import Outcomes
from headstart.model.threads import use_threads
from headstart.types import Draft, Preparation


class ForeseeingWork:
    """What the worker does and keeps. Only its thread calls this; it holds nothing of `AheadDrafter`, which the
    program must be able to forget while the thread sleeps."""

    def __init__(self, inner: Drafter, branches: int, partial: bool) -> None:
        self._inner, self._partial = inner, partial
        self.threads: int | None = None
        """Its share of the cores while the target judges."""
        self._outcomes = Outcomes(branches)
        self._drafted: tuple[Sequence[Row], Sequence[Draft]] | None = None
        self._foresight: Foresight | None = None
        self._judged = False
        self._error: BaseException | None = None
        self._forwards, self._begin, self._end = 0, 0.0, 0.0

    def draft(self, rows: Sequence[Row], ahead: bool) -> list[tuple[Draft, Preparation]]:
        """The drafts of these rows, ready or made now, on all cores, since the target waits. ahead: whether to draft on
        for what may come of them."""
        use_threads(None)
        try:
            return self._draft(rows, ahead)
        finally:
            use_threads(self.threads)

    def _draft(self, rows: Sequence[Row], ahead: bool) -> list[tuple[Draft, Preparation]]:
        foresight, self._foresight, self._drafted = self._foresight, None, None
        self._raise()
        found = [Foreseen()] * len(rows) if foresight is None else foresight.take(rows, partial=self._partial)
        missed = [row for row, each in zip(rows, found, strict=True) if each.draft is None]
        made = iter(self._inner.propose(missed) if missed else ())
        drafts = [next(made) if each.draft is None else each.draft for each in found]
        for device in {draft.q.device for draft in drafts if draft.q is not None and draft.q.is_cuda}:
            torch.cuda.current_stream(device).synchronize()  # the engine reads them on a stream of its own
        answer = [(draft, self._prepared(each)) for draft, each in zip(drafts, found, strict=True)]
        self._drafted, self._judged = (rows, drafts) if ahead else None, False
        self._forwards, self._begin, self._end = 0, 0.0, 0.0
        return answer

    def _prepared(self, found: Foreseen) -> Preparation:
        depth = 0
        if found.node is not None:
            depth = self._outcomes.learn(found)
        return Preparation(
            found.draft is not None,
            found.node,
            depth,
            found.rank,
            found.branches,
            self._forwards,
            self._begin,
            self._end,
        )

    def idle(self) -> bool:
        """Draft on for what may come; returns whether there is more to do."""
        if self._judged or self._error is not None:
            return False
        try:
            if self._drafted is not None:
                assert isinstance(self._inner, Foresees), "checked by `Ahead`"
                self._foresight = self._inner.foresee(*self._drafted, self._outcomes)
                self._drafted = None
            if self._foresight is None:
                return False
            self._begin = self._begin or time.perf_counter()
            more = self._foresight.advance()
            self._forwards += 1
            self._end = time.perf_counter()
        except BaseException as error:  # raised again by the next call for a draft; the thread must live for that
            self._error, self._foresight = error, None
            return False
        return more

    def observe(self, observation: Observation) -> None:
        self._judged = True  # what came of the round is known: the next call for a draft comes at once
        self._guarded(lambda: self._inner.observe(observation))

    def release(self, request: int) -> None:
        if self._foresight is not None:
            self._foresight.forget(request)
        if self._drafted is not None:
            kept = [each for each in zip(*self._drafted, strict=True) if each[0].request != request]
            self._drafted = ([row for row, _ in kept], [draft for _, draft in kept])
        self._guarded(lambda: self._inner.release(request))

    def forget(self) -> None:
        """No request is left: what went wrong in foreseeing for them is no concern of those that come."""
        self._error = self._drafted = self._foresight = None

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:  # raised again by the next call for a draft
            self._error = error

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
