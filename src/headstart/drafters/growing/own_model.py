"""A causal LM with a cache of its own that grows chains or trees, in turn with the target or ahead of it.

Its cache is brought up to date by comparing tokens: whatever was accepted, rejected or emitted since, the longest
common prefix stays, then what the text has in common with a path of what was drafted last, and the rest is fed. After a
full acceptance of a chain that is two tokens, x_K and the bonus; after a rejection, one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch.nn.functional as F
from torch import Tensor

from headstart.drafters import Drafter, FanOut, Foresight, Row
from headstart.drafters.growing.grow import GrowingChain
from headstart.drafters.growing.policy import ChainPolicy, GrowingDrafter, TreePolicy
from headstart.drafters.growing.tree import GrowingTree
from headstart.model.cache import Slots
from headstart.model.packed import Forward, Segment
from headstart.model.runner import ModelRunner
from headstart.model.takeover import alike, take_over
from headstart.types import CaughtUp, Draft

FEW = 8
"""Tokens that a drafter reads at once, whoever waits, and a copy of the target by itself: to do it piece by piece, or
to take them over, would save nothing."""


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


def to_be_taken_over(row: Row) -> bool:
    """Whether the target is about to read the text that a copy of it would have to read now, and could take over after
    that: a draft can wait for a step. Not where a text must be reproducible: in which step its prompt was read depends
    on other requests."""
    return len(row.feed) > FEW and not row.unsettled and not row.reproducible


def with_reading(draft: Draft, caught_up: CaughtUp | None) -> Draft:
    """The draft, with what was read first; None where that was next to nothing."""
    return draft if caught_up is None else replace(draft, caught_up=(caught_up,))


class OwnCacheDrafter(Drafter):
    """A causal LM that drafts. A text is brought up to date by comparing tokens, so whatever was accepted, rejected or
    emitted since, only what is new is read. Where the target's cache keeps the texts of ended requests, so does this
    one, and a request that goes on with one of them has only its new part read by both.

    chunk: tokens that one forward reads of a text. copy: whether the model is a copy of the target, so that it may take
    the keys and values of what the target has read.
    """

    def __init__(self, runner: DraftingModel, slots: int, chunk: int, *, copy: bool = False) -> None:
        self.runner = runner
        self._copy = copy
        self.cache = runner.new_cache(slots)
        self._chunk = chunk
        self._memories: dict[int, Any] = {}
        self._targets_cache: Slots | None = None

    def attach(self, target: ModelRunner, cache: Slots) -> None:  # noqa: ARG002 -- it runs on a model of its own
        self._targets_cache = cache
        self._copy = self._copy and alike(self.cache, cache)

    @property
    def _keeps_texts(self) -> bool:
        return self._targets_cache is not None and self._targets_cache.keeps_texts

    def _seat(self, row: Row, text: Sequence[int]) -> tuple[int, Sequence[int], str]:
        """A slot for a request whose text is this one in the drafter's tokens, what the slot holds of it, and the
        request's salt. A reproducible request begins with nothing: rounding may depend on how a text was read."""
        salt = row.sampling.cache_salt
        self.cache.keeps_texts = self._keeps_texts
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

    def _catch_up(self, texts: Sequence[tuple[Row, CachedText]]) -> dict[int, CaughtUp]:
        """Read long stretches (a prompt) but for their last chunk, so that the size of a forward is bounded; of texts
        for which others would wait, no more together than a step may read, so that some have no draft yet.

        Returns what was read, and is still to be read, by request: of those that lacked more than a few tokens.
        """
        found: dict[int, CaughtUp] = {}
        left = min((row.reading for row, _ in texts if row.reading is not None), default=0)
        for row, text in texts:
            lacking = now = len(text.feed)
            if lacking <= FEW:
                continue
            if self._copy and to_be_taken_over(row):
                now = 0
            elif row.reading is not None:
                now = min(lacking, left)
                left -= now
            found[row.request] = CaughtUp(self.name, now, lacking - now)
            self._take_over(row, text, now)
            stop = lacking - now or self._chunk
            while len(text.feed) > stop:
                count = min(self._chunk, len(text.feed) - lacking + now)
                chunk, text.feed = text.feed[:count], text.feed[count:]
                self._read([(text, chunk)])
        return found

    def _take_over(self, row: Row, text: CachedText, most: int) -> None:
        """Take what the target has read of a text in place of reading it, at most so many tokens, where the model is a
        copy of it."""
        if not self._copy or row.reproducible or self._targets_cache is None:
            return
        held = len(text.cached)
        length = min(held + most, len(row.tokens) - 1 - row.unsettled)
        taken = take_over(self.cache, text.slot, self._targets_cache, row.slot, length) - held
        text.cached += text.feed[:taken]
        text.feed = text.feed[taken:]


class GrowingModel(GrowingDrafter, OwnCacheDrafter):
    """Chains drawn from a causal LM; a greedy request gets the argmax chain, which is a point mass. Or trees.

    Args:
        runner: the model.
        policy: what is grown.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        budget: nodes where the user chooses no number; None is the policy's default.
        chunk: tokens that the model reads in one forward.
        copy: whether it is a copy of the target.
    """

    reads_unsettled = True

    def __init__(
        self,
        runner: DraftingModel,
        policy: ChainPolicy | TreePolicy,
        *,
        vocab_size: int,
        slots: int,
        budget: int | None = None,
        chunk: int = 512,
        copy: bool = False,
    ) -> None:
        GrowingDrafter.__init__(self, policy, budget)
        OwnCacheDrafter.__init__(self, runner, slots, chunk, copy=copy)
        self._vocab_size = vocab_size

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        memories = [self._memory(row) for row in rows]
        rooms = {row.request: self._room(row, memory) for row, memory in zip(rows, memories, strict=True)}
        asked = zip(rows, memories, strict=True)
        caught_up = self._catch_up([(row, memory) for row, memory in asked if rooms[row.request] > 0])
        rooms.update({request: 0 for request, each in caught_up.items() if each.unread})
        found = self._grow(rows, list(rooms.values()), memories, self._next, self._level)
        for each in found:
            each.memory.grown = each
            if isinstance(each, GrowingTree):
                each.memory.tree = Draft(tuple(each.tokens), tuple(each.parents))
        return [with_reading(each.draft(), caught_up.get(each.row.request)) for each in found]

    def _room(self, row: Row, memory: DraftedText) -> int:
        """How many tokens the draft's own context holds beyond the text; none after a token of the target's padding,
        for which the draft has no embedding."""
        if any(token >= self.runner.vocab_size for token in memory.feed):
            return 0
        return self._room_after(len(row.tokens))

    def _room_after(self, tokens: int) -> int:
        return min(self.runner.max_length - tokens, self.cache.most_drafted)

    def _memory(self, row: Row) -> DraftedText:
        if row.request not in self._memories:
            self._memories[row.request] = DraftedText(*self._seat(row, row.tokens))
        memory: DraftedText = self._memories[row.request]
        memory.follow(row.tokens, self.cache, row.unsettled)
        return memory

    def _next(self, live: Sequence[GrowingChain]) -> Tensor:
        return self._fit(self._read([(chain.memory, chain.tokens[-1:] or chain.memory.feed) for chain in live]))

    def _level(self, live: Sequence[GrowingTree]) -> Tensor:
        if not live[0].tokens:  # all of them begin together
            return self._fit(self._read([(tree.memory, tree.memory.feed) for tree in live]))
        return self.read_nodes([tree.segment(tree.memory.slot) for tree in live])

    def read_nodes(self, segments: Sequence[Segment]) -> Tensor:
        """The logits [R, V] after nodes that are fed as scratch."""
        return self._fit(self.runner.forward(segments, self.cache).logits)

    def begun(self, row: Row) -> GrowingChain | GrowingTree:
        """A draft for a row whose text has been read, x0 included, that is still to grow."""
        found: GrowingChain | GrowingTree = self._begun(row, self._room_after(len(row.tokens)))
        return found

    def memory_of(self, request: int) -> DraftedText | None:
        """What the cache holds of a request; None of one that was never drafted for."""
        return self._memories.get(request)

    def _fit(self, logits: Tensor) -> Tensor:
        """Draft logits over the target's vocabulary: the two may differ by padding, which is never proposed."""
        missing = self._vocab_size - logits.shape[-1]
        return F.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits[:, : self._vocab_size]


class ForeseeingModel(GrowingModel):
    """A `GrowingModel` that can draft ahead of the target."""

    def foresee(self, rows: Sequence[Row], drafts: Sequence[Draft], fan_out: FanOut) -> Foresight:
        from headstart.drafters.foreseeing.growing import GrowingForesight  # few drafters draft ahead

        return GrowingForesight(self, rows, drafts, fan_out)


class DraftedText(CachedText):
    """What the draft's cache holds of one request, and what it must still read."""

    def __init__(self, slot: int, cached: Sequence[int], salt: str) -> None:
        super().__init__(slot, cached, salt)
        self.tree = Draft()
        """The nodes whose keys and values lie as scratch behind those of `cached`."""
        self.grown: Any = None
        """The `GrowingChain` or `GrowingTree` that was drafted last."""
        self._committed = len(cached)

    def follow(self, tokens: Sequence[int], cache: Slots, unsettled: int = 0) -> None:
        """Compare with a text; only what is newer than the last time, or was unsettled then, can differ."""
        same = min(self._committed, len(self.cached))
        # x0 is always fed again: its logits are the first draft's distribution
        last = len(tokens) - 1
        end = min(len(self.cached), last)
        same = min(same, end)
        while same < end and self.cached[same] == tokens[same]:
            same += 1
        path = self._path(tokens[same:last]) if same == len(self.cached) else ()
        if self._rewind(same, cache) and path:
            cache.keep(self.slot, 0, path)
            self.cached += tokens[same : same + len(path)]
        self.tree = Draft()
        self.feed = list(tokens[len(self.cached) :])
        self._committed = len(tokens) - unsettled

    def uncover(self, length: int, cache: Slots) -> None:
        """Keep the first `length` tokens as text; what was read behind them becomes the tree, a chain."""
        if len(self.cached) > length:
            tree = Draft.chain(self.cached[length:])
            self.tree = tree if self._rewind(length, cache) else Draft()

    def adopt(self, tokens: Sequence[int], nodes: Sequence[int], tree: Draft, cache: Slots) -> None:
        """The committed text is `tokens` now, all of it read. `nodes` are those of the last tree that bear what is new
        of it and then what was drafted after it, which is the new tree."""
        cache.keep(self.slot, 0, nodes)
        self.cached = list(tokens)
        self.tree = tree if self._rewind(len(tokens), cache) else Draft()
        self.feed = list(tokens[len(self.cached) :])
        self._committed = len(tokens)

    def _rewind(self, length: int, cache: Slots) -> bool:
        """Forget what comes after the first `length` tokens. False where a recurrent state made it forget more of them;
        then there is no scratch behind the text."""
        reached = cache.rewind(self.slot, length)
        del self.cached[reached:]
        return reached == length

    def _path(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """The nodes of the last tree that bear the first of these tokens, as far as there are some."""
        path: list[int] = []
        for token in tokens:
            below = self.tree.children[path[-1] + 1 if path else 0]
            node = next((node for node in below if self.tree.tokens[node] == token), None)
            if node is None:
                break
            path.append(node)
        return tuple(path)
