"""`Ahead`: a drafter that drafts while the target verifies, and hands out the very drafts it would have made in turn.

A worker thread owns the inner drafter and its caches; all that is asked of it is a message, so nothing inside needs a
lock. While the target judges a round, the worker drafts after each of its likely outcomes (`Drafter.foresee`). When the
outcome is known, its draft is there (a hit), or it is drafted now (a miss). Which outcomes were foreseen, and how far
the worker came, changes the time that a draft takes and never what it says: drafts are drawn with noise that depends on
the request's seed and on places in its text alone. docs/concepts/ssd.md explains it.

Source: Saguaro (arXiv:2603.03251).
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from headstart.drafters import Drafter, Foreseen, Foresight, Observation, Row
from headstart.drafters.ahead_or_in_turn import AheadOrInTurn
from headstart.drafters.outcomes import Outcomes
from headstart.drafters.worker import Worker, Works
from headstart.errors import InvalidOption
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.model.threads import use_threads
from headstart.options import check_number
from headstart.types import Draft, Preparation

PREFIX = "ahead:"
"""Before the name of a drafter: that drafter, ahead of the target."""
BRANCHES = 8
"""Outcomes of a round for which drafts are made, where nobody chooses."""

MakeWorker = Callable[[Callable[[], bool], Callable[[], None], str], Works]


class Ahead(Drafter):
    """`inner`, drafting ahead of the target.

    Args:
        inner: a drafter that can foresee, or the name, path or hub id of one for `headstart.load` to make.
        branches: outcomes of a round for which drafts are made, the likeliest ones.
        threads: of the cores, how many are the drafter's while both models run; None is one where it shares them with
            the target, and all where the target runs on another device.
        pin: keep the drafter's thread on the last `threads` cores that this process may use (Linux).
        partial: serve a draft that the worker has not finished as it is, where no seed promises the text. Without it
            the rest is drafted then: what a further token costs and brings is the same as in turn.
        always: draft ahead also where that is found to be slower than drafting in turn.
        worker: makes the worker, for tests.

    Raises:
        InvalidOption: an option out of its range, or a drafter that cannot draft ahead.
    """

    draws = True

    def __init__(
        self,
        inner: Drafter | str | Path,
        *,
        branches: int = BRANCHES,
        threads: int | None = None,
        pin: bool = False,
        partial: bool = True,
        always: bool = False,
        worker: MakeWorker = Worker,
    ) -> None:
        check_number("branches", branches, low=1, integer=True)
        if threads is not None:
            check_number("threads", threads, low=1, integer=True)
        self.source = inner if isinstance(inner, (str, Path)) else inner.name
        self.branches, self.threads, self.pin = branches, threads, pin
        self.partial, self.always = partial, always
        self._make_worker = worker
        self._open: set[int] = set()
        self._worker: Works | None = None
        if not isinstance(inner, (str, Path)):
            self._take(inner)

    @property
    def made(self) -> bool:
        """Whether it has its inner drafter, and not only the name of one."""
        return hasattr(self, "inner")

    def around(self, inner: Drafter) -> Ahead:
        """The same around a drafter that has been made from the name."""
        return Ahead(
            inner,
            branches=self.branches,
            threads=self.threads,
            pin=self.pin,
            partial=self.partial,
            always=self.always,
            worker=self._make_worker,
        )

    def _take(self, inner: Drafter) -> None:
        if not inner.can_foresee:
            raise InvalidOption(
                f"{inner.name} cannot draft ahead of the target",
                hint="draft models and early exit can; drafters that copy cost nothing, heads need the target's states",
            )
        self.inner = inner
        self.name = PREFIX + inner.name
        self.default_budget = inner.default_budget
        self.taps, self.draws = inner.taps, inner.draws
        self._work = _Work(inner, self.branches, self.partial)
        self._quicker = AheadOrInTurn()

    # -- what it is, as the inner drafter says ------------------------------------------------------------------------

    @property
    def limit(self) -> int:
        return self.inner.limit

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        return self.inner.sizes

    @property
    def in_turn(self) -> Drafter:
        return self.inner

    def weights(self) -> Iterable[Tensor]:
        return self.inner.weights()

    def applies(self, row: Row) -> bool:
        return self.inner.applies(row)

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        self.inner.attach(target, cache)
        device = next((tensor.device for tensor in self.inner.weights()), target.device)  # none: those of the target
        shared = device.type == target.device.type == "cpu"
        cores = torch.get_num_threads()
        mine = self.threads or (1 if shared else cores)
        self._place = _Place(device, mine, self.pin)
        self._targets_share = max(1, cores - mine) if shared else None
        self._work.threads = mine

    # -- a step -------------------------------------------------------------------------------------------------------

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        use_threads(None)
        asked = time.perf_counter()
        self._open.update(row.request for row in rows)
        worker = self._worker or self._start()
        ahead = self.always or self._quicker.ahead
        drafts: list[tuple[Draft, Preparation]] = worker.call(self._work.draft, rows, ahead)
        beside = ahead and any(len(draft) for draft, _ in drafts)
        use_threads(self._targets_share if beside else None)
        answered = time.perf_counter()
        return [
            replace(draft, source=self.name, prepared=replace(prepared, asked=asked, answered=answered, beside=beside))
            for draft, prepared in drafts
        ]

    def observe(self, observation: Observation) -> None:
        use_threads(None)
        self._quicker.observe(observation.step, self.name)
        draft = observation.step.draft
        if draft.source == self.name:  # the inner drafter knows it by its own name
            step = replace(observation.step, draft=replace(draft, source=self.inner.name))
            observation = replace(observation, step=step)
        if self._worker is None:
            self.inner.observe(observation)
        else:
            self._worker.post(self._work.observe, observation)

    def release(self, request: int) -> None:
        use_threads(None)
        self._open.discard(request)
        if self._worker is None:
            self.inner.release(request)
            return
        self._worker.post(self._work.release, request)
        if not self._open:
            self.close()

    def close(self) -> None:
        """End the worker; the next draft starts another. It also ends with the last request."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
            self._finalizer.detach()
            self._work.forget()

    def _start(self) -> Works:
        self._worker = self._make_worker(self._work.idle, self._place.enter, "headstart-ahead")
        self._finalizer = weakref.finalize(self, self._worker.stop)
        return self._worker


class _Work:
    """What the worker does and keeps. Only its thread calls this; it holds nothing of `Ahead`, which must be able to be
    forgotten while the thread sleeps."""

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
                self._foresight = self._inner.foresee(*self._drafted, self._outcomes)
                self._drafted = None
            if self._foresight is None:
                return False
            self._begin = self._begin or time.perf_counter()
            more = self._foresight.advance()
            self._forwards += 1
            self._end = time.perf_counter()
        except BaseException as error:  # raised again where the next draft is asked for; the thread must live for that
            self._error, self._foresight = error, None
            return False
        return more

    def observe(self, observation: Observation) -> None:
        self._judged = True  # what came of the round is known: the next draft will be asked for at once
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
        except BaseException as error:  # raised again where the next draft is asked for
            self._error = error

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


@dataclass(frozen=True)
class _Place:
    """Where the worker runs."""

    device: torch.device
    threads: int
    pin: bool

    def enter(self) -> None:
        """Move the calling thread there."""
        use_threads(self.threads)
        if self.device.type == "cuda":  # its forwards must not queue behind the target's
            torch.cuda.set_stream(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]
        if self.pin and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-self.threads :])
