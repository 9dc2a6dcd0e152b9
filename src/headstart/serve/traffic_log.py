"""Recording prompts and outputs, in tokens, so that a drafter can be adapted to it: `headstart adapt`.

Nothing is written unless the operator asks for it (`--traffic FILE`), and never of a request with `store: false`.
A file that cannot be written ends the recording, never a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from headstart.base.errors import InvalidFile
from headstart.base.traffic import Exchange, TrafficWriter
from headstart.serve.events import Ended, Event, Recorder, Write
from headstart.serve.names import Names
from headstart.serve.options import Recording

_MEGABYTE = 2**20


class TrafficLog(Recorder[Exchange]):
    """Records exchanges, from its beginning until `close`.

    Args:
        path, target, limit: see `headstart.base.traffic.TrafficWriter`. Its `InvalidFile` is raised, its `OSError` ends
            the recording.
        consenting: whether a request must say that it may be stored.
        write_seconds, most_waiting: see `Recorder`. Exchanges longer than half of the file are lost, too.
        clock: seconds since 1970.
    """

    WHAT = "traffic"
    FAILURES = (OSError, InvalidFile)

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
        super().__init__(path.name, write_seconds=write_seconds, most_waiting=most_waiting)
        self._consenting, self._clock = consenting, clock
        self._tags = Names()
        try:
            self._writer = TrafficWriter(path, target, limit=limit)
        except OSError as error:
            self._stop(error)
        else:
            self._start()

    @classmethod
    def of(cls, options: Recording, target: str) -> TrafficLog | None:
        """The log that a server is to keep, or None. target: the fingerprint of the model.

        Raises:
            InvalidFile: the file holds something else, or another process writes it: better said before it serves.
        """
        if options.traffic is None:
            return None
        limit = int(options.traffic_limit * _MEGABYTE)
        return cls(options.traffic, target, limit=limit, consenting=options.traffic_of == "consenting")

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Ended):
            return
        job, output = event.job, event.output
        if output is None or output.error is not None or not output.tokens or self.stopped is not None:
            return
        if job.store is False or (self._consenting and not job.store):
            return
        hour = int(self._clock() // 3600)
        tag = self._tags.of(job.tag)  # and with the user's own name, which leaves memory only as a pseudonym
        self._record(Exchange(job.prompt, output.tokens, job.sampling.temperature, hour, tag, job.user))

    @contextmanager
    def _open(self) -> Iterator[Write[Exchange]]:
        with closing(self._writer):
            yield self._write

    def _write(self, exchanges: list[Exchange]) -> None:
        writer = self._writer
        self.lost += writer.append(replace(each, user=writer.pseudonym(each.user)) for each in exchanges)
