"""What happens to the requests of a server, as one stream of events: every number that is kept is made from these.

The bridge publishes them. Metrics, the ledger and the file of traffic subscribe; the figures of an answer are made from
the same `Step`s, which its chunks carry.

A `Recorder` is a subscriber whose records are queued and written by a thread of its own, so that no request waits.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Lock
from typing import ClassVar, Generic, Literal, TypeVar

from headstart.serve.bridge import Job
from headstart.types import Output, Step

Ending = Literal["finished", "client", "deadline", "slow reader", "shutdown", "failure"]
"""Who ended a request: itself, its client, its deadline, a client that stopped reading, the server that was stopped,
or an engine that failed."""

FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
)  # fmt: skip
"""The bounds between which times to a first token are counted, in seconds."""
TOKEN_SECONDS = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
)  # fmt: skip
"""The bounds between which times for one token are counted, in seconds."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refused:
    """On the event loop: a request was refused because too many wait."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """On the engine's thread: a step of the engine.

    steps: what it did, request by request.
    now: when it ended, in `time.monotonic()` seconds.
    """

    steps: Sequence[Step]
    now: float


@dataclass(frozen=True, slots=True)
class Ended:
    """On the engine's thread: a request has ended."""

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

    @property
    def seconds_per_token(self) -> float | None:
        """The mean for each token after the first; None where there was no second one."""
        if self.output is None or self.first_token_seconds is None or self.output.stats.tokens < 2:
            return None
        return (self.total_seconds - self.first_token_seconds) / (self.output.stats.tokens - 1)


Event = Refused | Stepped | Ended
Subscriber = Callable[[Event], None]
"""Takes the events that concern it, and must be quick: its time is taken from the texts."""


class Events:
    """The stream. No subscriber can hurt a text: one that raises is logged once and not called again."""

    def __init__(self, subscribers: Iterable[Subscriber] = ()) -> None:
        self._subscribers = tuple(subscribers)
        self._removing = Lock()

    def publish(self, event: Event) -> None:
        """Call the subscribers, one after the other, on the thread of the caller."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:  # whatever it is, the text goes on
                self._remove(subscriber)

    def _remove(self, failed: Subscriber) -> None:
        with self._removing:
            if failed in self._subscribers:  # the other thread may have removed it meanwhile
                log.exception("%s raised; it is not called any more", type(failed).__name__)
            self._subscribers = tuple(each for each in self._subscribers if each is not failed)


Record = TypeVar("Record")
Write = Callable[[list[Record]], None]


class Recorder(ABC, Generic[Record]):
    """Records are gathered for a while and written together. A file that cannot be written ends the recording.

    A subclass calls `_start` when its constructor is done, gives each record to `_record`, and says in `_open` how they
    are written. It records until `close`.

    Args:
        name: of the file, for the log.
        write_seconds: how long records are gathered before they are written.
        most_waiting: records that may wait to be written; more are lost, and counted.
    """

    WHAT: ClassVar[str]
    """What is recorded, as the log names it."""
    FAILURES: ClassVar[tuple[type[Exception], ...]]
    """What `_open` and its function raise where the file cannot be written."""

    def __init__(self, name: str, *, write_seconds: float, most_waiting: int) -> None:
        self.stopped: str | None = None
        """Why nothing is recorded any more."""
        self.lost = 0
        """Records that found no room."""
        self._name, self._write_seconds, self._most_waiting = name, write_seconds, most_waiting
        self._waiting: deque[Record] = deque()
        self._new, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def __call__(self, event: Event) -> None:
        """On the engine's thread: record what is to be kept of an event."""

    @abstractmethod
    def _open(self) -> AbstractContextManager[Write[Record]]:
        """On the writer's thread: the file, open as long as the context lasts, as the function that writes records."""

    def close(self) -> None:
        """Write what waits."""
        if self._thread is not None:
            self._closing.set()
            self._new.set()
            self._thread.join()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"headstart-{self.WHAT}", daemon=True)
        self._thread.start()

    def _record(self, record: Record) -> None:
        if len(self._waiting) < self._most_waiting:
            self._waiting.append(record)
            self._new.set()
        else:
            self.lost += 1

    def _stop(self, error: Exception) -> None:
        self.stopped = f"{type(error).__name__}: {error}"
        log.warning("%s is not recorded any more in %s: %s", self.WHAT, self._name, error)

    def _run(self) -> None:
        """On the writer's thread, until `close` or a failure."""
        try:
            with self._open() as write:
                while self._waiting or not self._closing.is_set():
                    self._new.wait()
                    self._new.clear()
                    self._closing.wait(self._write_seconds)
                    if found := [self._waiting.popleft() for _ in range(len(self._waiting))]:
                        write(found)
        except self.FAILURES as error:
            self._stop(error)
