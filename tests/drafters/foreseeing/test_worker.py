"""The worker's thread: what it is sent is done in order, what goes wrong is told, and nobody waits for ever."""

from __future__ import annotations

import threading

import pytest

from headstart.drafters.foreseeing.worker import Worker


def nothing() -> None:
    return


def bored() -> bool:
    return False


def test_messages_are_done_in_order_and_in_its_own_thread() -> None:
    worker = Worker(bored, nothing, "a worker")
    done: list[int] = []
    for number in range(50):
        worker.post(done.append, number)
    assert worker.call(lambda: threading.current_thread().name) == "a worker"
    assert done == list(range(50))
    worker.close()


def test_what_a_call_raises_is_raised() -> None:
    worker = Worker(bored, nothing, "a worker")
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda: 1 // 0)
    assert worker.call(lambda: 3) == 3
    worker.close()


def test_idle_is_called_until_there_is_nothing_to_do_and_again_after_a_message() -> None:
    turns: list[int] = []
    slept = threading.Event()

    def idle() -> bool:
        turns.append(1)
        if len(turns) % 5 == 0:
            slept.set()
            return False
        return True

    worker = Worker(idle, nothing, "a worker")
    assert slept.wait(60)
    assert len(turns) == 5
    slept.clear()
    worker.post(nothing)
    assert slept.wait(60)
    assert len(turns) == 10
    worker.close()


def test_where_it_cannot_begin_every_call_says_so() -> None:
    def begin() -> None:
        raise OSError("no such core")

    worker = Worker(bored, begin, "a worker")
    for _ in range(2):
        with pytest.raises(OSError, match="no such core"):
            worker.call(lambda: 1)
    worker.close()


def test_closing_waits_for_what_was_sent() -> None:
    worker = Worker(bored, nothing, "closing")
    done: list[int] = []
    for number in range(20):
        worker.post(done.append, number)
    worker.close()
    assert len(done) == 20
    assert "closing" not in {thread.name for thread in threading.enumerate()}
