"""Named actions timed in turn, so that a machine that slows down meanwhile slows all of them alike.

On a processor that other work shares, what the thread waits for its turn does not count: an action that takes longer
than a turn is interrupted in every run, a short one in few, and no quantile would make the two comparable.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from headstart.base.errors import CONTAINED

_STEADY = 1.3
"""The second quickest run of an action over the quickest, at most, where the machine is steady."""
_ROUNDS = 40
"""Most runs of each action."""
_LEAST = 2
"""Fewest runs of each action."""

Action = Callable[[], None]
Name = tuple[str, int | str]
"""Its kind, and which of that kind."""


_SCHEDULED = Path("/proc/thread-self/schedstat")
"""Of this thread, on Linux: nanoseconds that it ran, nanoseconds that it waited for a processor, turns that it had."""


def _nothing() -> None:
    return


def _waited() -> float:
    """Seconds that this thread has waited for a processor so far; 0 where the system does not say."""
    try:
        return int(_SCHEDULED.read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


class InterleavedTimer:
    """Named actions, timed in turn."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._actions: dict[Name, tuple[Action, Action, Action]] = {}
        self._optional: set[Name] = set()
        self.times: dict[Name, list[float]] = {}

    def add(
        self,
        name: Name,
        action: Action,
        *,
        before: Action = _nothing,
        after: Action = _nothing,
        optional: bool = False,
    ) -> None:
        """before: run each time before the clock is started. after: run when it has been stopped. optional: an action
        that raises is dropped; the error of another one is the caller's."""
        if optional:
            self._optional.add(name)
        self._actions[name] = before, action, after

    def run(self, seconds: float) -> None:
        """Round after round until the time is spent; each action at least twice. Runs add to those of earlier calls.

        An action that has had its share rests, so that forwards of many rows of a big model do not take it all. A share
        is counted by the action's quickest run: one that other work has interrupted twice is run again.
        """
        known = {name: len(times) for name, times in self.times.items()}
        start = time.perf_counter()
        for _ in range(_ROUNDS):
            for name in list(self._actions):
                times = self.times.setdefault(name, [])
                runs = len(times) - known.get(name, 0)
                spent = time.perf_counter() - start > seconds
                if runs >= _LEAST and (spent or runs * min(times) > seconds / 8):
                    continue
                self._time(name)

    def _time(self, name: Name) -> None:
        before, action, after = self._actions[name]
        try:
            before()
            waited = _waited()
            ran, start = time.thread_time(), time.perf_counter()
            action()
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
            seconds, ran = time.perf_counter() - start, time.thread_time() - ran
            if self._device.type == "cpu":  # another device works on while the thread waits
                # The thread may have waited before the clock ran; it took the time for which it ran in any case
                seconds = min(seconds, max(ran, seconds - (_waited() - waited)))
            after()
        except CONTAINED:
            if name not in self._optional:
                raise
            del self._actions[name], self.times[name]
            return
        self.times[name].append(seconds)

    def steady(self, negligible: float = 0.0) -> bool:
        """Whether every action took the same time twice, or the difference is at most `negligible` seconds."""
        quickest = [sorted(times)[:2] for times in self.times.values()]
        return all(second <= max(_STEADY * first, first + negligible) for first, second in quickest)

    @property
    def seconds(self) -> dict[Name, float]:
        """The quickest run of each action that did not raise: other work only ever adds time, and on a busy machine to
        most of the runs."""
        return {name: min(times) for name, times in self.times.items()}
