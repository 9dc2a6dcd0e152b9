"""`Fleet`: engines and a router that start together, run side by side, and end together."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headstart.base.errors import HeadstartError, InvalidOption
from headstart.base.words import counted
from headstart.fleet.launch.engine import Engine, check_free, free_ports, start_engine
from headstart.fleet.launch.router import Router, find_router
from headstart.fleet.launch.served import LaunchOptions, Served, read_export
from headstart.fleet.processes import Child, Children
from headstart.fleet.vllm import Installation, write_plugin

Progress = Callable[[str, float, str | None], None]
"""Called for each server that is waited for: name, seconds so far, last line of its log; None once it is ready."""

Admit = Callable[[Engine], None]
"""Called with an engine that is ready, before it gets requests from the router, to check it; what it raises keeps the
engine out."""

MOST_RESTARTS = 5
"""Restarts of an engine in a row, before it is given up."""
_FIRST_PAUSE = 1.0
"""Seconds before the first restart; each further pause is twice as long."""
_STEADY = 600.0
"""Seconds after which a restarted engine counts as well, and its restarts are forgotten."""
_ROUTER_SECONDS = 60.0


class Fleet:
    """Engines from an export, and a router before them.

    ``with Fleet.start(Path("out"), find(), engines=2, port=8000) as fleet: ... fleet.url``. Leaving the ``with`` ends
    every process. Not safe to use from several threads.

    url: what clients use, without /v1; of a fleet without a router, that of its first engine. engines: by place.
    """

    def __init__(
        self, installation: Installation, options: LaunchOptions, children: Children, progress: Progress, admit: Admit
    ) -> None:
        self.installation = installation
        self.options = options
        self.engines: list[Engine] = []
        self.router: Router | None = None
        self._children = children
        self._progress, self._admit = progress, admit
        self._plugin = write_plugin(children.logs / "repair") if installation.cpu and options.repair else None
        self._ports = free_ports(options.port - (options.router == "none"))
        self._generations = [itertools.count(2) for _ in range(options.engines)]
        self._due: dict[int, float] = {}
        self._starting: set[int] = set()

    @classmethod
    def start(
        cls,
        export: Path,
        installation: Installation,
        *,
        progress: Progress = lambda _name, _seconds, _line: None,
        admit: Admit = lambda _: None,
        **options: Any,
    ) -> Fleet:
        """Start engines and router, and wait until they take requests.

        Args:
            export: the folder that `headstart export` wrote.
            installation: the vLLM that runs it, see `headstart.fleet.vllm.find`.
            progress: called while servers are waited for.
            admit: checks each engine before it gets requests, those of `replace` and those that are started again after
                they died, too.
            options: the fields of `LaunchOptions`.

        Raises:
            ServerFailed: an engine or the router died, or was not ready in time; whatever had started has ended.
            EngineNotFound: the router is not installed.
            InvalidOption, InvalidFile: see `LaunchOptions` and `read_export`; the port is taken.
        """
        given = LaunchOptions(**options)
        served = read_export(export, given)
        program = find_router(installation) if given.router == "vllm-router" else None
        check_free(given.host, given.port)
        children = Children(served.folder / "logs" if given.logs is None else given.logs).__enter__()
        fleet = cls(installation, given, children, progress, admit)
        try:
            fleet._start(served, program)
        except BaseException:
            fleet.stop()
            raise
        return fleet

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return self.engines[0].url if self.router is None else self.router.url

    def stop(self) -> None:
        """End every process. May be called again."""
        self._children.stop()

    def replace(self, place: int, export: Path, *, drain_seconds: float = 300.0) -> Engine:
        """Put an engine from another export, or the same again, in the place of one, without failing a request.

        The new engine is started and waited for first, then joins; the old one gets no more requests, ends those that
        it has, and leaves. Both run for a while, so there must be memory for one engine more.

        Args:
            place: the index in `engines`.
            drain_seconds: how long the old engine may take to end its requests; what is left then fails.

        Raises:
            ServerFailed: the new engine died or was not ready in time; the old one goes on as if nothing had been, and
                also if `admit` raises.
            InvalidOption: no such place, or there is no router that could send requests elsewhere.
        """
        if self.router is None:
            raise InvalidOption("without a router nothing can be replaced while it runs", hint="start with a router")
        if not 0 <= place < len(self.engines):
            raise InvalidOption(f"there is no engine {place}", hint=f"the engines are 0 to {len(self.engines) - 1}")
        served = read_export(export, self.options)
        old = self.engines[place]
        new = self._engine(served, place, f"engine-{place}-{next(self._generations[place])}")
        try:
            self._wait([new])
            self._admit(new)
            self.router.add(new.url)
        except BaseException:
            new.child.stop()
            raise
        self.engines[place] = new
        self._forget(place)
        if old.url in self.router.engines():
            self.router.remove(old.url)
            old.drain(drain_seconds)
        old.child.stop()
        return new

    def tend(self) -> list[str]:
        """Look after the fleet, once: what has happened since the last look, as sentences.

        An engine that died leaves the router, and is started again if `restart` says so. To be called every second or
        so; it waits for nothing but the check of an engine that was started again.

        Raises:
            ServerFailed: the router died, or the last engine did and will not be started again.
        """
        if self.router is not None and not self.router.child.alive:
            raise self.router.child.failure()
        events = [line for engine in self.engines for line in self._look(engine)]
        gone = [engine for engine in self.engines if not engine.child.alive and engine.place not in self._due]
        if len(gone) == len(self.engines):
            raise gone[-1].child.failure()
        return events

    # -- starting -----------------------------------------------------------------------------------------------------

    def _start(self, served: Served, program: Path | None) -> None:
        for place in range(self.options.engines):
            self.engines.append(self._engine(served, place, f"engine-{place}"))
        self._wait(self.engines)
        for engine in self.engines:
            self._children.check()
            self._admit(engine)
        if program is not None:
            options = self.options
            self.router = Router.start(
                self._children, program, [engine.url for engine in self.engines], policy=options.policy,
                host=options.host, port=options.port, metrics_port=next(self._ports),
            )  # fmt: skip
            self._children.wait(
                [(self.router.child, self.router.ready)], seconds=_ROUTER_SECONDS, progress=self._report
            )

    def _engine(self, served: Served, place: int, name: str, port: int | None = None) -> Engine:
        """port: a free one, if none is given."""
        return start_engine(
            self._children, self.installation, served, name=name, place=place, places=self.options.engines,
            port=next(self._ports) if port is None else port, plugin=self._plugin,
        )  # fmt: skip

    def _wait(self, engines: list[Engine]) -> None:
        self._children.wait(
            [(engine.child, engine.ready) for engine in engines], seconds=self.options.timeout, progress=self._report
        )

    def _report(self, child: Child, seconds: float, line: str | None) -> None:
        self._progress(child.name, seconds, line)

    # -- tending ------------------------------------------------------------------------------------------------------

    def _look(self, engine: Engine) -> list[str]:
        place, now = engine.place, time.monotonic()
        starting = place in self._starting
        late = starting and now - engine.born > self.options.timeout
        if late or not (engine.child.alive or engine.child.stopping):
            return self._died(engine, now)
        if place in self._due and now >= self._due[place]:
            return self._again(engine)
        if starting and engine.ready():
            return self._rejoin(engine, now)
        return []

    def _rejoin(self, engine: Engine, now: float) -> list[str]:
        """Check an engine that was started again as any new one is, and let it have requests if it passes."""
        try:
            self._admit(engine)
        except HeadstartError as error:
            return self._died(engine, now, f"{engine.name} failed its check: {error.message}")
        self._starting.remove(engine.place)
        if self.router is not None:
            self.router.add(engine.url)
        return [f"{engine.name} is ready again"]

    def _died(self, engine: Engine, now: float, why: str = "") -> list[str]:
        """Take it out of the router, say why, or how it ended, and plan its restart."""
        events = [why or engine.child.failure().message]
        engine.child.stop()
        self._starting.discard(engine.place)
        if self.router is not None and engine.url in self.router.engines():
            self.router.remove(engine.url)
        if not self.options.restart:
            return events
        if now - engine.born > _STEADY:
            engine.restarts = 0
        if engine.restarts >= MOST_RESTARTS:
            return [*events, f"{engine.name} was started {counted(engine.restarts, 'time')} again, and is given up"]
        pause = _FIRST_PAUSE * 2**engine.restarts
        self._due[engine.place] = now + pause
        return [*events, f"{engine.name} is started again in {pause:g} s"]

    def _again(self, engine: Engine) -> list[str]:
        place = engine.place
        del self._due[place]
        self._starting.add(place)
        again = self._engine(engine.served, place, engine.name, engine.port)
        again.restarts = engine.restarts + 1
        self.engines[place] = again
        return [f"{engine.name} is started again"]

    def _forget(self, place: int) -> None:
        self._due.pop(place, None)
        self._starting.discard(place)
