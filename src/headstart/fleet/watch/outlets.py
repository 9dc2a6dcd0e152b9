"""Where a watch is shown outside: figures for Prometheus, changes posted to a URL, and a page.

Prometheus scrapes a port, or its node exporter reads a file. A change is a POST of JSON, tried again, from a thread of
its own; a failure is a message, no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.base.errors import InvalidOption
from headstart.base.extras import how_to_install
from headstart.fleet.http import HTTPError, ask, server_url
from headstart.fleet.watch.look import LEVELS, Look

if TYPE_CHECKING:
    from headstart.fleet.watch.fleet import Watch

PREFIX = "headstart_watch_"
_NAMES = {"acceptance": "acceptance_ratio"}  # "acceptance" is the family by position
_GAUGES = {
    "tokens_per_forward": "Generated tokens per forward of a request in the window, G/(G-A).",
    "tokens_per_forward_low": "The least that tokens per forward can be, see the guide.",
    "drafted_share": "Share of forwards that verified a draft.",
    "acceptance": "Accepted of all drafted tokens.",
    "tokens_per_second": "Generated tokens per second of the window.",
}


class Exporter:
    """Shows the last look.

    Args:
        where: a port on the loopback, or a file that is written again at each look.

    Raises:
        InvalidOption: the port is taken, the file cannot be written, or prometheus-client is not installed.
    """

    def __init__(self, where: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise InvalidOption("--prometheus needs prometheus-client", hint=how_to_install("fleet")) from error
        self._look: Look | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._file: Path | None = None
        self._server: Any = None
        if where.isdecimal():
            try:
                self._server, _ = start_http_server(int(where), addr="127.0.0.1", registry=self._registry)
            except (OSError, OverflowError) as error:
                raise InvalidOption(f"--prometheus {where}: {error}", hint="name another port, or a file") from error
        else:
            self._file = Path(where)
            self._write()

    @property
    def port(self) -> int | None:
        """Where it listens."""
        return None if self._server is None else int(self._server.server_port)

    def show(self, look: Look) -> None:
        """Make this the last look.

        Raises:
            InvalidOption: the file cannot be written.
        """
        self._look = look
        self._write()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _write(self) -> None:
        from prometheus_client import write_to_textfile

        if self._file is not None:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_to_textfile(str(self._file), self._registry)
            except OSError as error:
                raise InvalidOption(f"cannot write {self._file}: {error}", hint="name another file") from error

    def describe(self) -> list[Any]:
        """No names are fixed before there is a look."""
        return []

    def collect(self) -> Iterator[Any]:
        """The families of the last look."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        def gauge(name: str, words: str, *labels: str) -> Any:
            return GaugeMetricFamily(PREFIX + name, words, labels=["server", *labels])

        level = gauge("level", f"What was found: {', '.join(f'{i} {name}' for i, name in enumerate(LEVELS))}.")
        restarts = CounterMetricFamily(PREFIX + "restarts", "Restarts since the watch began.", labels=["server"])
        figures = {name: gauge(_NAMES.get(name, name), words, "kind", "model") for name, words in _GAUGES.items()}
        accepted = gauge("acceptance", "Acceptance given acceptance before, where it is known.", "position")
        evidence = gauge("drift_evidence", "Windows one would wait for as much without a fall.", "level")
        for row in () if self._look is None else self._look.rows:
            level.add_metric([row.server], LEVELS.index(row.level))
            restarts.add_metric([row.server], row.restarts)
            if (window := row.window) is not None:
                for name, family in figures.items():
                    value = row.tokens_per_second if name == "tokens_per_second" else getattr(window, name)
                    if value is not None:
                        family.add_metric([row.server, window.kind, window.model], value)
                for place in range(len(window.accepted_per_position)):
                    if (share := window.acceptance_at(place)) is not None:
                        accepted.add_metric([row.server, str(place + 1)], share)
            for name, value in (row.drift or {}).get("evidence", {}).items():
                evidence.add_metric([row.server, name], value)
        yield from (level, restarts, *figures.values(), accepted, evidence)


TRIES = 3
_PAGE_SECONDS = 60.0
"""How often the page is written while the watch goes on."""
_WORDS = 300
"""Characters of a failure's reason that are shown."""


class Webhook:
    """Where changes are sent. They are sent in order; what is still under way when it is closed is waited for.

    Args:
        url: gets a POST with a JSON object: see `message`.
        timeout: seconds for each try.
        pause: seconds before the second try; each further one waits twice as long.

    Raises:
        InvalidOption: it is no address.
    """

    def __init__(self, url: str, *, timeout: float = 5.0, pause: float = 1.0) -> None:
        self._where = server_url(url, example="such as https://example.org/hook", words="is no address").host
        """All that is said of it: a hook's path is a secret, which messages and pages must not show."""
        self._url, self._timeout, self._pause = url, timeout, pause
        self._thread = ThreadPoolExecutor(1, "headstart-webhook")
        self._failures: list[str] = []

    def send(self, look: Look, changes: Mapping[str, tuple[str, str]]) -> None:
        """Post the servers whose level has changed, by name (before, now); nothing happens without any."""
        if changes:
            self._thread.submit(self._post, message(look, changes))

    def failures(self) -> tuple[str, ...]:
        """What could not be sent since the last call."""
        found, self._failures = tuple(self._failures), []
        return found

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def _post(self, body: dict[str, Any]) -> None:
        reason = ""
        for number in range(TRIES):
            if number:
                time.sleep(self._pause * 2 ** (number - 1))
            try:
                response = ask("POST", self._url, json=body, seconds=self._timeout)
                if response.status_code < 300:
                    return
                reason = f"it answered {response.status_code}"
                if 400 <= response.status_code < 500 and response.status_code not in (408, 429):
                    break  # it will say the same again
            except HTTPError as error:
                reason = str(error) or type(error).__name__
        self._failures.append(f"the webhook at {self._where} got nothing: {reason[:_WORDS]}")


def message(look: Look, changes: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """What is posted: the changes with their findings, and a text that chat programs show as it is."""
    rows = {row.server: row for row in look.rows}
    changed = [
        {"server": name, "before": before, "now": now, "findings": [each.record() for each in rows[name].findings]}
        for name, (before, now) in changes.items()
    ]
    lines = [
        "\n".join([f"{name}: {before} -> {now}", *(f"  {each.words}" for each in rows[name].findings)])
        for name, (before, now) in changes.items()
    ]
    return {
        "headstart_watch": 1,
        "time": look.iso_time,
        "level": look.level,
        "text": "\n".join(lines),
        "changes": changed,
    }


class Outlets:
    """Everything outside the terminal that the looks of a watch are shown to.

    Args:
        page: a file that is written about once a minute, and at the end; see `watch_page`.
        prometheus: see `Exporter`.
        webhook: see `Webhook`; what it cannot send is a note of the next look.
        complain: called with what could not be sent at the end.

    Raises:
        InvalidOption: one of them cannot be used.
    """

    def __init__(
        self,
        watched: Watch,
        *,
        page: Path | None = None,
        prometheus: str | None = None,
        webhook: str | None = None,
        complain: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._watched, self._page, self._complain = watched, page, complain
        self._written = 0.0
        self._last: Look | None = None
        self._hook = None if webhook is None else Webhook(webhook)
        self._exporter = None if prometheus is None else Exporter(prometheus)

    def __enter__(self) -> Outlets:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._last is not None:
            self._write_page(self._last)
        if self._exporter is not None:
            self._exporter.close()
        if self._hook is not None:
            self._hook.close()
            for failure in self._hook.failures():
                self._complain(failure)

    def take(self, look: Look) -> Look:
        """Show a look everywhere; returns it with notes of what could not be sent."""
        changes = self._watched.changes(look)
        if self._hook is not None:
            self._hook.send(look, changes)
            look = replace(look, notes=self._hook.failures())
        if self._exporter is not None:
            self._exporter.show(look)
        if look.time - self._written >= _PAGE_SECONDS:
            self._write_page(look)
        self._last = look
        return look

    def _write_page(self, look: Look) -> None:
        if self._page is not None:
            from headstart.fleet.watch.page import watch_page

            watch_page(look, self._watched.history()).write(self._page)
            self._written = look.time
