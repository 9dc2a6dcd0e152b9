"""What statistics of a server are made from: engine steps as they are, and one record for each ended request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headstart.serve.bridge import Job
from headstart.theory.rounds import PositionCounts
from headstart.types import Output, Step

Ending = Literal["finished", "client", "deadline", "slow reader", "shutdown", "failure"]
"""Who ended a request: itself, its client, its deadline, a client that stopped reading, the server that was stopped,
or an engine that failed."""

OTHER = "other"
MOST_NAMES = 20
LONGEST_NAME = 64
"""Characters that are kept of a name."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that has ended."""

    request: int
    """The engine's number of it."""
    job: Job
    output: Output | None
    """None where the engine failed."""
    ending: Ending
    queue_seconds: float
    """From its arrival until it had a slot, or until it ended without one."""
    first_token_seconds: float | None
    """From its arrival to its first token; None where there was none."""
    total_seconds: float
    """From its arrival to its end."""
    by_source: Mapping[str, PositionCounts]
    """What became of the drafts of each source, by position."""


class Watcher:
    """Keeps statistics. What it raises is contained, and what it takes is taken from the texts: it must be quick."""

    def stepped(self, steps: Sequence[Step], now: float) -> None:
        """On the engine's thread: the events of one engine step, and `time.monotonic()` seconds."""

    def ended(self, ended: Ended) -> None:
        """On the engine's thread: a request has ended."""

    def refused(self) -> None:
        """On the event loop: a request was refused because too many wait."""


class Watchers:
    """Several watchers, none of which can hurt a text: one that raises is logged once and not called again."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = list(watchers)

    def stepped(self, steps: Sequence[Step], now: float) -> None:
        for watcher in tuple(self._watchers):
            self._guarded(watcher, watcher.stepped, steps, now)

    def ended(self, ended: Ended) -> None:
        for watcher in tuple(self._watchers):
            self._guarded(watcher, watcher.ended, ended)

    def refused(self) -> None:
        for watcher in tuple(self._watchers):
            self._guarded(watcher, watcher.refused)

    def _guarded(self, watcher: Watcher, action: Callable[..., None], *args: Any) -> None:
        try:
            action(*args)
        except Exception:  # whatever it is, the text goes on
            log.exception("%s raised; it is not called any more", type(watcher).__name__)
            if watcher in self._watchers:
                self._watchers.remove(watcher)


class Names:
    """Names that clients choose, kept few: the first twenty are kept as they are, every later one is "other"."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        name = name[:LONGEST_NAME]
        if name in self._known or name == OTHER:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name
