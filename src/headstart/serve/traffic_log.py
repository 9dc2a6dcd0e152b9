"""Writing down what is asked and answered, in tokens, so that a drafter can be adapted to it: `headstart adapt`.

Nothing is written unless the operator asks for it (`--traffic FILE`), and never of a request that says `store: false`.
One thread writes; a file that cannot be written ends the recording, never a request.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Literal

from headstart.errors import InvalidFile
from headstart.options import check_fields, option, strict
from headstart.serve.watching import Ended, Names, Watcher
from headstart.traffic import Exchange, TrafficWriter

_PANEL = "Recording"
_MEGABYTE = 2**20
log = logging.getLogger(__name__)


@strict
@dataclass(frozen=True, slots=True)
class TrafficOptions:
    """What a server keeps of its texts. By default nothing."""

    traffic: Path | None = option(
        None, "Write prompts and answers, in tokens, to this file (mode 600), for `headstart adapt`. Requests with "
        '"store": false are left out. Tell your users.', panel=_PANEL,
    )  # fmt: skip
    traffic_limit: float = option(
        64.0, "Megabytes of that file; beyond them the older half is forgotten.", metavar="MB", panel=_PANEL, above=0
    )
    traffic_of: Literal["all", "consenting"] = option(
        "all", 'Whose requests are written: of all who do not refuse, or only of those that say "store": true '
        "('consenting').", panel=_PANEL,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_fields(self)

    def open(self, target: str) -> TrafficLog | None:
        """The log, or None if none is kept. target: the fingerprint of the model.

        Raises:
            InvalidFile: the file holds something else, or another process writes it: better said before it serves.
        """
        if self.traffic is None:
            return None
        limit = int(self.traffic_limit * _MEGABYTE)
        return TrafficLog(self.traffic, target, limit=limit, consenting=self.traffic_of == "consenting")


class TrafficLog(Watcher):
    """A watcher that writes exchanges to a file. It is open from the beginning, until `close`.

    Args:
        path, target, limit: see `headstart.traffic.TrafficWriter`, whose errors it raises.
        consenting: whether a request must say that it may be stored.
        write_seconds: how long exchanges are gathered before they are written.
        most_waiting: exchanges that may wait to be written; more are lost, and counted.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        path: Path,
        target: str,
        *,
        limit: int,
        consenting: bool = False,
        write_seconds: float = 5.0,
        most_waiting: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stopped: str | None = None
        """Why nothing is recorded any more."""
        self.lost = 0
        """Exchanges that found no room: too many waited, or they were longer than half of the file."""
        self._consenting, self._write_seconds, self._clock = consenting, write_seconds, clock
        self._tags = Names()
        self._name = path.name
        self._queue: Queue[Exchange | None] = Queue(most_waiting)
        self._closing = threading.Event()
        try:
            writer = TrafficWriter(path, target, limit=limit)
        except OSError as error:
            self._stop(error)
            return
        self._thread = threading.Thread(target=self._run, args=(writer,), name="headstart-traffic", daemon=True)
        self._thread.start()

    def ended(self, ended: Ended) -> None:
        job, output = ended.job, ended.output
        if output is None or output.error is not None or not output.tokens or self.stopped is not None:
            return
        if job.store is False or (self._consenting and not job.store):
            return
        hour = int(self._clock() // 3600)
        tag = self._tags.of(job.tag)
        exchange = Exchange(job.prompt, output.tokens, job.sampling.temperature, hour, tag, job.user)
        try:
            self._queue.put_nowait(exchange)  # with the user's own name, which leaves memory only as a hash
        except Full:
            self.lost += 1

    def close(self) -> None:
        """Write what waits."""
        if self.stopped is not None:
            return
        self._closing.set()
        with suppress(Full):  # the writer wakes for an exchange then, and sees that it is closing
            self._queue.put_nowait(None)
        self._thread.join()

    # -- the writer's thread --------------------------------------------------------------------------------------

    def _run(self, writer: TrafficWriter) -> None:
        try:
            with closing(writer):
                while (first := self._queue.get()) is not None:
                    self._closing.wait(self._write_seconds)
                    waiting = [first, *self._waiting()]
                    self.lost += writer.append(replace(each, user=writer.pseudonym(each.user)) for each in waiting)
                    if self._closing.is_set() and self._queue.empty():
                        break
        except (OSError, InvalidFile) as error:
            self._stop(error)

    def _waiting(self) -> list[Exchange]:
        found: list[Exchange] = []
        while True:
            try:
                exchange = self._queue.get_nowait()
            except Empty:
                return found
            if exchange is not None:
                found.append(exchange)

    def _stop(self, error: Exception) -> None:
        self.stopped = f"{type(error).__name__}: {error}"
        log.warning("traffic is not recorded any more in %s: %s", self._name, error)
