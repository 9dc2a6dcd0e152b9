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

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number
from headstart.drafters import Drafter, Observation, Row
from headstart.drafters.foreseeing.ahead_or_in_turn import AheadOrInTurn
from headstart.drafters.foreseeing.work import ForeseeingWork
from headstart.drafters.foreseeing.worker import Worker, Works
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.model.threads import use_threads
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
            the rest is drafted then: what a further token costs and gains is the same as in turn.
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
                hint="draft models, early exit and trained exits can; drafters that copy cost nothing, heads need the "
                "target's states",
            )
        self.inner = inner
        self.name = PREFIX + inner.name
        self.default_budget = inner.default_budget
        self.taps, self.draws = inner.taps, inner.draws
        self._work = ForeseeingWork(inner, self.branches, self.partial)
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

    @property
    def weights_in_words(self) -> str:
        return self.inner.weights_in_words

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
