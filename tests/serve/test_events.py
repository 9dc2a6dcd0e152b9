"""The stream of events: everybody is called in order, and one who fails is left out, once, whichever thread calls."""

from __future__ import annotations

import threading

import pytest

from headstart.serve.events import Event, Events, Refused, Stepped


def test_subscribers_are_called_in_order_with_every_event() -> None:
    heard: list[tuple[str, Event]] = []
    events = Events([lambda event: heard.append(("one", event)), lambda event: heard.append(("two", event))])
    for event in (Refused(), Stepped((), 1.0)):
        events.publish(event)
    assert heard == [(who, event) for event in (Refused(), Stepped((), 1.0)) for who in ("one", "two")]


def test_one_that_fails_is_named_once_and_left_out_on_all_threads(caplog: pytest.LogCaptureFixture) -> None:
    together = threading.Barrier(4, timeout=60)
    heard: list[Event] = []

    class Failing:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, event: Event) -> None:
            self.calls += 1
            together.wait()  # all threads are in it before it fails
            raise ZeroDivisionError

    failing = [Failing(), Failing()]
    events = Events([failing[0], heard.append, failing[1]])
    threads = [threading.Thread(target=lambda: [events.publish(Refused()) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.calls for each in failing] == [4, 4]
    assert caplog.text.count("Failing raised; it is not called any more") == 2
    assert len(heard) == 20
