"""A thread that does what it is sent, in order, and work of its own in between."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol


class Works(Protocol):
    """What `AheadDrafter` needs of a worker."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Have it run `function`, wait for it, and return or raise what it does."""
        ...

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have it run `function`, which must not raise, before anything that is sent later."""
        ...

    def stop(self) -> None:
        """Have it end soon, without waiting: for finalizers, which may run in any thread."""
        ...

    def close(self) -> None:
        """End it, once it has done what was sent."""
        ...


class Worker:
    """A thread that runs what it is sent, in order. While there is nothing, it calls `idle` again and again, until that
    returns False; then it sleeps until something is sent.

    idle: must not raise.
    begin: called in the thread, first. What it raises, every `call` does.
    """

    def __init__(self, idle: Callable[[], bool], begin: Callable[[], None], name: str) -> None:
        self._inbox: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._inbox = queue.SimpleQueue()
        self._thread = threading.Thread(target=_run, args=(self._inbox, idle, begin), name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._send(function, arguments).result()

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._send(function, arguments)

    def _send(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
        answer: Future[Any] = Future()
        self._inbox.put((answer, function, arguments))
        return answer

    def stop(self) -> None:
        self._inbox.put(None)

    def close(self) -> None:
        self.stop()
        self._thread.join()


def _run(inbox: queue.SimpleQueue[Any], idle: Callable[[], bool], begin: Callable[[], None]) -> None:
    failed: BaseException | None = None
    try:
        begin()
    except BaseException as error:  # every caller gets the error, or it would wait for ever
        failed = error
    busy = failed is None
    while True:
        try:
            message = inbox.get(block=not busy)
        except queue.Empty:
            busy = idle()
            continue
        if message is None:
            return
        answer, function, arguments = message
        try:
            if failed is not None:
                raise failed
            answer.set_result(function(*arguments))
        except BaseException as error:  # whatever it is, the caller gets it
            answer.set_exception(error)
        busy = failed is None
        del message, answer, function, arguments  # a request that has ended is not kept alive by a sleeping thread
