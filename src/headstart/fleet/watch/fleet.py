"""A fleet under watch: each look scrapes every server, and holds the figures of each and what is wrong with it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from headstart.base.errors import EndpointFailed, InvalidFile, InvalidOption
from headstart.fleet.export.manifest import Manifest
from headstart.fleet.watch import findings as advice
from headstart.fleet.watch.counters import Counters
from headstart.fleet.watch.drift import Settings
from headstart.fleet.watch.feeding import Drift, LedgerReader, cells_of
from headstart.fleet.watch.findings import baseline_of, broken
from headstart.fleet.watch.look import Finding, Look, Row, WatchOptions
from headstart.fleet.watch.replicas import Comparisons
from headstart.fleet.watch.scrape import scrape, scraper
from headstart.fleet.watch.server import Piece, Server
from headstart.fleet.watch.store import Store, Window

HOUR = 3600.0
ENOUGH = 500
"""Forwards below which tokens per forward are not compared with an export's."""


class Watch:
    """Looks at servers and ledgers, and remembers what it must in a store.

    Args:
        urls: of servers of any known kind; see `scrape.metrics_url`.
        ledgers: files that `headstart serve --ledger` writes.
        store: where to go on from, and what is kept; see `Store`.
        expectation: of the export that is served, to compare acceptance with; None learns it.
        api_key: sent to every server.
        relearn: forget the evidence and the normal acceptance that the store holds, as after a new drafter.
        clock: seconds since 1970.

    Raises:
        InvalidOption: there is nothing to watch, or something twice.
        InvalidFile: the store holds something else.
    """

    def __init__(
        self,
        urls: Sequence[str],
        store: Store,
        options: WatchOptions | None = None,
        *,
        ledgers: Sequence[Path] = (),
        expectation: Manifest | None = None,
        api_key: str | None = None,
        relearn: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        names = [*urls, *map(str, ledgers)]
        if not names:
            raise InvalidOption("there is nothing to watch", hint="give the address of a server, or --ledger FILE")
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidOption(f"{twice[0]} is given twice", hint="give each server once")
        self.options = options or WatchOptions()
        self._store, self._expectation, self._clock = store, expectation, clock
        self._relearn = relearn
        self._client = scraper(timeout=self.options.timeout, api_key=api_key)
        self._scrape = partial(scrape, client=self._client)
        self._servers = {url: Server.of(url, store.mark(f"server {url}")) for url in urls}
        self._ledgers = {str(path): LedgerReader.of(path, store.mark(f"ledger {path}")) for path in ledgers}
        self._drifts = {name: self._drift(name) for name in urls}
        """By server, or by ledger and model."""
        self._comparisons = Comparisons.restore({} if relearn else store.mark("replicas") or {})
        self._threads = ThreadPoolExecutor(min(32, len(names)), "headstart-watch")

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._client.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def look(self) -> Look:
        """All servers now; what must be kept is kept.

        Raises:
            InvalidFile: the store cannot be written.
        """
        answers = {url: self._threads.submit(self._scrape, url) for url in self._servers}
        found: dict[str, list[Counters] | EndpointFailed] = {}
        for url, answer in answers.items():
            try:
                found[url] = answer.result()
            except EndpointFailed as error:
                found[url] = error
        now = self._clock()
        pieces = {
            url: self._servers[url].observe(counters, now, self.options.window)
            for url, counters in found.items()
            if not isinstance(counters, EndpointFailed)
        }
        last = {url: next(iter(server.last.values())) for url, server in self._servers.items() if server.last}
        self._comparisons.observe(last, {url: piece.counters for url, piece in pieces.items() if piece is not None})
        rows = [self._row(url, found[url], pieces.get(url)) for url in self._servers]
        rows += [self._ledger_row(name, now) for name in self._ledgers]
        self._keep(pieces)
        return Look(now, tuple(rows))

    def looks(self, every: float, seconds: float | None) -> Iterator[Look]:
        """A look every so many seconds, for so many seconds (None: without end); one at least."""
        began = time.monotonic()
        for number in itertools.count(1):
            yield self.look()
            now = time.monotonic()
            following = max(now, began + number * every)
            if seconds is not None and following > began + seconds:
                return
            time.sleep(following - now)

    # -- a row ----------------------------------------------------------------------------------------------------

    def _row(self, url: str, found: list[Counters] | EndpointFailed, piece: Piece | None) -> Row:
        server, drift = self._servers[url], self._drifts[url]
        findings: list[Finding] = []
        if isinstance(found, EndpointFailed):
            findings.append(Finding("unreachable", found.message, found.hint))
            return Row(url, {}, None, server.restarts, (*findings, *self._drifted(drift, "")), drift.facts())
        if piece is not None:
            window = piece.counters
            depth = window.drafted / window.drafts if window.drafts else None
            drift.observe(cells_of(window), piece.ended - piece.began, depth)
        findings += [
            Finding("broken", f"{_engine(counters)}{words}", advice.BROKEN)
            for counters in found
            for words in broken(counters)
        ]
        if server.several:
            findings.append(Finding("broken", "this address leads to several engines in turn", advice.SEVERAL))
        findings += self._drifted(drift, found[0].kind, len(found[0].accepted_per_position))
        findings += [Finding("unlike", each.words, advice.UNLIKE) for each in self._comparisons.of(url)]
        engines, seconds = server.shown()
        row = Row(url, engines, seconds, server.restarts, tuple(findings), drift.facts())
        below = self._below(row)
        return row if below is None else Row(url, engines, seconds, server.restarts, (*findings, below), drift.facts())

    def _drifted(self, drift: Drift, kind: str, depth: int = 0) -> list[Finding]:
        """What the detector found; depth: the draft length, where it is fixed."""
        cost = self.options.draft_cost
        if cost is None and self._expectation is not None:
            cost = self._expectation.costs.c
        shorter = drift.shorter(depth, cost) if depth and cost is not None else ""
        what = advice.about_drift(self._expectation, kind, shorter)
        return [Finding(drift.level, drift.words, what)] if drift.words else []

    def _below(self, row: Row) -> Finding | None:
        """That a server's tokens per forward lie under the export's, which is worth knowing but proves nothing."""
        window, expected = row.window, None if self._expectation is None else self._expectation.expected
        if window is None or expected is None or window.forwards < ENOUGH:
            return None
        value, export = window.tokens_per_forward, expected.tokens_per_forward
        if value is None or export.low is None or value >= export.low:
            return None
        words = (
            f"{value:.2f} tokens per forward; the export measured {export.value:.2f} "
            f"({export.low:.2f} to {export.high or export.value:.2f}) on its prompts"
        )
        return Finding("fine", words, advice.EXPECTED)

    def _ledger_row(self, name: str, now: float) -> Row:
        """A ledger: hours that have ended are windows, whatever the length of windows is elsewhere."""
        reader = self._ledgers[name]
        try:
            hours = reader.read(now)
        except InvalidFile as error:
            return Row(name, {}, findings=(Finding("unreachable", error.message, error.hint),))
        for (_, model), cells in hours.items():
            self._of_ledger(name, model).observe(cells, HOUR)
        drift = self._of_ledger(name, reader.model)
        return Row(name, {}, findings=tuple(self._drifted(drift, "headstart")), drift=drift.facts())

    def _of_ledger(self, name: str, model: str) -> Drift:
        """The detector of one target and drafter of a ledger: others are other streams."""
        stream = f"{name} {model}"
        if stream not in self._drifts:
            self._drifts[stream] = self._drift(stream, HOUR)
        return self._drifts[stream]

    # -- what is kept ---------------------------------------------------------------------------------------------

    def _drift(self, name: str, seconds: float | None = None) -> Drift:
        """The detector of a stream. A ledger has tags and sources, which no export knows."""
        options = self.options
        settings = Settings(
            mean_windows_to_false_alarm=options.false_alarm, drop=options.drop, learning=options.learning
        )
        baseline = None if self._expectation is None or seconds is not None else baseline_of(self._expectation)
        return Drift.of(
            None if self._relearn else self._store.mark(f"drift {name}"),
            seconds=options.drift_window if seconds is None else seconds,
            baseline=baseline,
            settings=settings,
        )

    def _keep(self, pieces: Mapping[str, Piece | None]) -> None:
        store = self._store
        with store.writing():
            for url, server in self._servers.items():
                store.keep(f"server {url}", server.record())
            for url, piece in pieces.items():
                if piece is not None:
                    store.add(url, Window(piece.began, piece.ended, piece.counters))
            for name, reader in self._ledgers.items():
                store.keep(f"ledger {name}", reader.record())
            for name, drift in self._drifts.items():
                store.keep(f"drift {name}", drift.record())
            store.keep("replicas", self._comparisons.record())

    def history(self) -> dict[str, list[Window]]:
        """By server, the windows that were kept, the oldest first."""
        return {url: self._store.windows(url) for url in self._servers}

    def changes(self, look: Look) -> dict[str, Any]:
        """The servers whose level is another than at the last call, with (before, now); it is remembered."""
        before = self._store.mark("levels") or {}
        now = {row.server: row.level for row in look.rows}
        with self._store.writing():
            self._store.keep("levels", {**before, **now})
        return {
            name: (before.get(name, "fine"), level) for name, level in now.items() if before.get(name, "fine") != level
        }


def _engine(counters: Counters) -> str:
    return f"engine {counters.engine}: " if counters.engine else ""
