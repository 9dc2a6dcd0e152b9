"""Changes are sent to a URL: a POST of JSON, tried again, from a thread of its own. A failure is a message, no more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx2

from headstart.base.errors import InvalidOption
from headstart.fleet.watch.look import Look

TRIES = 3
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
        try:
            parsed = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise InvalidOption(f"{url!r} is no address: {error}", hint="such as https://example.org/hook") from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise InvalidOption(f"{url!r} is no address", hint="such as https://example.org/hook")
        self._url, self._timeout, self._pause = url, timeout, pause
        self._thread = ThreadPoolExecutor(1, "headstart-webhook")
        self._failures: list[str] = []
        self._where = parsed.host  # a hook's path is a secret, which messages and pages must not show

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
                response = httpx2.post(self._url, json=body, timeout=self._timeout)
                if response.status_code < 300:
                    return
                reason = f"it answered {response.status_code}"
                if 400 <= response.status_code < 500 and response.status_code not in (408, 429):
                    break  # it will say the same again
            except httpx2.HTTPError as error:
                reason = str(error) or type(error).__name__
        self._failures.append(f"the webhook at {self._where} got nothing: {reason[:_WORDS]}")


def message(look: Look, changes: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """What is posted: the changes with their findings, and a text that chat programs show as it is."""
    rows = {row.server: row for row in look.rows}
    changed = [
        {
            "server": name,
            "before": before,
            "now": now,
            "findings": [
                {"level": each.level, "words": each.words, "advice": each.advice or None}
                for each in rows[name].findings
            ],
        }
        for name, (before, now) in changes.items()
    ]
    lines = [
        "\n".join([f"{name}: {before} -> {now}", *(f"  {each.words}" for each in rows[name].findings)])
        for name, (before, now) in changes.items()
    ]
    return {
        "headstart_watch": 1,
        "time": datetime.fromtimestamp(look.time, UTC).isoformat(timespec="seconds"),
        "level": look.level,
        "text": "\n".join(lines),
        "changes": changed,
    }
