"""What all paths share: the bridge once it is there, and what is known of its model.

A `Lane` is a thread on which requests are read, one after the other, within a time and a length of the queue. What
reads a request may take long: a body of many megabytes, or the chat template of a model, which is a program that need
not end. Neither may hold up the event loop, and no request may wait behind it for ever.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from starlette.requests import Request

from headstart.base.errors import Overloaded
from headstart.base.words import counted
from headstart.model.tokens.spelling import Spelling
from headstart.serve.api.errors import LOADING, LOADING_FAILED, Failure, Refused, failure_of
from headstart.serve.api.reading.work import Model
from headstart.serve.api.schemas.common import Common
from headstart.serve.api.schemas.messages import CountRequest
from headstart.serve.api.schemas.parts import Defaults
from headstart.serve.api.schemas.requests import DetokenizeRequest, SlotRequest, TokenizeRequest
from headstart.serve.api.schemas.responses import ResponsesRequest
from headstart.serve.api.schemas.strict import read
from headstart.serve.bridge import Bridge, Job, SlotNames
from headstart.serve.conversation.detect import ChatForm, chat_form
from headstart.serve.metrics import Metrics
from headstart.serve.names import public_name, sources_of
from headstart.serve.options import ServerOptions
from headstart.serve.responses_store import ResponseStore

T = TypeVar("T")
R = TypeVar("R", bound=Common | CountRequest | ResponsesRequest | TokenizeRequest | DetokenizeRequest | SlotRequest)
_LONG = 20_000
"""Bytes of a request from which on it is read in a lane of its own, so that others do not wait for it."""
_MOST_READ, _MOST_READ_LONG = 512, 16
"""Requests that may wait to be read, and long ones: each of them holds its body."""
_NICE = 10
"""Of the thread that compiles grammars: a tenth of a core, where the engine wants all of it."""
_READ_SECONDS = 20.0
"""The most that the reading of a request may take, waiting included."""
_COMPILE_SECONDS = 60.0
"""The same of its grammars, whose thread gives way to others."""
log = logging.getLogger("headstart.serve")


@dataclass(frozen=True, slots=True)
class Served:
    """A model that answers."""

    bridge: Bridge
    defaults: Defaults = Defaults()
    """Of its generation config."""
    metrics: Metrics | None = None
    """What /metrics shows, and /slots beside its slots; None where nothing is counted."""
    recorded: bool = False
    """Whether the traffic is written down."""
    request_seconds: float | None = None
    """After so many a request ends, whatever it has by then; None waits for ever."""
    responses: ResponseStore | None = None
    """Where responses are kept; None keeps them in memory."""
    saved: SlotNames | None = None
    """The slots that clients save, where they can."""


Source = Served | Callable[[], Served]
"""What is to be served, or how to load it; loading runs on a thread while the server answers that it does."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What is served, and what is known of its model."""

    bridge: Bridge
    metrics: Metrics | None
    request_seconds: float | None
    model: Model
    spelling: Spelling
    names: tuple[str, ...]
    """The model's names, the one in answers first."""
    responses: ResponseStore
    saved: SlotNames | None


class Service:
    """The state of the server. All but the work of `read` is done on the event loop alone."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.started = int(time.time())
        self._began = time.monotonic()
        self.failure: BaseException | None = None
        self._ready: Ready | None = None
        self._short, self._long = Lane("reading", _MOST_READ), Lane("reading-long", _MOST_READ_LONG)
        self._grammars = Lane("grammars", _MOST_READ, yields=True)

    # -- beginning and end ----------------------------------------------------------------------------------------

    async def begin(self, source: Source) -> None:
        """Load, and start the bridge. A failure is kept, and every path tells of it."""
        try:
            served = await _on_a_thread(source) if callable(source) else source
            await served.bridge.start()
        except Exception as error:
            self.failure = error
            log.error("the model could not be loaded")
            return
        bridge, about = served.bridge, served.bridge.describe()
        sizes = {"context": int(about["max_length"]), "vocab_size": int(about["vocab_size"])}
        try:  # a template is a program, and need not end
            chat = await self._long.do(lambda: chat_form(bridge.tokenizer, self.options.chat_format), _READ_SECONDS)
        except (Refused, Overloaded):
            chat = ChatForm(why="its chat template takes too long")
        model = Model(
            bridge.tokenizer, bridge.encode, **sizes, defaults=served.defaults,
            sources=sources_of(str(about["drafter"])), recorded=served.recorded, chat=chat,
            constrain_tools=self.options.constrain_tools,
        )  # fmt: skip
        names = tuple(self.options.served_model_name) or (public_name(str(about["target"])),)
        self._ready = Ready(
            bridge, served.metrics, served.request_seconds, model, Spelling(bridge.tokenizer), names,
            served.responses or ResponseStore(), served.saved,
        )  # fmt: skip

    async def end(self, grace_seconds: float) -> None:
        """Take no more requests, and let the running ones end."""
        if self._ready is not None:
            await self._ready.bridge.stop(grace_seconds)
            await asyncio.to_thread(self._ready.responses.close)
        for lane in (self._short, self._long, self._grammars):
            lane.close()

    # -- what is served -------------------------------------------------------------------------------------------

    @property
    def uptime(self) -> float:
        """Seconds since the server was started."""
        return round(time.monotonic() - self._began, 1)

    @property
    def trouble(self) -> Failure | None:
        """Why nothing can be answered yet, or any more."""
        if self.failure is not None:
            return LOADING_FAILED
        if self._ready is None:
            return LOADING
        broken = self._ready.bridge.failure
        return None if broken is None else failure_of(broken)

    @property
    def ready(self) -> Ready:
        """What is served.

        Raises:
            Refused: the model is being loaded, or could not be.
        """
        if self._ready is None:
            raise Refused.with_(self.trouble or LOADING)
        return self._ready

    def check_model(self, asked: str | None) -> None:
        """Raises:
        Refused: a request names a model that is not served.
        """
        if asked is not None and asked not in (names := self.ready.names):
            raise Refused(
                f"the model {json.dumps(asked[:100])} is not served here", hint=f"this server has {', '.join(names)}",
                status=404, code="model_not_found", param="model",
            )  # fmt: skip

    def head(self, prefix: str) -> Mapping[str, Any]:
        """What every object of a new answer says of it."""
        return {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": self.ready.names[0]}

    def deadline(self) -> float | None:
        """When a request that comes now ends, as `Job.deadline`."""
        seconds = self.ready.request_seconds
        return None if seconds is None else time.monotonic() + seconds

    async def read(self, request: Request, schema: type[R], work: Callable[[R, Sequence[str], Model], T]) -> T:
        """Read a request, off the event loop; large requests wait for large ones only.

        work: what only computes, from the request, the names of its fields that do nothing here, and the model.

        Raises:
            Overloaded: too many wait to be read.
            Refused: nothing is served yet, the body is no such request, or reading took too long.
        """
        ready = self.ready
        body = await request.body()

        def translate() -> T:
            asked, ignored = read(schema, body)
            if not asked.any_model:
                self.check_model(asked.model)
            return work(asked, ignored, ready.model)

        seconds = min(_READ_SECONDS, ready.request_seconds or _READ_SECONDS)
        return await (self._short if len(body) < _LONG else self._long).do(translate, seconds)

    async def prepare(self, jobs: Sequence[Job]) -> None:
        """Compile the grammars of jobs. A large one takes seconds, and neither the event loop nor the engine waits.

        Raises:
            InvalidGrammar: one cannot be followed, or is too costly.
            Overloaded, Refused: it was not done in time.
        """
        structures = dict.fromkeys(job.sampling.structure for job in jobs)
        bridge, found = self.ready.bridge, [each for each in structures if each is not None]
        if not found:
            return

        def compile_all() -> None:
            for each in found:
                bridge.prepare(each)

        await self._grammars.do(compile_all, _COMPILE_SECONDS)


async def _on_a_thread(source: Callable[[], T]) -> T:
    """The result of the source. If the caller is cancelled, the thread runs on: loading cannot be broken off."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if found.cancelled():
            return
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = source()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: the server has been stopped meanwhile
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=work, name="headstart-loading", daemon=True).start()
    return await found


def state_of(scope: Any) -> dict[str, Any]:
    """What `Gate` found out about a request."""
    found: dict[str, Any] = scope.get("state", {})
    return found


# -- reading, off the event loop -------------------------------------------------------------------------------------


class Lane:
    """One thread.

    Args:
        name: of the thread.
        most: pieces of work that may be in hand; more are refused for the time being.
        yields: whether it leaves the processor to the engine where both want it. A step of the engine runs on all
            cores, and waits for the last of them dozens of times: a thread that takes one in turns stops all.
    """

    def __init__(self, name: str, most: int, *, yields: bool = False) -> None:
        begin = _yield_to_others if yields else None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"headstart-{name}", initializer=begin)
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
        words = f"the request could not be read within {counted(seconds, 'second', 'g')}"
        hint = "send less at once; of a short conversation, the model's chat template takes so long"
        raise Refused(words, hint=hint, code="reading_timeout")

    def close(self) -> None:
        """Take no more work. What runs is left to end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, _: Future[T]) -> None:
        with self._counting:
            self._in_hand -= 1


def _yield_to_others() -> None:
    """Give this thread a low priority, where threads have one of their own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(_NICE, os.getpriority(os.PRIO_PROCESS, thread)))


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
