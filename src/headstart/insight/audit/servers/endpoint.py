"""An OpenAI-compatible completions server as the subject of an audit.

The server is asked once, in several manners, to learn how it takes prompts and how it tells tokens; from then on every
request is made that way. Tokens are taken from the first of these that it gives: ids (`token_ids`: vLLM, SGLang),
ids in the log-probabilities ("token_id:123": vLLM; `content[].id`: llama.cpp), strings there (mapped through the
reference's vocabulary, see `spelling`), text alone. With text alone there are no tokens, and `tells_tokens` says so.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.engine.detokenize import TextStream
from headstart.errors import EndpointFailed, IncompatibleTokenizer, InvalidPrompt
from headstart.insight.audit.servers.asking import MANNERS, Manner, request_body
from headstart.insight.audit.servers.hearing import Heard, hear, tokens_told
from headstart.insight.audit.servers.spelling import Spelling, merged
from headstart.insight.audit.servers.wire import Refused, Wire
from headstart.insight.audit.subject import Ask, Completion, Law, Reference
from headstart.types import Sampling

PROBE = Sampling(max_tokens=8)
CUT = "cut"
"""finish_reason of a completion whose rest is not known, because its last token could be several."""
_RUNAWAY = 64
"""Tokens beyond max_tokens from which a server is said not to know the field; fewer are a finding of the audit."""
_BAD_REQUEST = (400, 404, 415, 422, 500, 501)


class EndpointSubject:
    """A server. Requests are made from several threads; each completion has a seed of its own.

    Args:
        url: see `Wire`.
        tokenizer, vocab_size, ends: the reference's: what its tokens are, and which of them end a text. Without them
            (no reference) prompts are code points of text, and tokens are whatever ids the server tells.
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
        self._wire = Wire(url, api_key=api_key, timeout=timeout, retries=retries)
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._ends = ends
        self._spelling = None if tokenizer is None else Spelling(tokenizer, vocab_size, ends)
        self._pool = ThreadPoolExecutor(concurrency)
        self._lock = threading.Lock()
        self.model = self._choose_model() if model is None else model
        self.name = f"{self.model} at {self._wire.url}"
        # Two servers never share seeds, whatever theirs are made from: shared noise would tie their texts together
        self._seeds = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        self._told: str | None = None
        self._manner: Manner | None = None
        self._standing: NDArray[np.int64] | None = None
        self._notes: list[str] = []
        self._cut = 0

    def close(self) -> None:
        """End the connections; a request under way is waited for."""
        self._pool.shutdown(cancel_futures=True)
        self._wire.close()

    def __enter__(self) -> EndpointSubject:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # -- the subject ----------------------------------------------------------------------------------------------

    def sample(self, prompt: Sequence[int], sampling: Sampling, count: int) -> list[Completion]:
        return self.sample_batch([Ask(tuple(prompt), sampling)] * count)

    def sample_batch(self, asks: Sequence[Ask]) -> list[Completion]:
        """One request for each ask, `concurrency` at a time.

        Raises:
            EndpointFailed: see `Wire`; also an answer without choices, or without what earlier ones had.
            IncompatibleTokenizer: the server does not speak the reference's tokens.
        """
        if not asks:
            return []
        self.meet(asks[0].prompt)
        with self._lock:
            seeds = self._seeds.integers(2**31 - 1, size=len(asks)).tolist()
        waiting = [self._pool.submit(self._complete, ask, seed) for ask, seed in zip(asks, seeds, strict=True)]
        try:
            return [answer.result() for answer in waiting]
        finally:
            for answer in waiting:
                answer.cancel()

    def seeded(self, prompt: Sequence[int], sampling: Sampling) -> Completion:
        """One completion with `sampling.seed` as it is."""
        self.meet(prompt)
        return self._complete(Ask(tuple(prompt), sampling), sampling.seed)

    def describe(self) -> dict[str, Any]:
        """What was asked, how, and what it came to; complete once something was sampled."""
        return {
            "kind": "endpoint",
            "name": self.name,
            "url": self._wire.url,
            "model": self.model,
            "asked": None if self._manner is None else self._manner.words,
            "tokens_from": self._told,
            "notes": self.notes,
        }

    # -- what it turned out to be ---------------------------------------------------------------------------------

    @property
    def tells_tokens(self) -> bool:
        """Whether completions carry tokens; known once the server was met."""
        return self._told != "text"

    @property
    def gives_logprobs(self) -> bool:
        return self._manner is not None and self._manner.logprobs is not None

    @property
    def words(self) -> tuple[str, ...]:
        """What each token of the reference writes; special tokens write nothing."""
        return () if self._spelling is None else self._spelling.texts

    @property
    def notes(self) -> list[str]:
        """What a certificate must say about how the server was heard."""
        notes = list(self._notes)
        if self._cut:
            notes.append(f"{self._cut} completions were cut where the server's text leaves open which token it was")
        return notes

    @property
    def standing(self) -> NDArray[np.int64] | None:
        """[V]: which token each counts as, where not all can be told apart; known once the server was met."""
        return self._standing

    def seen_by(self, reference: Reference) -> Reference:
        """The reference, with the laws of tokens added up that this server does not tell apart."""
        standing = self.standing
        return reference if standing is None else _MergedReference(reference, standing)

    def meet(self, prompt: Sequence[int]) -> None:
        """Learn how to ask this server, with this prompt; nothing happens if that is known.

        Raises: as `sample_batch`.
        """
        if self._manner is not None:
            return
        manner, heard = self._first_manner(prompt)
        self._told = tokens_told(heard)
        if self._spelling is None and self._told == "token strings":
            self._told = "text"  # which tokens they are, only a tokenizer could say
        if manner.logprobs is None or heard.logprobs is None:
            manner = replace(manner, logprobs=None) if heard.logprobs is None else manner
            self._notes.append("the server gives no log-probabilities; what was sampled is all there is to go by")
        if not manner.extras:
            self._notes.append(
                "the server takes OpenAI's fields only: its own defaults for top_k, min_p and penalties hold, "
                "and if they are not off there, the law is another one without any fault of speculation"
            )
        if self._told == "text":
            self._notes.append("the server tells no tokens, only text: texts are compared with texts")
        if self._spelling is not None:
            self._check_tokenizer(prompt, heard)
            self._standing = self._spelling.merge() if self._told == "token strings" else self._ends_merged()
        self._manner = manner

    # -- one request ----------------------------------------------------------------------------------------------

    def _choose_model(self) -> str:
        try:
            return _the_only(self._wire.models(), self._wire.url)
        except EndpointFailed:
            self.close()
            raise

    def _first_manner(self, prompt: Sequence[int]) -> tuple[Manner, Heard]:
        refusal: Refused | None = None
        for manner in MANNERS:
            if manner.ids and self._tokenizer is None:
                continue
            try:
                heard = self._ask(prompt, PROBE, manner, seed=0)
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
            told = heard.prompt_tokens in (None, len(prompt)) and heard.prompt_ids in (None, tuple(prompt))
            if told or not manner.ids:
                return manner, heard
        assert refusal is not None, "asking with text either answers or refuses"
        if self._unknown_model():
            refusal.hint = f"it has {', '.join(self._wire.models())}: choose one with --model"
        raise refusal

    def _unknown_model(self) -> bool:
        known = self._wire.models()
        return bool(known) and self.model not in known

    def _ask(self, prompt: Sequence[int], sampling: Sampling, manner: Manner, *, seed: int | None) -> Heard:
        said = list(prompt) if manner.ids else self._as_text(prompt)
        heard = hear(self._wire.complete(request_body(self.model, said, sampling, manner, seed=seed)))
        if self._manner is not None and heard.prompt_tokens not in (None, len(prompt)) and self._spelling is not None:
            raise _other_tokenizer(f"a prompt of {len(prompt)} tokens here has {heard.prompt_tokens} there")
        if (heard.count or 0) > sampling.max_tokens + _RUNAWAY:
            raise EndpointFailed(
                f"{self._wire.url} was asked for {sampling.max_tokens} tokens and gave {heard.count}: "
                "it does not know max_tokens",
                hint="an audit needs a server that follows the OpenAI completions API",
            )
        return heard

    def _complete(self, ask: Ask, seed: int | None) -> Completion:
        assert self._manner is not None, "the server has been met"
        wanted = ask.sampling.logprobs is not None or self._told in ("token strings", "ids in the log-probabilities")
        manner = self._manner if wanted else replace(self._manner, logprobs=None)
        heard = self._ask(ask.prompt, ask.sampling, manner, seed=seed)
        if self._told == "text":
            return Completion((), heard.finish_reason, heard.text)
        tokens, whole = self._tokens(heard)
        if whole and heard.finish_reason == "stop":
            tokens = self._closed(tokens, ask.sampling)
        reason = heard.finish_reason
        if self._standing is not None:
            tokens = tuple(self._standing[list(tokens)].tolist())
            if not whole and tokens[-1] not in self._standing[list(self._ends)]:
                self._cut += 1
                reason = CUT
        known = tokens if whole else tokens[:-1]
        logprobs = heard.logprobs_of(known, self._spelling) if ask.sampling.logprobs is not None else None
        return Completion(tokens, reason, heard.text, logprobs)

    def _tokens(self, heard: Heard) -> tuple[tuple[int, ...], bool]:
        if self._told == "token strings" and heard.strings is not None and self._spelling is not None:
            return self._spelling.tokens(heard.strings)
        if heard.ids is None and not heard.text:
            return (), True  # ended at once
        if heard.ids is None:
            raise EndpointFailed(
                f"{self._wire.url} told tokens at first and then no longer", hint="the server's log may say why"
            )
        outside = [token for token in heard.ids if not 0 <= token < self._vocab_size]
        if outside and self._spelling is not None:
            raise _other_tokenizer(f"it emitted token {outside[0]}; the reference has {self._vocab_size} tokens")
        return heard.ids, True

    def _closed(self, tokens: tuple[int, ...], sampling: Sampling) -> tuple[int, ...]:
        """With the token that ended the text, which some servers leave out. A stop string ends between tokens."""
        stops = self._ends | set(sampling.stop_token_ids)
        if sampling.stop or sampling.stop_token_ids or (tokens and tokens[-1] in stops):
            return tokens
        return (*tokens, min(self._ends)) if self._ends else tokens

    def _ends_merged(self) -> NDArray[np.int64] | None:
        """Every end of a text as one, if there are several: `_closed` cannot know which of them it was."""
        if len(self._ends) < 2:
            return None
        standing = np.arange(self._vocab_size)
        standing[list(self._ends)] = min(self._ends)
        return standing

    # -- tokenizers -----------------------------------------------------------------------------------------------

    def _as_text(self, prompt: Sequence[int]) -> str:
        if self._tokenizer is None:
            return "".join(map(chr, prompt))
        text = str(self._tokenizer.decode(list(prompt), skip_special_tokens=True))
        if list(self._tokenizer(text)["input_ids"]) != list(prompt):
            raise InvalidPrompt(
                f"{text[:40]!r} does not become the same tokens again",
                hint="this server takes prompts as text only: give prompts as text, ending where a word ends",
            )
        return text

    def _check_tokenizer(self, prompt: Sequence[int], heard: Heard) -> None:
        """Refuse a server whose tokens are not the reference's: the audit would compare nothing with something."""
        if heard.prompt_ids not in (None, tuple(prompt)):
            raise _other_tokenizer(
                f"the prompt is {list(prompt)[:8]}... here and {list(heard.prompt_ids)[:8]}... there"
            )
        if heard.prompt_tokens not in (None, len(prompt)):
            raise _other_tokenizer(f"the prompt has {len(prompt)} tokens here and {heard.prompt_tokens} there")
        if heard.ids is not None:
            tokens, _ = self._tokens(heard)
            text = self.text_of(prompt, tokens)
            if _bare(text) != _bare(heard.text):
                raise _other_tokenizer(f"its tokens write {text[:40]!r} here and {heard.text[:40]!r} there")
        elif self._told == "token strings":
            self._tokens(heard)

    def text_of(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """What tokens write after a prompt; special tokens write nothing."""
        stream = TextStream(lambda ids: str(self._tokenizer.decode(ids, skip_special_tokens=True)), prompt, ())
        stream.push(tokens)
        stream.flush()
        return stream.text


@dataclass(frozen=True)
class _MergedReference:
    """A reference whose tokens of one class count as one."""

    reference: Reference
    standing: NDArray[np.int64]

    def laws(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Law:
        return merged(self.reference.laws(prompt, tokens, sampling), self.standing)

    def stop_ids(self, sampling: Sampling) -> frozenset[int]:
        return frozenset(self.standing[list(self.reference.stop_ids(sampling))].tolist())

    def describe(self) -> dict[str, Any]:
        return self.reference.describe()


def _the_only(known: Sequence[str], url: str) -> str:
    if len(known) == 1:
        return known[0]
    if known:
        raise EndpointFailed(f"{url} has several models", hint=f"choose with --model: {', '.join(known)}")
    raise EndpointFailed(f"{url} does not say which models it has", hint="name the model with --model")


def _other_tokenizer(difference: str) -> IncompatibleTokenizer:
    return IncompatibleTokenizer(
        f"the server has another tokenizer than the reference: {difference}",
        hint="give as --target the very model the server runs, with its own tokenizer files",
        differences=(difference,),
    )


def _bare(text: str) -> str:
    """Text without what servers treat differently: white space around it, and an unfinished character at its end."""
    return text.strip().rstrip("\ufffd").strip()
