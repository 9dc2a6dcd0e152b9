"""`Recorder`: a subscriber whose records are queued and written by a thread of its own, so that no request waits."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ClassVar, Generic, TypeVar

from headstart.serve.events import Event

Record = TypeVar("Record")
Write = Callable[[list[Record]], None]
log = logging.getLogger(__name__)


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
