"""One server over time: its counters from look to look, restarts survived, and a window that slides along."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.fleet.watch.counters import Counters, record_of, restored, total

_REMEMBERED = 8
"""Starts of the process that are remembered, to notice an address that leads to several."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What each engine counted between two looks."""

    began: float
    ended: float
    engines: Mapping[str, Counters]

    @property
    def counters(self) -> Counters:
        found = total(self.engines.values())
        assert found is not None  # a page without engines is an error already when it is read
        return found


@dataclass(slots=True)
class Server:
    """What is known of a server. Times are seconds since 1970."""

    url: str
    last: dict[str, Counters] = field(default_factory=dict)
    """By engine, what it had counted at the last look."""
    seen: float | None = None
    """When that was."""
    restarts: int = 0
    several: bool = False
    """Whether the address leads to several processes in turn, so that differences mean nothing."""
    pieces: deque[Piece] = field(default_factory=deque)
    """The last ones, as far back as the window reaches."""
    _starts: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def observe(self, found: Sequence[Counters], now: float, window: float) -> Piece | None:
        """What was counted since the last look; None at the first one.

        Args:
            found: all engines of the server, since its start.
            now: the time of this look.
            window: for how many seconds pieces are kept in `pieces`.
        """
        engines = {f"{counters.model} {counters.engine}".strip(): counters for counters in found}
        before, began = self.last, self.seen
        self._notice_several(found)
        self.last, self.seen = engines, now
        if began is None or self.several:
            return None
        changes = {  # an engine that was not there before was started meanwhile
            name: replace(now, restarts=1) if name not in before else now - before[name]
            for name, now in engines.items()
        }
        self.restarts += max(change.restarts for change in changes.values())
        piece = Piece(began, now, changes)
        self.pieces.append(piece)
        while len(self.pieces) > 1 and now - self.pieces[0].began > window:
            self.pieces.popleft()
        return piece

    def shown(self) -> tuple[Mapping[str, Counters], float | None]:
        """By engine what to show, and over how many seconds; None: since the start, when there was only one look."""
        if not self.pieces:
            return self.last, None
        engines: dict[str, Counters] = {}
        for piece in self.pieces:
            for name, counters in piece.engines.items():
                engines[name] = engines[name] + counters if name in engines else counters
        latest = self.pieces[-1]
        shown = {  # values of the moment are not added up over time
            name: replace(engines[name], running=now.running, waiting=now.waiting, kv_usage=now.kv_usage)
            for name, now in latest.engines.items()
        }
        return shown, latest.ended - self.pieces[0].began

    def _notice_several(self, found: Sequence[Counters]) -> None:
        """A process cannot be started again at an earlier time: then there are several behind the address."""
        started = found[0].started
        if started is None:
            return
        if self._starts and started != self._starts[-1]:
            self.several = self.several or started < self._starts[-1]
        if not self._starts or started != self._starts[-1]:
            self._starts.append(started)

    def record(self) -> dict[str, Any]:
        """What must be kept to go on later, as JSON takes it."""
        return {
            "last": {name: record_of(counters) for name, counters in self.last.items()},
            "seen": self.seen,
            "restarts": self.restarts,
        }

    @classmethod
    def of(cls, url: str, record: Mapping[str, Any] | None) -> Server:
        """A server as `record` has kept it; a new one of None."""
        if record is None:
            return cls(url)
        last = {name: restored(Counters, each) for name, each in record["last"].items()}
        server = cls(url, last, record["seen"], record["restarts"])
        server._starts.extend(counters.started for counters in last.values() if counters.started is not None)
        return server
