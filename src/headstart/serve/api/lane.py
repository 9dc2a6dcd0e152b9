"""`Lane`: a thread on which requests are read, one after the other, within a time and a length of the queue.

What reads a request may take long: a body of many megabytes, or the chat template of a model, which is a program that
need not end. Neither may hold up the event loop, and no request may wait behind it for ever.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from headstart.base.errors import Overloaded
from headstart.serve.api.errors import Refused

T = TypeVar("T")


class Lane:
    """One thread.

    Args:
        name: of the thread.
        most: pieces of work that may be in hand; more are refused for the time being.
    """

    def __init__(self, name: str, most: int) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"headstart-{name}")
        self._most = most
        self._in_hand = 0
        self._counting = threading.Lock()

    async def do(self, work: Callable[[], T], seconds: float) -> T:
        """Its result.

        seconds: that it may take, waiting included; it is broken off then.

        Raises:
            Overloaded: too much is in hand, or the time went by in waiting.
            Refused: the work did not end in time.
        """
        with self._counting:
            if self._in_hand >= self._most:
                raise _busy(self._in_hand)
            self._in_hand += 1
        breakable = _Breakable(work)
        submitted = self._threads.submit(breakable.run)
        submitted.add_done_callback(self._done)
        ending = asyncio.wrap_future(submitted)
        await asyncio.wait({ending}, timeout=seconds)
        if ending.done():
            return ending.result()
        ending.add_done_callback(_forget)
        if submitted.cancel():
            raise _busy(self._in_hand)
        breakable.break_off()
        words = f"the request could not be read within {seconds:g} seconds"
        hint = "send less at once; of a short conversation, the model's chat template takes so long"
        raise Refused(words, hint=hint, code="reading_timeout")

    def close(self) -> None:
        """Take no more work. What runs is left to end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, _: Future[T]) -> None:
        with self._counting:
            self._in_hand -= 1


class BrokenOff(BaseException):
    """Raised in work that took too long. Not an `Exception`: what catches those must not go on."""


class _Breakable(Generic[T]):
    """Work that another thread can break off, as soon as Python is at its next statement."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._thread: int | None = None

    def run(self) -> T:
        with self._lock:
            self._thread = threading.get_ident()
        try:
            return self._work()
        finally:
            with self._lock:
                self._thread = None
            for _ in range(2):  # Python looks here for what was raised meanwhile: it must not come out in the next work
                pass

    def break_off(self) -> None:
        with self._lock:  # it is still at this work, not at the next
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(BrokenOff))


def _busy(waiting: int) -> Overloaded:
    return Overloaded(f"{waiting} requests wait to be read", hint="come back in 1 second", retry_after=1.0)


def _forget(ending: asyncio.Future[T]) -> None:
    """Retrieve the exception of work that was broken off, so that asyncio does not report it as never retrieved."""
    if not ending.cancelled():
        ending.exception()
