"""The side that is tested: it completes one prompt at a time and returns what was counted for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headstart.base.errors import EndpointFailed
from headstart.fleet.audit.answers import read_answer
from headstart.fleet.audit.client import Client, Dialect, request_body
from headstart.fleet.parity.counts import Counts
from headstart.fleet.watch.counters import Counters, total
from headstart.fleet.watch.scrape import scrape
from headstart.types import Sampling

SECONDS = 10.0
"""How long a server's counters may lag behind its answers."""
_POLL = 0.05
_PLAIN = Dialect(ids=True, extras=True, logprobs=None)


@dataclass(frozen=True, slots=True)
class Answered:
    """A greedy text of exactly the length that was asked for, and what was counted while it was written."""

    tokens: tuple[int, ...]
    counts: Counts


class Subject(Protocol):
    """What is compared with headstart."""

    name: str

    def complete(self, prompt: Sequence[int], max_tokens: int) -> Answered:
        """Write so many tokens greedily, past any end of text."""
        ...


class Server:
    """A vLLM server, which must serve no one else meanwhile: its counters are those of all its requests.

    Args:
        url: of one engine, not of a router; with or without `/v1`.
        model: its name there; None takes the first that it lists.
        timeout: seconds to wait for an answer.
    """

    def __init__(
        self, url: str, *, model: str | None = None, api_key: str | None = None, timeout: float = 120.0
    ) -> None:
        self._url, self._key = url, api_key
        self._client = Client(url, api_key=api_key, timeout=timeout)
        try:
            known = self._client.models() if model is None else [model]
            if not known:
                raise EndpointFailed(f"{url} lists no model", hint="name the one to ask for")
        except BaseException:
            self.close()
            raise
        self.model = known[0]
        self.name = f"{self.model} at {url}"

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def complete(self, prompt: Sequence[int], max_tokens: int) -> Answered:
        """Raises:
        EndpointFailed: no server answers, or not with token ids; the server does not count drafts, restarted, or
            served others at the same time.
        """
        before = self._look()
        if before.running or before.waiting:
            raise self._not_alone(f"{before.running or 0:g} requests run and {before.waiting or 0:g} wait")
        sampling = Sampling(max_tokens=max_tokens, ignore_eos=True)
        body = request_body(self.model, prompt, sampling, _PLAIN, seed=None)
        tokens = read_answer(self._client.complete(body)).ids
        if tokens is None:
            raise EndpointFailed(
                f"{self._url} gives no token ids", hint="parity needs vLLM's field return_token_ids (0.10.2 or newer)"
            )
        if len(tokens) != max_tokens:
            raise EndpointFailed(
                f"{self._url} was asked for {max_tokens} tokens and gave {len(tokens)}",
                hint="ask for fewer tokens if its context is short; the server must know ignore_eos",
            )
        return Answered(tokens, self._window(before, len(tokens)))

    def _look(self) -> Counters:
        found = total(scrape(self._url, api_key=self._key))
        assert found is not None, "a page without counters is refused"
        if found.kind != "vllm":
            raise EndpointFailed(f"{self._url} is a server of {found.kind!r}", hint="parity compares with vLLM")
        return found

    def _window(self, before: Counters, tokens: int) -> Counts:
        """What was counted for a request of so many tokens. vLLM answers a moment before it counts."""
        until = time.monotonic() + SECONDS
        while True:
            window = self._look() - before
            if window.restarts:
                raise EndpointFailed(f"{self._url} was restarted meanwhile", hint="look into its log, and try again")
            if window.generated >= tokens:
                break
            if time.monotonic() > until:
                raise EndpointFailed(
                    f"{self._url} gave {tokens} tokens and counted {window.generated}",
                    hint="is this the engine's own address? Its statistics must be on (no --disable-log-stats)",
                )
            time.sleep(_POLL)
        if window.generated > tokens:
            raise self._not_alone(f"it counted {window.generated} tokens and gave us {tokens}")
        if not window.counts_drafts:
            raise EndpointFailed(
                f"{self._url} does not speculate, or does not count it", hint="start it with --speculative-config"
            )
        return Counts(window.generated, window.drafts, window.drafted, window.accepted_per_position)

    def _not_alone(self, why: str) -> EndpointFailed:
        return EndpointFailed(
            f"{self._url} serves others at the same time: {why}",
            hint="parity reads the server's counters, so it must serve no other requests meanwhile",
        )
