"""A worker without a thread, whose idle time is a script: how many forwards a drafter makes ahead is then no matter of
clocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headstart.drafters.ahead import MakeWorker

ALL = 1 << 30
"""More forwards than there are."""


class ScriptedWorker:
    """Runs what it is sent at once, in the caller's thread. After each draft it is idle for as many forwards as the
    script says: that is the time in which the target judges."""

    def __init__(self, idle: Callable[[], bool], script: Iterator[int]) -> None:
        self._idle, self._script = idle, script
        self.closed = False

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        answer = function(*arguments)
        for _ in range(next(self._script)):
            if not self._idle():
                break
        return answer

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        function(*arguments)

    def stop(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True


def scripted(idles: int | Sequence[int] | random.Random) -> MakeWorker:
    """Makes scripted workers. idles: forwards before each next draft: always so many; these, over and over; or 0 to 7,
    at random. All workers made share the script."""
    script: Iterator[int]
    if isinstance(idles, random.Random):
        script = (idles.randrange(8) for _ in itertools.count())
    else:
        script = itertools.cycle([idles] if isinstance(idles, int) else idles)
    return lambda idle, begin, name: ScriptedWorker(idle, script)
