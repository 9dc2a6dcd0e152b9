"""A small causal LM as drafter: K cheap forwards guess K tokens, sampled from its own law q.

It runs on the same runner and cache as the target. Its cache is brought up to date by comparing tokens, not by
being told: whatever was accepted, rejected or emitted since, the longest common prefix stays and the rest is fed.
After a full acceptance that is two tokens, x_K and the bonus; after a rejection, one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from headstart.drafters import DraftContext, Drafter
from headstart.drafters.drawing import Guess, draw
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft


class DraftModel(Drafter):
    """Chains drawn from a draft LM; a greedy request gets the argmax chain, which is a point mass.

    A chain ends before a token of which the draft itself is unsure: one whose law gives its likeliest token less
    than `confidence` (the first token is always proposed). Whether it ends is a function of the text up to there, so
    each position is still judged against the law its token was drawn from, and the rule stays exact.
    """

    limit = 12

    def __init__(
        self,
        runner: ModelRunner,
        *,
        name: str,
        vocab_size: int,
        slots: int,
        budget: int = 5,
        confidence: float = 0.0,
        chunk: int = 512,
    ) -> None:
        self.name = name
        self.default_budget = budget
        self.runner = runner
        self.cache = runner.new_cache(slots)
        self._vocab_size = vocab_size
        self._chunk = chunk
        self._confidence = confidence
        self._rows: dict[int, _Row] = {}

    def propose(self, contexts: Sequence[DraftContext]) -> list[Draft]:
        guesses = []
        for context in contexts:
            row = self._row(context)
            guesses.append(_Guess(context, row, self._room(context, row)))
        self._catch_up([guess for guess in guesses if guess.budget > 0])
        draw(guesses, self._next, self._sure if self._confidence > 0 else None)
        return [guess.draft() for guess in guesses]

    def release(self, request: int) -> None:
        row = self._rows.pop(request, None)
        if row is not None:
            self.cache.release(row.slot)

    def _room(self, context: DraftContext, row: _Row) -> int:
        """The budget, cut to what the draft's own context holds: beyond it this drafter has nothing to say.

        Nor does it after a token of the target's padding, for which it has no embedding.
        """
        if any(token >= self.runner.vocab_size for token in row.feed):
            return 0
        return min(context.budget, self.runner.max_length - len(context.tokens))

    def _row(self, context: DraftContext) -> _Row:
        if context.request not in self._rows:
            self._rows[context.request] = _Row(self.cache.acquire())
        row = self._rows[context.request]
        row.follow(context.tokens)
        self.cache.rewind(row.slot, len(row.cached))
        return row

    def _catch_up(self, live: Sequence[_Guess]) -> None:
        """Read long unread stretches (a prompt) in chunks, so that a forward's size is bounded."""
        for guess in live:
            while len(guess.row.feed) > self._chunk:
                chunk, rest = guess.row.feed[: self._chunk], guess.row.feed[self._chunk :]
                self._forward([(guess.row, chunk)])
                guess.row.feed = rest

    def _forward(self, feeds: Sequence[tuple[_Row, list[int]]]) -> Tensor:
        """Feed tokens to each row and keep them; returns the logits [B, V] after the last of each."""
        out = self.runner.forward([Segment(row.slot, tuple(feed)) for row, feed in feeds], self.cache)
        for row, feed in feeds:
            self.cache.keep(row.slot, len(feed))
            row.cached += feed
        return self._fit(out.logits)

    def _next(self, live: Sequence[_Guess]) -> Tensor:
        return self._forward([(guess.row, guess.tokens[-1:] or guess.row.feed) for guess in live])

    def _sure(self, logits: Tensor) -> list[bool]:
        """For each row [V], whether its likeliest token has at least the wanted probability (before processors)."""
        wide = logits.float()
        likeliest = (wide.amax(-1) - wide.logsumexp(-1)).exp()
        return [float(p) >= self._confidence for p in likeliest.tolist()]

    def _fit(self, logits: Tensor) -> Tensor:
        """Draft logits over the target's vocabulary: the two may differ by padding, which is never proposed."""
        missing = self._vocab_size - logits.shape[-1]
        return F.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits[:, : self._vocab_size]


class _Row:
    """What the draft's cache holds of one request, and what it must still read."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.cached: list[int] = []
        self.feed: list[int] = []
        self._committed = 0

    def follow(self, tokens: Sequence[int]) -> None:
        """Compare with the committed tokens; only what is newer than the last time can differ."""
        same = min(self._committed, len(self.cached))
        # x0 is always fed anew: its logits are the first draft's law
        end = min(len(self.cached), len(tokens) - 1)
        same = min(same, end)
        while same < end and self.cached[same] == tokens[same]:
            same += 1
        del self.cached[same:]
        self.feed = list(tokens[same:])
        self._committed = len(tokens)


class _Guess(Guess):
    """A guess that knows its request's place in the draft's cache."""

    def __init__(self, context: DraftContext, row: _Row, budget: int) -> None:
        super().__init__(context, budget)
        self.row = row
