"""`headstart launch`: engines from an export and a router before them, started, proved and kept."""

from __future__ import annotations

import contextlib
import inspect
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import typer
from rich.console import Console
from rich.progress import TaskID, TextColumn
from rich.text import Text

from headstart.base.errors import CheckFailed
from headstart.base.options import option, values_of
from headstart.commands.options import command
from headstart.commands.terminal import harmless, messages, output, print_error, progress_bar
from headstart.fleet.adapt.handover import Handover
from headstart.fleet.adapt.rollout import RolloutOptions
from headstart.fleet.export.manifest import read_values
from headstart.fleet.launch.checks import SMOKE_PROMPT, CheckOptions, Checks
from headstart.fleet.launch.fleet import Fleet
from headstart.fleet.launch.served import LaunchOptions
from headstart.fleet.vllm import find

CHECK_FAILED = 1
REQUIRED = inspect.Parameter.empty
_LOOK_SECONDS = 1.0


@command(
    "vllm engines tensor-parallel-size host port router parity audit check-only greedy-only timeout restart logs set"
)
def launch(
    *,
    export: Path = option(REQUIRED, "The folder that 'headstart export' wrote.", positional=True, metavar="DIR"),
    vllm: Path | None = option(
        None,
        "The environment that holds vLLM: its folder, or its python. Default: headstart's own, else that of the vllm "
        "on the PATH.",
        metavar="DIR",
        panel="Engines",
    ),
    options: LaunchOptions,
    checks: CheckOptions,
    rollout: RolloutOptions,
    check_only: bool = option(False, "Start, check, stop: for a script that wants the exit code.", panel="Checks"),
) -> None:
    """Start vLLM engines and a router from an export, check that their text and acceptance are right, and watch them.

    Ctrl-C or SIGTERM ends every process that it started. They also end if headstart itself is killed.

    Exit codes: 0 ended as asked (with --check-only: every check passed), 1 a check failed, 2 a process did not start,
    or stopped.

    **Examples**

        headstart launch out
        headstart launch out --vllm path/to/vllm-env --engines 4 --port 9000
        headstart launch out --engines 1 --tensor-parallel-size 2 --set gpu-memory-utilization=0.85
        headstart launch out --check-only --greedy-only
    """
    read_values(export)  # an export for another engine is refused before a vLLM is looked for
    installation = find(vllm)
    console = messages()
    _say(console, f"vLLM {installation.version} in {installation.python}")
    with _ended_by_sigterm(), contextlib.ExitStack() as stack:
        shown = stack.enter_context(_Shown(console))
        checking = Checks(checks, progress=shown.check)
        try:
            fleet = stack.enter_context(
                Fleet.start(export, installation, progress=shown.start, admit=checking.admit, **values_of(options))
            )
            checking.through_router(fleet)
        except CheckFailed as error:
            shown.close()
            print_error(error)
            raise typer.Exit(CHECK_FAILED) from None
        shown.close()
        for line in checking.lines:
            _say(console, line)
        if not check_only:
            _serve(fleet, Handover(fleet, export, rollout), console)


def _serve(fleet: Fleet, handover: Handover, console: Console) -> None:
    """Say where it answers, and look after it until a signal comes."""
    try:
        _introduce(fleet)
        _say(console, "Ctrl-C ends it")
        while True:
            for tend in (fleet.tend, handover.tend):  # a replacement takes minutes: what came before is shown first
                for line in tend():
                    _say(console, line)
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        _say(console, "ending: engines get a few seconds to finish")


def _introduce(fleet: Fleet) -> None:
    """Where it answers, on standard output."""
    name = fleet.engines[0].served.name
    facts = [("endpoint", f"{fleet.url}/v1"), ("model", name)]
    facts += [(engine.name, f"{engine.url}  log {engine.log}") for engine in fleet.engines]
    if fleet.router is not None:
        facts.append(("router", f"log {fleet.router.child.log}, metrics {fleet.router.metrics}"))
    body = json.dumps({"model": name, "prompt": SMOKE_PROMPT, "max_tokens": 32})
    urls = " ".join(engine.url for engine in fleet.engines)
    facts.append(("try it", f"curl {fleet.url}/v1/completions -H 'Content-Type: application/json' -d '{body}'"))
    facts.append(("watch it", f"headstart watch {urls}"))
    width = max(len(name) for name, _ in facts) + 2
    for fact, value in facts:
        output().print(Text(harmless(f"{fact:<{width}}{value}")), soft_wrap=True)


class _Shown:
    """A line for each server that starts and each check that runs, gone when it is done."""

    def __init__(self, console: Console) -> None:
        self._bar = progress_bar(console, TextColumn("{task.fields[words]}", style="dim"), refresh_per_second=2)
        self._tasks: dict[str, TaskID] = {}
        self._console = console

    def __enter__(self) -> _Shown:
        self._bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._bar.stop()

    def start(self, name: str, seconds: float, line: str | None) -> None:
        """Progress of `Fleet.start`."""
        task = self._task(name, None)
        if line is not None:
            width = max(20, self._console.width - 60)
            self._bar.update(task, words=harmless(f"{seconds:.0f} s  {line[-width:]}"))
        else:
            self._bar.update(task, total=1, completed=1, words=f"ready after {seconds:.0f} s")
            if not self._console.is_terminal:
                _say(self._console, f"{name} is ready after {seconds:.0f} s")

    def check(self, what: str, done: int, count: int) -> None:
        """Progress of `Checks`."""
        self._bar.update(self._task(what, count), completed=done, total=count, words=f"{done} of {count}")

    def _task(self, name: str, total: int | None) -> TaskID:
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task(harmless(name), total=total, words="")
        return self._tasks[name]


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(console: Console, words: str) -> None:
    console.print(Text(harmless(words)), soft_wrap=True)
