"""The timer of actions that take turns, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from support.clocks import set_clock

from headstart.pacing import measuring
from headstart.pacing.measuring import InterleavedTimer


class Clock:
    """Stands still until an action moves it."""

    def __init__(self) -> None:
        self.now = self.waited = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    set_clock(monkeypatch, made, measuring)
    monkeypatch.setattr("headstart.pacing.measuring._waited", lambda: made.waited)
    return made


class Action:
    """Takes these seconds, one after the other, and the last of them for ever after. waits: for a processor, in each
    run."""

    def __init__(self, clock: Clock, *seconds: float, waits: float = 0.0) -> None:
        self._clock, self._last, self._waits = clock, seconds[-1], waits
        self._seconds: Iterator[float] = iter(seconds)

    def __call__(self) -> None:
        self._clock.now += next(self._seconds, self._last) + self._waits
        self._clock.waited += self._waits


def timer(**actions: Action) -> InterleavedTimer:
    made = InterleavedTimer(torch.device("cpu"))
    for name, action in actions.items():
        made.add((name, 1), action)
    return made


def test_an_action_that_was_interrupted_twice_is_run_again(clock: Clock) -> None:
    """Both took more than half of its share; the third run says what the action takes."""
    made = timer(quick=Action(clock, 0.001), interrupted=Action(clock, 0.09, 0.06, 0.002))
    made.run(1.0)
    assert made.seconds["interrupted", 1] == pytest.approx(0.002)
    assert made.steady()


def test_a_slow_action_leaves_time_to_the_others(clock: Clock) -> None:
    others = [f"quick {index}" for index in range(7)]
    made = timer(slow=Action(clock, 0.05), **{name: Action(clock, 0.001) for name in others})
    made.run(1.0)
    assert len(made.times["slow", 1]) == 3, "of an eighth of the time"
    assert all(len(made.times[name, 1]) > 30 for name in others)


def test_one_action_that_takes_other_times_is_not_steady(clock: Clock) -> None:
    made = timer(steady=Action(clock, 0.3), draft=Action(clock, 0.9, 0.5, 0.5))
    made.run(1.0)
    assert not made.steady()
    assert made.steady(negligible=0.41)
    made.run(1.0)
    assert made.steady(), "as it is measured for as long again"


def test_waiting_for_a_processor_does_not_count(clock: Clock) -> None:
    """Only the longer action is interrupted, and it is in every run."""
    made = timer(short=Action(clock, 0.01), long=Action(clock, 0.05, waits=0.2))
    made.run(1.0)
    assert made.seconds["long", 1] == pytest.approx(5 * made.seconds["short", 1])


def test_waiting_before_the_clock_ran_does_not_count_against_an_action(clock: Clock) -> None:
    class Early(Action):
        def __call__(self) -> None:
            super().__call__()
            self._clock.waited += 1.0  # which was no part of its time

    made = timer(early=Early(clock, 0.01))
    made.run(0.1)
    assert 0 <= made.seconds["early", 1] <= 0.01
