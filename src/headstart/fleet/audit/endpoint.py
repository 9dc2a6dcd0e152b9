"""An OpenAI-compatible completions server as the subject of an audit.

The server is asked once, in several dialects, to learn how it takes prompts and how it gives tokens; from then on every
request is made that way. Tokens are taken from the first of these that it gives: ids (`token_ids`: vLLM, SGLang),
ids in the log-probabilities ("token_id:123": vLLM; `content[].id`: llama.cpp), strings there (mapped through the
reference's vocabulary, see `spelling`), text alone. With text alone there are no tokens, and `gives_tokens` is false.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from headstart.base.errors import EndpointFailed, InvalidPrompt
from headstart.base.words import counted
from headstart.fleet.audit.answers import Answer, read_answer
from headstart.fleet.audit.client import DIALECTS, Client, Dialect, request_body
from headstart.fleet.audit.tokens import ServerTokens
from headstart.measure.audit.subject import CUT, Ask, Completion, Refused
from headstart.types import Sampling

PROBE = Sampling(max_tokens=8)
_RUNAWAY = 64
"""Tokens beyond max_tokens from which a server does not know the field; fewer are a finding of the audit."""
_BAD_REQUEST = (400, 404, 415, 422, 500, 501)


class EndpointSubject:
    """A server. Requests are made from several threads; each completion has a seed of its own.

    Args:
        url: see `Client`.
        tokenizer, vocab_size, ends: the reference's: what its tokens are, and which of them end a text. Without them
            (no reference) prompts are code points of text, and tokens are whatever ids the server gives.
        model: its name there; None takes the only one there is.
        concurrency: requests at once.
        seed: begins the sequence of the completions' seeds; they have 31 bits, which every server takes.
    """

    def __init__(
        self,
        url: str,
        *,
        tokenizer: Any = None,
        vocab_size: int = 0,
        ends: frozenset[int] = frozenset(),
        model: str | None = None,
        api_key: str | None = None,
        timeout: float = 120.0,
        retries: int = 3,
        concurrency: int = 8,
        seed: int = 0,
    ) -> None:
        self._client = Client(url, api_key=api_key, timeout=timeout, retries=retries)
        self._threads = ThreadPoolExecutor(concurrency)
        self._lock = threading.Lock()
        self.tokens = ServerTokens(tokenizer, vocab_size, ends)
        self.model = self._only_model() if model is None else model
        self.name = f"{self.model} at {self._client.url}"
        # Two servers never share seeds, whatever theirs are made from: shared noise would tie their texts together
        self._seeds = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        self._dialect: Dialect | None = None
        self._notes: list[str] = []
        self._cut = 0

    def close(self) -> None:
        """End the connections; a request under way is waited for."""
        self._threads.shutdown(cancel_futures=True)
        self._client.close()

    def __enter__(self) -> EndpointSubject:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # -- the subject ----------------------------------------------------------------------------------------------

    def sample(self, asks: Sequence[Ask]) -> list[Completion]:
        """One request for each ask, `concurrency` at a time.

        Raises:
            EndpointFailed: see `Client`; also an answer without choices, or without what earlier ones had.
            IncompatibleTokenizer: the server's tokens are not the reference's.
        """
        if not asks:
            return []
        self.probe(asks[0].prompt)
        with self._lock:
            seeds = self._seeds.integers(2**31 - 1, size=len(asks)).tolist()
        waiting = [self._threads.submit(self._complete, ask, seed) for ask, seed in zip(asks, seeds, strict=True)]
        try:
            return [answer.result() for answer in waiting]
        finally:
            for answer in waiting:
                answer.cancel()

    def seeded(self, prompt: Sequence[int], sampling: Sampling) -> Completion:
        """One completion with `sampling.seed` as it is."""
        self.probe(prompt)
        return self._complete(Ask(tuple(prompt), sampling), sampling.seed)

    def describe(self) -> dict[str, Any]:
        """What was asked, how, and what it came to; complete once something was sampled."""
        return {
            "kind": "endpoint",
            "name": self.name,
            "url": self._client.url,
            "model": self.model,
            "asked": None if self._dialect is None else str(self._dialect),
            "tokens_from": self.tokens.source,
            "notes": self.notes,
        }

    @property
    def gives_tokens(self) -> bool:
        """Whether completions carry tokens; known once the server was probed."""
        return self.tokens.source != "text"

    @property
    def notes(self) -> list[str]:
        """What a certificate must tell about how the server's answers were read."""
        notes = list(self._notes)
        if self._cut:
            notes.append(f"{counted(self._cut, 'completion')} cut where the text leaves open which token it was")
        return notes

    # -- learning how to ask --------------------------------------------------------------------------------------

    def probe(self, prompt: Sequence[int]) -> None:
        """Learn how to ask this server, with this prompt; nothing happens if that is known.

        Raises: as `sample`.
        """
        if self._dialect is not None:
            return
        dialect, answer = self._first_dialect(prompt)
        self.tokens.learn(prompt, answer)
        if answer.logprobs is None:
            dialect = replace(dialect, logprobs=None)
            self._notes.append("the server gives no log-probabilities; what was sampled is all there is to go by")
        if not dialect.extras:
            self._notes.append(
                "the server takes OpenAI's fields only: its own defaults for top_k, min_p and penalties hold, "
                "and if they are not off there, the distribution is another one without any fault of speculation"
            )
        if not self.gives_tokens:
            self._notes.append("the server tells no tokens, only text: texts are compared with texts")
        self._dialect = dialect

    def _first_dialect(self, prompt: Sequence[int]) -> tuple[Dialect, Answer]:
        """The first dialect that the server takes, and its answer."""
        refusal: Refused | None = None
        for dialect in DIALECTS:
            if dialect.ids and self.tokens.tokenizer is None:
                continue
            try:
                answer = self._ask(prompt, PROBE, dialect, seed=0)
            except InvalidPrompt:
                if refusal is None or refusal.status < 500:
                    raise  # the server wants text, and this prompt is none
                continue
            except Refused as error:
                if error.status not in _BAD_REQUEST:
                    raise
                refusal = refusal or error
                if self._unknown_model():
                    break
                continue
            right_prompt = answer.prompt_tokens in (None, len(prompt)) and answer.prompt_ids in (None, tuple(prompt))
            if right_prompt or not dialect.ids:
                return dialect, answer
        assert refusal is not None, "asking with text either answers or refuses"
        if self._unknown_model():
            refusal.hint = f"it has {', '.join(self._client.models())}: choose one with --endpoint-model"
        raise refusal

    def _only_model(self) -> str:
        try:
            known = self._client.models()
            if len(known) == 1:
                return known[0]
            which = "has several models" if known else "does not say which models it has"
            choice = f": {', '.join(known)}" if known else ""
            raise EndpointFailed(
                f"{self._client.url} {which}",
                hint=f"name it with --endpoint-model (--against-model for the other){choice}",
            )
        except EndpointFailed:
            self.close()
            raise

    def _unknown_model(self) -> bool:
        known = self._client.models()
        return bool(known) and self.model not in known

    # -- one request ----------------------------------------------------------------------------------------------

    def _ask(self, prompt: Sequence[int], sampling: Sampling, dialect: Dialect, *, seed: int | None) -> Answer:
        sent = list(prompt) if dialect.ids else self.tokens.prompt_text(prompt)
        answer = read_answer(self._client.complete(request_body(self.model, sent, sampling, dialect, seed=seed)))
        if (answer.count or 0) > sampling.max_tokens + _RUNAWAY:
            raise EndpointFailed(
                f"{self._client.url} was asked for {sampling.max_tokens} tokens and gave {answer.count}: "
                "it does not know max_tokens",
                hint="an audit needs a server that follows the OpenAI completions API",
            )
        return answer

    def _complete(self, ask: Ask, seed: int | None) -> Completion:
        assert self._dialect is not None, "the server has been probed"
        in_logprobs = self.tokens.source in ("token strings", "ids in the log-probabilities")
        wanted = ask.sampling.logprobs is not None
        dialect = self._dialect if wanted or in_logprobs else replace(self._dialect, logprobs=None)
        answer = self._ask(ask.prompt, ask.sampling, dialect, seed=seed)
        self.tokens.check_prompt(ask.prompt, answer)
        if not self.gives_tokens:
            return Completion((), answer.finish_reason, answer.text)
        tokens, whole = self.tokens.of(answer, ask.sampling)
        self._cut += not whole
        logprobs = self.tokens.logprobs(answer, tokens) if wanted else None
        return Completion(tokens, answer.finish_reason if whole else CUT, answer.text, logprobs)
