"""A draft LM with a tokenizer of its own: lossless speculation between two vocabularies.

The draft reads the committed text in its own tokens (`Transcript`) and guesses in one of three ways, fixed for the
pair (`Translation.way`). Over the intersection, its law is restricted to tokens that both have, written as a law over
the target's vocabulary with nothing outside, put through the request's processors and drawn from: q is exact, and what
the target has alone is simply never proposed. Through text, the draft writes greedily in its own tokens, the target's
tokenizer reads what it wrote, after the end of the committed text, and the tokens found are point masses: the last of
them may be the beginning of a longer one, which is a guess like any other. Where the words are the same and only their
ids differ, both work token by token. Whichever way, the target's law is kept.

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

from headstart.drafters import BuildContext, Drafter, Row, Weights
from headstart.drafters.growing.chains import Guess, draw
from headstart.drafters.matching.transcript import respaced, transcript
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.model.tokens.translation import Translation, Way
from headstart.rule.law import LawRow, LawState, greedy
from headstart.types import Draft, Sampling

WEIGHTS: Weights = "model"
log = logging.getLogger(__name__)

TAIL = 8
"""Committed tokens before what the draft wrote that the target's tokenizer reads with it."""
_UNSETTLED = 8
"""Draft tokens at the end of the committed text that may still change, as a rule; more cost a rebuilt law."""


class TranslatedDraft(Drafter):
    """Chains of a draft LM whose tokenizer is not the target's.

    Args:
        runner: the draft.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        target_tokenizer, draft_tokenizer: of transformers; see `Vocabulary` for those that can be used.
        budget: tokens, in the target's vocabulary, where nobody chooses.
        chunk: tokens the draft reads in one forward.
        way: how drafts are made; None leaves it to the pair (see `Translation`).

    Raises `IncompatibleTokenizer` for a tokenizer whose tokens cannot be told as bytes.
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
        budget: int = 5,
        chunk: int = 512,
        way: Way | None = None,
    ) -> None:
        translation = Translation.between(
            target_tokenizer,
            draft_tokenizer,
            target_vocab=vocab_size,
            draft_vocab=runner.vocab_size,
            name=f"draft {name}",
            way=way,
        )
        self.name = name
        self.default_budget = budget
        self.draws = translation.way != "text"
        self.runner = runner
        self.cache = runner.new_cache(slots)
        self.translation = translation
        self._chunk = chunk
        self._rows: dict[int, _Row] = {}
        pairs = [list(pair) for pair in translation.to_target.items()]
        self._pairs = torch.tensor(pairs, dtype=torch.long, device=runner.device).reshape(-1, 2)
        self._plain = LawState(Sampling(), (), runner.vocab_size, frozenset())

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        guesses: list[_Drawn | _Written] = [self._guess(context, self._row(context)) for context in contexts]
        self._catch_up([guess.row for guess in guesses if guess.budget > 0])
        draw([guess for guess in guesses if isinstance(guess, _Drawn)], self._shared)
        self._write([guess for guess in guesses if isinstance(guess, _Written)])
        return [guess.draft() for guess in guesses]

    def release(self, request: int) -> None:
        row = self._rows.pop(request, None)
        if row is not None:
            self.cache.release(row.slot)

    def _row(self, context: Row) -> _Row:
        if context.request not in self._rows:
            self._rows[context.request] = _Row(self.cache.acquire(), self.translation)
        row = self._rows[context.request]
        row.follow(context.tokens)
        self.cache.rewind(row.slot, len(row.cached))
        return row

    def _guess(self, context: Row, row: _Row) -> _Drawn | _Written:
        """A draft still to be made; an empty one beyond the draft's own context, and where it can read nothing."""
        room = self.runner.max_length - len(row.ids)
        if not row.ids or any(token >= self.runner.vocab_size for token in row.feed):
            room = 0
        way = self.translation.way
        if way == "ids" or (way == "intersection" and not context.sampling.greedy):
            return _Drawn(context, row, min(context.budget.nodes, room))
        state = self._plain if context.law.unedited else row.law(lambda prompt: self._edited(context.law, prompt))
        return _Written(context, row, self.translation, state, context.budget.nodes if room > 0 else 0, room)

    def _edited(self, law: LawState, prompt: Sequence[int]) -> LawState:
        """The request's processors, acting on the draft's own tokens of the prompt."""
        to_draft = self.translation.to_draft
        bias = {to_draft[token]: value for token, value in law.sampling.logit_bias.items() if token in to_draft}
        stops = frozenset(to_draft[token] for token in law.stop_ids if token in to_draft)
        return LawState(replace(law.sampling, logit_bias=bias), prompt, self.runner.vocab_size, stops)

    def _catch_up(self, rows: Sequence[_Row]) -> None:
        """Read long unread stretches (a prompt) in chunks, so that a forward's size is bounded."""
        for row in rows:
            while len(row.feed) > self._chunk:
                chunk, rest = row.feed[: self._chunk], row.feed[self._chunk :]
                self._forward([(row, chunk)])
                row.feed = rest

    def _forward(self, feeds: Sequence[tuple[_Row, list[int]]]) -> Tensor:
        """Feed the draft's tokens to each row and keep them; returns its logits after the last of each."""
        out = self.runner.forward([Segment(row.slot, tuple(feed)) for row, feed in feeds], self.cache)
        for row, feed in feeds:
            self.cache.keep(row.slot, len(feed))
            row.cached += feed
        return out.logits

    def _shared(self, live: Sequence[_Drawn]) -> Tensor:
        """One more token each; returns logits over the target's vocabulary [B, V], -inf where it is alone."""
        to_draft = self.translation.to_draft
        logits = self._forward(
            [(guess.row, [to_draft.get(guess.tokens[-1], 0)] if guess.tokens else guess.row.feed) for guess in live]
        )
        wide = logits.new_full((len(live), self.translation.sizes[0]), -math.inf)
        wide[:, self._pairs[:, 1]] = logits[:, self._pairs[:, 0]]
        return wide

    def _write(self, guesses: Sequence[_Written]) -> None:
        """Let the draft write greedily, until what it wrote has the wanted number of the target's tokens."""
        live = [guess for guess in guesses if guess.budget > 0]
        while live:
            logits = self._forward([(guess.row, guess.written[-1:] or guess.row.feed) for guess in live])
            said = greedy(logits, [LawRow(guess.state, tuple(guess.written)) for guess in live])
            live = [guess for guess, token in zip(live, said, strict=True) if guess.extend(token)]


def build(context: BuildContext) -> TranslatedDraft:
    assert context.draft is not None, "a draft model has been read"
    made = TranslatedDraft(
        context.draft,
        name=context.name,
        vocab_size=context.target.vocab_size,
        slots=context.slots,
        target_tokenizer=context.target_tokenizer,
        draft_tokenizer=context.draft_tokenizer,
        **context.given("budget"),
    )
    log.warning("draft %s has another tokenizer: %s", context.name, made.translation)
    return made


class _Row:
    """What the draft's cache holds of one request, and what it must still read; all in the draft's tokens."""

    def __init__(self, slot: int, translation: Translation) -> None:
        self.slot = slot
        self.cached: list[int] = []
        self.feed: list[int] = []
        self._transcript = transcript(translation)
        self._same = 0
        self._prompt = -1
        self._law: LawState | None = None
        self._counted = 0  # ids that `_law` has taken in

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
            self._law = None
        # The last token is always fed anew: its logits are what the draft begins with
        end = max(0, min(len(self.cached), len(ids) - 1))
        same = min(self._same, stable, end)
        while same < end and self.cached[same] == ids[same]:
            same += 1
        del self.cached[same:]
        self.feed = ids[same:]
        self._same = same

    def law(self, begin: Callable[[Sequence[int]], LawState]) -> LawState:
        """The processors at the end of the ids. begin: makes those at the end of a prompt.

        The last ids often change when more text follows, so they are taken in anew each time.
        """
        ids = self.ids
        if self._law is None:
            self._law, self._counted = begin(ids[: self._prompt]), self._prompt
        settled = max(self._counted, len(ids) - _UNSETTLED)
        self._law, self._counted = self._law.after(ids[self._counted : settled]), settled
        return self._law.after(ids[settled:])


class _Drawn(Guess):
    """Target tokens, drawn over the intersection."""

    def __init__(self, context: Row, row: _Row, budget: int) -> None:
        super().__init__(context, budget)
        self.row = row


class _Written:
    """Text of the draft's, and the target's tokens for it.

    state: processors for the draft's own law. budget: target tokens. room: draft tokens its context has left.
    """

    def __init__(
        self,
        context: Row,
        row: _Row,
        translation: Translation,
        state: LawState,
        budget: int,
        room: int,
    ) -> None:
        self.row = row
        self.state = state
        self.budget = budget
        self.written: list[int] = []
        self._tokens: tuple[int, ...] = ()
        # Where words of the target's are often longer than the draft's, one token more shows that the last is whole
        self._wanted = budget + (translation.way == "text")
        self._steps = min(room, math.ceil(self._wanted * max(1.0, translation.ratio)) + 1)
        self._translation = translation
        self._text = b""
        self._tail, self._stretch = _tail(context.tokens, translation)

    def extend(self, token: int) -> bool:
        """Append a draft token; returns whether there is more to write."""
        translation = self._translation
        word = translation.draft.word(token) if token >= 0 else None
        if word is None:
            if token in translation.to_target:  # the end of the text, say
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
        usable = (i for i, token in enumerate(ids) if token >= translation.sizes[0] or target.word(token) is None)
        return ids[: next(usable, len(ids))]


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
