"""A draft LM with a tokenizer of its own: lossless speculation between two vocabularies.

The draft reads the committed text in its own tokens (`Transcript`) and guesses by one of three methods, fixed for the
pair (`Translation.method`). Over the intersection, its distribution is restricted to tokens that both have, written as
a distribution over the target's vocabulary with nothing outside, put through the request's processors and drawn from: q
is exact, and what the target has alone is simply never proposed. Through text, the draft writes greedily in its own
tokens, the target's tokenizer reads what it wrote, after the end of the committed text, and the tokens found are point
masses: the last of them may be the beginning of a longer one, which is a guess like any other. Where the words are the
same and only their ids differ, both work token by token. Each method keeps the target's distribution.

Sources: token-level intersection and string-level exact match (Timor et al. 2025, arXiv:2502.05202).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headstart.drafters import BuildContext, Row, Weights
from headstart.drafters.growing.grow import GrowingChain, grow_chains
from headstart.drafters.growing.own_model import CachedText, OwnCacheDrafter, with_reading
from headstart.drafters.matching.transcript import Transcript, respaced, transcript
from headstart.model.runner import ModelRunner
from headstart.model.tokens.translation import Method, Translation
from headstart.rule.distribution import SamplingRow, SamplingState, greedy
from headstart.types import CaughtUp, Draft, Sampling

WEIGHTS: Weights = "model"
log = logging.getLogger(__name__)

TAIL = 8
"""Committed tokens before what the draft wrote that the target's tokenizer reads with it."""
_UNSETTLED = 8
"""Draft tokens at the end of the committed text that may still change, as a rule; more cost a rebuilt distribution."""


class TranslatedDraft(OwnCacheDrafter):
    """Chains of a draft LM whose tokenizer is not the target's.

    Args:
        runner: the draft.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        target_tokenizer, draft_tokenizer: of transformers; see `Vocabulary` for those that can be used.
        budget: tokens, in the target's vocabulary, where the user chooses no number; None is 5.
        chunk: tokens the draft reads in one forward.
        method: how drafts are translated; None leaves it to the pair (see `Translation`).

    Raises `IncompatibleTokenizer` for a tokenizer whose tokens cannot be written as bytes.
    """

    limit = 12

    def __init__(
        self,
        runner: ModelRunner,
        *,
        name: str,
        vocab_size: int,
        slots: int,
        target_tokenizer: Any,
        draft_tokenizer: Any,
        budget: int | None = None,
        chunk: int = 512,
        method: Method | None = None,
    ) -> None:
        translation = Translation.between(
            target_tokenizer,
            draft_tokenizer,
            target_vocab=vocab_size,
            draft_vocab=runner.vocab_size,
            name=f"draft {name}",
            method=method,
        )
        self.name = name
        self.default_budget = 5 if budget is None else budget
        self.draws = translation.method != "text"
        super().__init__(runner, slots, chunk)
        self.translation = translation
        pairs = [list(pair) for pair in translation.to_target.items()]
        self._pairs = torch.tensor(pairs, dtype=torch.long, device=runner.device).reshape(-1, 2)
        self._plain = SamplingState(Sampling(), (), runner.vocab_size, frozenset())

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        guesses: list[GrowingChain | _Written] = [self._guess(row, self._memory(row)) for row in rows]
        asked = zip(rows, guesses, strict=True)
        caught_up = self._catch_up([(row, guess.memory) for row, guess in asked if guess.budget > 0])
        for row, guess in zip(rows, guesses, strict=True):
            if row.request in caught_up and caught_up[row.request].unread:
                guess.budget = 0
        grow_chains([guess for guess in guesses if isinstance(guess, GrowingChain)], self._shared)
        self._write([guess for guess in guesses if isinstance(guess, _Written)])
        drafts = [guess.draft() for guess in guesses]
        return [
            with_reading(draft, _in_targets_tokens(caught_up.get(row.request), row, guess.memory))
            for row, guess, draft in zip(rows, guesses, drafts, strict=True)
        ]

    def _memory(self, row: Row) -> _Memory:
        if row.request not in self._memories:
            text = transcript(self.translation)
            text.follow(row.tokens)
            self._memories[row.request] = _Memory(text, *self._seat(row, text.ids))
        memory: _Memory = self._memories[row.request]
        memory.follow(row.tokens)
        memory.forget(self.cache.rewind(memory.slot, len(memory.cached)))
        return memory

    def _guess(self, row: Row, memory: _Memory) -> GrowingChain | _Written:
        """A draft still to be made; an empty one beyond the draft's own context, and where it can read nothing."""
        room = self.runner.max_length - len(memory.ids)
        if not memory.ids or any(token >= self.runner.vocab_size for token in memory.feed):
            room = 0
        method = self.translation.method
        if method == "ids" or (method == "intersection" and not row.sampling.greedy):
            return GrowingChain(row, min(row.budget.nodes, room), memory)
        state = (
            self._plain
            if row.sampling_state.unedited
            else memory.distribution(lambda prompt: self._edited(row.sampling_state, prompt))
        )
        return _Written(row, memory, self.translation, state, row.budget.nodes if room > 0 else 0, room)

    def _edited(self, distribution: SamplingState, prompt: Sequence[int]) -> SamplingState:
        """The request's processors, acting on the draft's own tokens of the prompt."""
        to_draft = self.translation.to_draft
        bias = {
            to_draft[token]: value for token, value in distribution.sampling.logit_bias.items() if token in to_draft
        }
        stops = frozenset(to_draft[token] for token in distribution.stop_ids if token in to_draft)
        return SamplingState(replace(distribution.sampling, logit_bias=bias), prompt, self.runner.vocab_size, stops)

    def _shared(self, live: Sequence[GrowingChain]) -> Tensor:
        """One more token each; returns logits over the target's vocabulary [B, V], -inf where it is alone."""
        to_draft = self.translation.to_draft
        logits = self._read(
            [
                (guess.memory, [to_draft.get(guess.tokens[-1], 0)] if guess.tokens else guess.memory.feed)
                for guess in live
            ]
        )
        wide = logits.new_full((len(live), self.translation.sizes[0]), -math.inf)
        wide[:, self._pairs[:, 1]] = logits[:, self._pairs[:, 0]]
        return wide

    def _write(self, guesses: Sequence[_Written]) -> None:
        """Let the draft write greedily, until what it wrote has the wanted number of the target's tokens."""
        live = [guess for guess in guesses if guess.budget > 0]
        while live:
            logits = self._read([(guess.memory, guess.written[-1:] or guess.memory.feed) for guess in live])
            found = greedy(logits, [SamplingRow(guess.state, tuple(guess.written)) for guess in live])
            live = [guess for guess, token in zip(live, found, strict=True) if guess.extend(token)]


def build(context: BuildContext) -> TranslatedDraft:
    assert context.draft is not None, "a draft model has been read"
    made = TranslatedDraft(
        context.draft,
        name=context.name,
        vocab_size=context.target.vocab_size,
        slots=context.slots,
        target_tokenizer=context.target_tokenizer,
        draft_tokenizer=context.draft_tokenizer,
        budget=context.budget,
    )
    log.warning("draft %s has another tokenizer: %s", context.name, made.translation)
    return made


class _Memory(CachedText):
    """What the draft's cache holds of one request, and what it must still read; all in the draft's tokens."""

    def __init__(self, text: Transcript, slot: int, cached: Sequence[int], salt: str) -> None:
        super().__init__(slot, cached, salt)
        self._transcript = text
        self._same = 0
        self._prompt = -1
        self._distribution: SamplingState | None = None
        self._counted = 0  # ids that `_distribution` has taken in

    @property
    def ids(self) -> list[int]:
        return self._transcript.ids

    def follow(self, tokens: Sequence[int]) -> None:
        """Compare with the committed text; only what is newer than the last time can differ."""
        stable = self._transcript.follow(tokens)
        ids = self._transcript.ids
        if self._prompt < 0:
            self._prompt = len(ids)
        if stable < self._counted:
            self._distribution = None
        # The last token is always fed again: its logits are what the draft begins with
        end = max(0, min(len(self.cached), len(ids) - 1))
        same = min(self._same, stable, end)
        while same < end and self.cached[same] == ids[same]:
            same += 1
        del self.cached[same:]
        self.feed = ids[same:]
        self._same = same

    def forget(self, length: int) -> None:
        """The cache holds only so many of the tokens."""
        del self.cached[length:]
        self.feed = self.ids[length:]
        self._same = min(self._same, length)

    def distribution(self, begin: Callable[[Sequence[int]], SamplingState]) -> SamplingState:
        """The processors at the end of the ids. begin: makes those at the end of a prompt.

        The last ids often change when more text follows, so they are taken in again each time.
        """
        ids = self.ids
        if self._distribution is None:
            self._distribution, self._counted = begin(ids[: self._prompt]), self._prompt
        settled = max(self._counted, len(ids) - _UNSETTLED)
        self._distribution, self._counted = self._distribution.after(ids[self._counted : settled]), settled
        return self._distribution.after(ids[settled:])


class _Written:
    """Text that the draft writes, and the target's tokens for it.

    Args:
        state: the processors of the draft's own distribution.
        budget: the most target tokens.
        room: draft tokens that its context has left.
    """

    def __init__(
        self,
        row: Row,
        memory: _Memory,
        translation: Translation,
        state: SamplingState,
        budget: int,
        room: int,
    ) -> None:
        self.memory = memory
        self.state = state
        self.budget = budget
        self.written: list[int] = []
        self._tokens: tuple[int, ...] = ()
        # Where words of the target's are often longer than the draft's, one token more shows that the last is whole
        self._wanted = budget + (translation.method == "text")
        self._steps = min(room, math.ceil(self._wanted * max(1.0, translation.ratio)) + 1)
        self._translation = translation
        self._text = b""
        self._tail, self._stretch = _tail(row.tokens, translation)

    def extend(self, token: int) -> bool:
        """Append a draft token; returns whether there is more to write."""
        translation = self._translation
        word = translation.draft.word(token) if token >= 0 else None
        if word is None:
            if token in translation.to_target:  # for example the end of the text
                self._tokens = (*self._tokens, translation.to_target[token])
            return False
        self.written.append(token)
        self._text += word
        self._tokens = self._read()
        return len(self._tokens) < self._wanted and len(self.written) < self._steps

    def draft(self) -> Draft:
        return Draft.chain(self._tokens[: self.budget])

    def _read(self) -> tuple[int, ...]:
        """The target's tokens for the draft's text, where it stands; on its own if they merge with what is before."""
        translation, text = self._translation, self._text
        target = translation.target
        if not self._tail:
            text = respaced(text, translation.draft, target, self._stretch)
        found = target.encode(self._tail + text)
        ids = found.ids
        if self._tail:
            after = next((i + 1 for i, end in enumerate(found.ends) if end == len(self._tail)), None)
            ids = target.encode(text).ids if after is None else ids[after:]
        unusable = (i for i, token in enumerate(ids) if token >= translation.sizes[0] or target.word(token) is None)
        return ids[: next(unusable, len(ids))]


def _in_targets_tokens(caught_up: CaughtUp | None, row: Row, memory: _Memory) -> CaughtUp | None:
    """The same, where what is still to be read counts as its share of the target's tokens of the text."""
    if caught_up is None or not caught_up.unread:
        return caught_up
    return replace(caught_up, unread=math.ceil(caught_up.unread * len(row.tokens) / len(memory.ids)))


def _tail(tokens: Sequence[int], translation: Translation) -> tuple[bytes, int]:
    """The committed text's last few tokens, as far back as the last special one; and the number of the stretch of text
    that is to be gone on with (only whether it is the first matters)."""
    target = translation.target
    words: list[bytes] = []
    for token in reversed(tokens[-TAIL:]):
        word = target.word(token)
        if word is None:
            break
        words.append(word)
    begun = len(tokens) > 1 or tokens[-1] != target.roles.get("bos")
    return b"".join(reversed(words)), int(begun)
