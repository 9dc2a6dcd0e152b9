"""`headstart watch`: what servers that speculate really do, whether it changed, and what to do about it."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number, option
from headstart.commands.loading import api_key, check_outputs
from headstart.commands.options import command
from headstart.commands.terminal import messages, output
from headstart.commands.watch_view import view
from headstart.fleet.watch.look import Look, WatchOptions

_WHEN, _FROM, _OUT = "When", "Where from", "Output"
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@command("every once for ledger baseline state relearn api-key-env window drop json html prometheus webhook")
def watch(
    *,
    urls: Annotated[
        list[str] | None,
        typer.Argument(metavar="URL...", help="Servers: headstart, vLLM, SGLang, llama.cpp, in any mix."),
    ] = None,
    every: float = option(5.0, "Seconds between two looks at the servers.", panel=_WHEN),
    once: bool = option(False, "Look once, for cron. With --state it continues from the last look.", panel=_WHEN),
    duration: str | None = option(
        None, "End after this time: 90, 90s, 10m, 2h. Default: when interrupted.", "--for", metavar="TIME", panel=_WHEN
    ),
    ledger: list[Path] | None = option(
        None, "Also watch what 'headstart serve --ledger FILE' has counted, by source and tag.", panel=_FROM
    ),
    baseline: Path | None = option(
        None,
        "What to expect: the folder of 'headstart export'. Without it watch learns what is normal.",
        metavar="DIR",
        panel=_FROM,
    ),
    state: Path | None = option(
        None, "Keep windows and evidence in this SQLite file, and continue from it next time.", panel=_FROM
    ),
    relearn: bool = option(
        False, "Discard what --state says of drift, and learn the baseline again: for after a new drafter.", panel=_FROM
    ),
    api_key_env: str | None = option(
        None, "Environment variable that holds the servers' API key.", metavar="VAR", panel=_FROM
    ),
    options: WatchOptions,
    as_json: bool = option(False, "Print one line of JSON for each look instead of the table.", "--json", panel=_OUT),
    html: Path | None = option(None, "Write a page with charts.", panel=_OUT),
    prometheus: str | None = option(
        None,
        "Export watch's own figures for Prometheus: on a port of the loopback, or in a file.",
        metavar="PORT|FILE",
        panel=_OUT,
    ),
    webhook: str | None = option(None, "POST JSON there when a server's level changes.", metavar="URL", panel=_OUT),
) -> None:
    """Watch servers that speculate: true tokens per forward, acceptance, latency, drift, one replica against the rest.

    Counters are read from /metrics and compared from look to look. The exit code is for cron: 0 all is fine, 1 drift, a
    replica unlike the others or counters that contradict each other, 2 a server does not answer (or bad usage).

    **Examples**

        headstart watch http://127.0.0.1:8000
        headstart watch http://10.0.0.1:8000 http://10.0.0.2:8000 --baseline out/ --state watch.sqlite
        headstart watch http://10.0.0.1:8000 --once --state watch.sqlite --webhook https://example.org/hook
        headstart watch --ledger acceptance.sqlite --once
    """
    check_number("--every", every, above=0)
    seconds = None if duration is None else seconds_of(duration)
    if once and seconds is not None:
        raise InvalidOption("--once and --for exclude each other", hint="--for looks again and again for that time")
    from headstart.fleet.watch.findings import read_expectation
    from headstart.fleet.watch.fleet import Watch
    from headstart.fleet.watch.outlets import Outlets
    from headstart.fleet.watch.store import Store

    expectation = None if baseline is None else read_expectation(baseline)
    key, code = api_key(api_key_env), 0
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(state))
        watched = stack.enter_context(
            Watch(
                urls or [], store, options,
                ledgers=ledger or (), expectation=expectation, api_key=key, relearn=relearn,
            )
        )  # fmt: skip
        check_outputs(None, html)
        told = messages()
        outlets = stack.enter_context(
            Outlets(watched, page=html, prometheus=prometheus, webhook=webhook,
                    complain=lambda words: told.print(words, soft_wrap=True, markup=False))
        )  # fmt: skip
        screen = stack.enter_context(_Screen(as_json=as_json))
        with contextlib.suppress(KeyboardInterrupt):  # how a watch without an end is ended
            for look in watched.looks(every, 0.0 if once else seconds):
                screen.show(outlets.take(look))
                code = look.exit_code
    raise typer.Exit(code)


def seconds_of(text: str) -> float:
    """ "90", "90s", "10m", "2h" or "1d" in seconds.

    Raises:
        InvalidOption: it is none of these, or not above 0.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if match is None or not float(match[1]):
        raise InvalidOption(f"--for {text!r} is no time", hint="such as 90s, 10m or 2h")
    return float(match[1]) * _UNITS[match[2]]


class _Screen:
    """Shows looks on standard output: as lines of JSON, as a table that changes in its place, or one after another."""

    def __init__(self, *, as_json: bool) -> None:
        self._json, self._console = as_json, output()
        terminal = self._console.is_terminal and not as_json
        self._live = Live(console=self._console, auto_refresh=False) if terminal else None

    def __enter__(self) -> _Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, look: Look) -> None:
        if self._json:
            print(json.dumps(look.record(), allow_nan=False), flush=True)
        elif self._live is not None:
            self._live.update(view(look, width=self._console.width), refresh=True)
        else:
            self._console.print(view(look, width=self._console.width))
