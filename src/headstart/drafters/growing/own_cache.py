"""A causal LM that drafts, with a cache of its own: what it holds of each request, and reading on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from torch import Tensor

from headstart.drafters import Drafter, Row
from headstart.model.cache import Slots
from headstart.model.packed import Forward, Segment
from headstart.model.runner import ModelRunner


class DraftingModel(Protocol):
    """What runs the drafts, on a cache of the drafter's own: a `ModelRunner`, or a part of the target."""

    vocab_size: int
    max_length: int

    @property
    def width_invariant(self) -> bool:
        """Whether a row's logits are the same bits whatever else is in its forward."""
        ...

    @property
    def weights_in_words(self) -> str:
        """The precision of its weights, for people."""
        ...

    def new_cache(self, slots: int) -> Slots:
        """A cache for so many requests."""
        ...

    def forward(self, segments: Sequence[Segment], cache: Slots) -> Forward:
        """The logits of the judged rows."""
        ...

    def weights(self) -> Iterable[Tensor]:
        """The tensors that it runs with."""
        ...


class CachedText:
    """One request's text, in the drafter's own tokens."""

    def __init__(self, slot: int, cached: Sequence[int], salt: str) -> None:
        self.slot = slot
        self.salt = salt
        self.cached = list(cached)
        """The tokens whose keys and values the slot holds."""
        self.feed: list[int] = []
        """The tokens that are still to be read."""


class OwnCacheDrafter(Drafter):
    """A causal LM that drafts. A text is brought up to date by comparing tokens, so whatever was accepted, rejected or
    emitted since, only what is new is read. Where the target's cache keeps the texts of ended requests, so does this
    one, and a request that goes on with one of them has only its new part read by both.

    chunk: tokens that one forward reads of a text.
    """

    def __init__(self, runner: DraftingModel, slots: int, chunk: int) -> None:
        self.runner = runner
        self.cache = runner.new_cache(slots)
        self._chunk = chunk
        self._memories: dict[int, Any] = {}
        self._targets_cache: Slots | None = None

    def attach(self, target: ModelRunner, cache: Slots) -> None:  # noqa: ARG002 -- it runs on a model of its own
        self._targets_cache = cache

    @property
    def _keeps_texts(self) -> bool:
        return self._targets_cache is not None and self._targets_cache.keeps_texts

    def _seat(self, row: Row, text: Sequence[int]) -> tuple[int, Sequence[int], str]:
        """A slot for a request whose text is this one in the drafter's tokens, what the slot holds of it, and the
        request's salt. A reproducible request begins with nothing: rounding may depend on how a text was read."""
        salt = row.sampling.cache_salt
        slot = self.cache.acquire(text if self._keeps_texts and not row.reproducible else (), salt)
        return slot, text[: self.cache.lengths[slot]], salt

    def weights(self) -> Iterable[Tensor]:
        return self.runner.weights()

    @property
    def weights_in_words(self) -> str:
        return self.runner.weights_in_words

    def release(self, request: int) -> None:
        memory = self._memories.pop(request, None)
        if memory is not None:
            self.cache.release(memory.slot, memory.cached if self._keeps_texts else (), memory.salt)

    def _read(self, feeds: Sequence[tuple[CachedText, Sequence[int]]]) -> Tensor:
        """Read tokens on each text, and keep them; returns the logits [B, V] after the last of each."""
        out = self.runner.forward([Segment(text.slot, tuple(feed)) for text, feed in feeds], self.cache)
        for text, feed in feeds:
            self.cache.keep(text.slot, len(feed))
            text.cached += feed
        return out.logits

    def _catch_up(self, texts: Sequence[CachedText]) -> None:
        """Read long stretches (a prompt) but for their last chunk, so that the size of a forward is bounded."""
        for text in texts:
            while len(text.feed) > self._chunk:
                chunk, text.feed = text.feed[: self._chunk], text.feed[self._chunk :]
                self._read([(text, chunk)])
