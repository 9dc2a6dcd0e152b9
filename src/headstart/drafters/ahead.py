"""`AheadDrafter`: it drafts while the target verifies, and hands out the very drafts it would have made in turn.

A worker thread owns the inner drafter and its caches; every call to it is a message, so nothing inside needs a lock.
While the target judges a round, the worker drafts after each of its likely outcomes (`Foresees.foresee`). When the
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
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number
from headstart.drafters import BuildContext, Drafter, Foresees, Observation, Row, Weights, capabilities
from headstart.drafters.building import PREFIX
from headstart.drafters.foreseeing.ahead_or_in_turn import AheadOrInTurn
from headstart.drafters.foreseeing.work import ForeseeingWork
from headstart.drafters.foreseeing.worker import Worker, Works
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.model.threads import process_threads, use_threads
from headstart.types import Draft, Preparation

__all__ = ["BRANCHES", "PREFIX", "WEIGHTS", "Ahead", "AheadDrafter", "build"]

WEIGHTS: Weights = "drafter"

BRANCHES = 8
"""Outcomes of a round for which drafts are made, where the user chooses no number."""

MakeWorker = Callable[[Callable[[], bool], Callable[[], None], str], Works]


@dataclass(frozen=True)
class Ahead:
    """A drafter that drafts ahead: it works while the target verifies the draft before. Give it to `headstart.load` in
    place of a drafter.

    inner: the drafter: a draft model, "early-exit" or a trained exit, by name, path or hub id, or a `Drafter` that can
        foresee.
    branches: for how many outcomes of a round drafts are made; the likeliest ones. Default: 8.
    threads: cores of the drafter while both models run. Default: None, which is 1 if it shares them with the target,
        and all if the target runs on another device.
    pin: keep the drafter's thread on the last `threads` cores that this process may use (Linux). Default: False.
    partial: use a draft that is not finished as it is, unless a seed promises a text that depends on the drafts. With
        False the rest is drafted first. Default: True.
    always: draft ahead even if that is measured to be slower than drafting in turn. Default: False.

    Raises:
        InvalidOption: an option is out of its range, or the drafter cannot draft ahead.

    Examples:
        >>> import headstart as hs
        >>> engine = hs.load("bundled", hs.Ahead("early-exit", branches=4), dtype="float32", max_batch_size=1)
        >>> engine.drafter_name
        'ahead:early-exit'
    """

    inner: Drafter | str | Path
    _: KW_ONLY
    branches: int = BRANCHES
    threads: int | None = None
    pin: bool = False
    partial: bool = True
    always: bool = False

    def __post_init__(self) -> None:
        check_number("branches", self.branches, low=1, integer=True)
        if self.threads is not None:
            check_number("threads", self.threads, low=1, integer=True)
        if not isinstance(self.inner, (str, Path, Foresees)):
            raise InvalidOption(
                f"{self.inner.name} cannot draft ahead of the target",
                hint="draft models, early exit and trained exits can; drafters that copy cost nothing, heads need the "
                "target's states",
            )

    def around(self, inner: Drafter) -> AheadDrafter:
        """Wrap a drafter that was made from the name `inner`.

        Raises:
            InvalidOption: it cannot draft ahead.
        """
        return AheadDrafter(replace(self, inner=inner))


class AheadDrafter(Drafter):
    """A drafter that drafts ahead of the target.

    Args:
        how: with the inner drafter itself, not its name.
        worker: makes the worker, for tests.
    """

    def __init__(self, how: Ahead, worker: MakeWorker = Worker) -> None:
        inner = how.inner
        assert isinstance(inner, Drafter), "made from its name before"
        self.how, self.inner = how, inner
        self.name = PREFIX + inner.name
        self.default_budget = inner.default_budget
        self.taps, self.draws = capabilities.taps(inner), capabilities.draws(inner)
        self.same_model = capabilities.same_model(inner)
        self._make_worker = worker
        self._open: set[int] = set()
        self._worker: Works | None = None
        self._work = ForeseeingWork(inner, how.branches, how.partial)
        self._quicker = AheadOrInTurn()

    # -- what it is, as the inner drafter says ------------------------------------------------------------------------

    @property
    def limit(self) -> int:
        return capabilities.limit(self.inner)

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        return capabilities.sizes(self.inner)

    @property
    def in_turn(self) -> Drafter:
        return self.inner

    def weights(self) -> Iterable[Tensor]:
        return capabilities.weights(self.inner)

    @property
    def weights_in_words(self) -> str:
        return capabilities.weights_in_words(self.inner)

    def applies(self, row: Row) -> bool:
        return capabilities.applies(self.inner, row)

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        capabilities.attach(self.inner, target, cache)
        device = next((tensor.device for tensor in self.weights()), target.device)  # none: those of the target
        shared = device.type == target.device.type == "cpu"
        cores = process_threads()
        mine = self.how.threads or (1 if shared else cores)
        self._place = _Place(device, mine, self.how.pin)
        self._targets_share = max(1, cores - mine) if shared else None
        self._work.threads = mine

    # -- a step -------------------------------------------------------------------------------------------------------

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        use_threads(None)
        asked = time.perf_counter()
        self._open.update(row.request for row in rows)
        worker = self._worker or self._start()
        ahead = self.how.always or self._quicker.ahead
        drafts: list[tuple[Draft, Preparation]] = worker.call(self._work.draft, rows, ahead)
        beside = ahead and any(len(draft) for draft, _ in drafts)
        use_threads(self._targets_share if beside else None)
        answered = time.perf_counter()
        return [
            replace(
                draft,
                source=self.name,
                prepared=replace(prepared, asked=asked, answered=answered, beside=beside),
                caught_up=tuple([replace(each, source=self.name) for each in draft.caught_up]),
            )
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


def build(context: BuildContext) -> AheadDrafter:
    assert context.inner is not None, "the drafter has been made"
    return Ahead(context.inner, threads=context.threads).around(context.inner)


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
