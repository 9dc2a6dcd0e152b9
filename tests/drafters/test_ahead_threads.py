"""`Ahead` with its real thread: sleeps and cancels at random, failures, interrupts; and no thread outlives its use."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from support.ahead_twins import VOCAB, runner
from support.scripted_worker import ALL, scripted

import headstart as hs
from headstart.base.errors import DrafterFailed
from headstart.drafters import FanOut, Foresight, Observation, Row
from headstart.drafters.ahead import Ahead, AheadDrafter, MakeWorker
from headstart.drafters.draft_model import DraftModel
from headstart.drafters.foreseeing.worker import Worker
from headstart.loading.assembly import assemble
from headstart.types import Draft

NEW = 14
PROMPTS = ((1, 2, 3), (5, 7, 5, 7, 9, 11, 2), (4,), (8, 8, 9, 8, 8), (6, 7), (3, 2, 1, 3, 2))
GREEDY = hs.Sampling(max_tokens=NEW)


class Sleepy:
    """A runner whose forwards take up to so many seconds longer."""

    def __init__(self, seed: int, noise: float = 0.0, seconds: float = 0.002) -> None:
        self._runner, self._random, self._seconds = runner(noise), random.Random(seed), seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, *args: Any, **options: Any) -> Any:
        time.sleep(self._random.random() * self._seconds)
        return self._runner.forward(*args, **options)


@cache
def plain() -> tuple[tuple[int, ...], ...]:
    return tuple(out.tokens for out in assemble(runner()).generate([list(each) for each in PROMPTS], GREEDY))


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "headstart-ahead"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    assert not workers()
    yield
    gc.collect()
    for thread in workers():
        thread.join(60)
    assert not workers()


def draft_model(kind: type[DraftModel] = DraftModel, seconds: float = 0.002, **options: Any) -> DraftModel:
    near: Any = Sleepy(1, 0.06, seconds)
    return kind(near, name="near", vocab_size=VOCAB, slots=3, budget=4, **options)


def engine_of(inner: DraftModel, worker: MakeWorker = Worker, seconds: float = 0.002, **options: Any) -> hs.Engine:
    target: Any = Sleepy(2, seconds=seconds)
    drafter = AheadDrafter(Ahead(inner, **{"always": True, **options}), worker)
    return assemble(target, drafter=drafter, max_batch_size=3)


# -- stress -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_sleeps_and_cancels_change_no_text(rounds: int) -> None:
    inner = draft_model()
    engine = engine_of(inner)
    rng = random.Random(rounds)
    hits: list[bool] = []
    engine.subscribe(lambda step: hits.extend([step.draft.prepared.hit] if step.draft.prepared else []))
    running: dict[int, Any] = {}
    ended = 0
    for _ in range(rounds):
        while len(running) < 4 and rng.random() < 0.8:
            which = rng.randrange(len(PROMPTS))
            request = engine.submit(list(PROMPTS[which]), GREEDY)
            running[request.number] = (which, request)
        engine.step()
        for number, (which, request) in list(running.items()):
            if rng.random() < 0.02:
                engine.cancel(request)
            if request.finish_reason is not None:
                del running[number]
                out = request.finish()
                assert out.error is None
                assert out.stats.speculation.error is None
                assert out.tokens == plain()[which][: len(out.tokens)]
                ended += out.finish_reason == "length"
        engine.cache.check()
        worker = engine.drafter._worker  # type: ignore[attr-defined]
        if worker is None:
            inner.cache.check()
        else:
            worker.call(inner.cache.check)
    for _, request in running.values():
        engine.cancel(request)
    inner.cache.check()
    assert inner.cache.free_slots == 3
    assert ended > rounds / 20
    assert any(hits)
    assert not all(hits)
    assert not workers()


# -- failures ---------------------------------------------------------------------------------------------------------


class Raising(DraftModel):
    """Raises in one of its methods, from the third call on."""

    fails = ""
    error: BaseException = ZeroDivisionError("a drafter's own")
    calls = 0

    def _count(self, method: str) -> None:
        if method == self.fails:
            self.calls += 1
            if self.calls == 3:
                raise self.error

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        self._count("propose")
        return super().propose(rows)

    def foresee(self, rows: Sequence[Row], drafts: Sequence[Draft], fan_out: FanOut) -> Foresight:
        self._count("foresee")
        return super().foresee(rows, drafts, fan_out)

    def observe(self, observation: Observation) -> None:
        self._count("observe")
        super().observe(observation)

    def release(self, request: int) -> None:
        super().release(request)
        self._count("release")


def raising(method: str) -> Raising:
    inner = draft_model(Raising, seconds=0.0)
    assert isinstance(inner, Raising)
    inner.fails = method
    return inner


@pytest.mark.parametrize("worker", [scripted(2), Worker], ids=["scripted", "thread"])
@pytest.mark.parametrize("method", ["propose", "foresee", "observe"])
def test_a_drafter_that_raises_in_the_thread_is_reported_and_the_text_goes_on(method: str, worker: MakeWorker) -> None:
    """Every draft is a miss, so that all that is proposed is proposed now."""
    inner = raising(method)
    engine = engine_of(inner, worker, seconds=0.01 if method == "foresee" and worker is Worker else 0.0, branches=1)
    outs = engine.generate([list(each) for each in PROMPTS[:3]], GREEDY)
    assert tuple(out.tokens for out in outs) == plain()[:3]
    for out in outs:
        error = out.stats.speculation.error
        assert isinstance(error, DrafterFailed)
        assert "ZeroDivisionError: a drafter's own" in error.message
        assert error.hint
        assert not out.stats.speculation.on
    inner.cache.check()
    assert inner.cache.free_slots == 3
    later = engine.generate(list(PROMPTS[3]), GREEDY)
    assert later.tokens == plain()[3]
    assert later.stats.speculation.error is None, "the failure was not this request's"
    assert later.stats.drafted > 0


def test_a_release_that_fails_is_reported_to_those_that_run() -> None:
    inner = raising("release")
    engine = engine_of(inner, seconds=0.0)
    samplings = [hs.Sampling(max_tokens=each) for each in (NEW, 3, 5)]
    inner.calls = 1  # the first to end is well, the second is not
    outs = engine.generate([list(each) for each in PROMPTS[:3]], samplings)
    assert [out.tokens for out in outs] == [plain()[i][: samplings[i].max_tokens] for i in range(3)]
    assert isinstance(outs[0].stats.speculation.error, DrafterFailed)


class NoOrdinaryError(BaseException):
    pass


def test_an_error_of_any_kind_in_foreseeing_leaves_the_engine_and_nobody_waits() -> None:
    """As it would leave it where drafts are made in turn; afterwards all is well."""
    inner = raising("foresee")
    inner.error = NoOrdinaryError()
    engine = engine_of(inner, scripted(ALL), seconds=0.0)
    with pytest.raises(NoOrdinaryError):
        engine.generate([list(each) for each in PROMPTS[:3]], GREEDY)
    assert engine.generate(list(PROMPTS[0]), GREEDY).tokens == plain()[0]


class Nowhere:
    """A worker that cannot begin."""

    def __new__(cls, idle: Any, begin: Any, name: str) -> Any:
        def fail() -> None:
            raise OSError("no such core")

        return Worker(idle, fail, name)


def test_a_thread_that_cannot_begin_is_a_failure_and_no_hang() -> None:
    out = engine_of(draft_model(seconds=0.0), Nowhere, seconds=0.0).generate(list(PROMPTS[0]), GREEDY)
    assert out.tokens == plain()[0]
    assert isinstance(out.stats.speculation.error, DrafterFailed)
    assert "no such core" in out.stats.speculation.reason


# -- interrupts -------------------------------------------------------------------------------------------------------


class Interrupting(DraftModel):
    """Interrupts the engine's thread, which waits for its draft."""

    left = 1

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        drafts = super().propose(rows)
        if len(rows[0].tokens) > 6 and self.left:
            self.left -= 1
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.05)
        return drafts


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where a shell started the tests in the background, which ignores it."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("tests do not run in the main thread here")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads here")
def test_an_interrupt_while_the_engine_waits_leaves_all_usable(interrupts: None) -> None:
    inner = draft_model(Interrupting, seconds=0.0)
    assert isinstance(inner, Interrupting)
    engine = engine_of(inner, seconds=0.0, branches=1)
    with pytest.raises(KeyboardInterrupt):
        engine.generate([list(each) for each in PROMPTS[:3]], GREEDY)
    assert not workers()
    inner.cache.check()
    assert inner.cache.free_slots == 3
    inner.left = 1
    requests = [engine.submit(list(each), GREEDY) for each in PROMPTS[:3]]
    interrupted = 0
    while any(request.finish_reason is None for request in requests):
        try:
            engine.step()
        except KeyboardInterrupt:
            interrupted += 1  # and on with the same requests
    assert interrupted == 1
    assert tuple(request.finish().tokens for request in requests) == plain()[:3]


# -- no thread outlives its use ---------------------------------------------------------------------------------------


def test_the_thread_ends_with_the_last_request() -> None:
    engine = engine_of(draft_model(seconds=0.0), seconds=0.0)
    requests = [engine.submit(list(each), GREEDY) for each in PROMPTS[:2]]
    engine.step()
    engine.step()
    assert len(workers()) == 1
    engine.cancel(requests[0])
    assert len(workers()) == 1
    engine.cancel(requests[1])
    assert not workers()


def test_a_stream_that_is_dropped_ends_it() -> None:
    engine = engine_of(draft_model(seconds=0.0), seconds=0.0)
    stream = engine.stream(list(PROMPTS[0]), GREEDY)
    next(stream)
    next(stream)
    assert workers()
    del stream, engine
    gc.collect()
    for thread in workers():
        thread.join(60)
        assert not thread.is_alive()


def test_an_engine_that_is_dropped_with_its_requests_running_ends_it() -> None:
    engine = engine_of(draft_model(seconds=0.0), seconds=0.0)
    request = engine.submit(list(PROMPTS[0]), GREEDY)
    for _ in range(3):
        engine.step()
    (thread,) = workers()
    del engine, request
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_an_error_that_leaves_generate_ends_it() -> None:
    engine = engine_of(draft_model(seconds=0.0), seconds=0.0)
    forward, calls = engine.target.forward, iter(range(4))

    def failing(*args: Any, **options: Any) -> Any:
        next(calls)
        return forward(*args, **options)

    engine.target.forward = failing  # type: ignore[method-assign]
    with pytest.raises(StopIteration):
        engine.generate(list(PROMPTS[0]), GREEDY)
    assert not workers()
