"""A causal LM with a cache of its own that grows chains or trees, in turn with the target or ahead of it.

Its cache is brought up to date by comparing tokens: whatever was accepted, rejected or emitted since, the longest
common prefix stays, then what the text has in common with a path of what was drafted last, and the rest is fed. After a
full acceptance of a chain that is two tokens, x_K and the bonus; after a rejection, one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from headstart.drafters import FanOut, Foresight, Row
from headstart.drafters.growing.chains import GrowingChain
from headstart.drafters.growing.foresight import GrowingForesight
from headstart.drafters.growing.own_cache import CachedText, DraftingModel, OwnCacheDrafter
from headstart.drafters.growing.policy import ChainPolicy, GrowingDrafter, TreePolicy
from headstart.drafters.growing.tree import GrowingTree
from headstart.model.cache import Slots
from headstart.model.packed import Segment
from headstart.types import Draft


class GrowingModel(GrowingDrafter, OwnCacheDrafter):
    """Chains drawn from a causal LM; a greedy request gets the argmax chain, which is a point mass. Or trees.

    Args:
        runner: the model.
        policy: what is grown.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        budget: nodes where nobody chooses; None is the policy's default.
        chunk: tokens that the model reads in one forward.
    """

    def __init__(
        self,
        runner: DraftingModel,
        policy: ChainPolicy | TreePolicy,
        *,
        vocab_size: int,
        slots: int,
        budget: int | None = None,
        chunk: int = 512,
    ) -> None:
        GrowingDrafter.__init__(self, policy, budget)
        OwnCacheDrafter.__init__(self, runner, slots, chunk)
        self._vocab_size = vocab_size

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        memories = [self._memory(row) for row in rows]
        rooms = [self._room(row, memory) for row, memory in zip(rows, memories, strict=True)]
        self._catch_up([memory for memory, room in zip(memories, rooms, strict=True) if room > 0 and memory.feed])
        found = self._grow(rows, rooms, memories, self._next, self._level)
        for each in found:
            each.memory.grown = each
            if isinstance(each, GrowingTree):
                each.memory.tree = Draft(tuple(each.tokens), tuple(each.parents))
        return [each.draft() for each in found]

    def _room(self, row: Row, memory: DraftedText) -> int:
        """How many tokens the draft's own context holds beyond the text; none after a token of the target's padding,
        for which the draft has no embedding."""
        if any(token >= self.runner.vocab_size for token in memory.feed):
            return 0
        return self.runner.max_length - len(row.tokens)

    def _memory(self, row: Row) -> DraftedText:
        if row.request not in self._memories:
            self._memories[row.request] = DraftedText(*self._seat(row, row.tokens))
        memory: DraftedText = self._memories[row.request]
        memory.follow(row.tokens, self.cache)
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
        found: GrowingChain | GrowingTree = self._begun(row, self.runner.max_length - len(row.tokens))
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

    def follow(self, tokens: Sequence[int], cache: Slots) -> None:
        """Compare with the committed tokens; only what is newer than the last time can differ."""
        same = min(self._committed, len(self.cached))
        # x0 is always fed anew: its logits are the first draft's distribution
        last = len(tokens) - 1
        end = min(len(self.cached), last)
        same = min(same, end)
        while same < end and self.cached[same] == tokens[same]:
            same += 1
        path = self._path(tokens[same:last]) if same == len(self.cached) else ()
        del self.cached[same:]
        cache.rewind(self.slot, same)
        if path:
            cache.keep(self.slot, 0, path)
            self.cached += tokens[same : same + len(path)]
        self.tree = Draft()
        self.feed = list(tokens[len(self.cached) :])
        self._committed = len(tokens)

    def uncover(self, length: int, cache: Slots) -> None:
        """Keep the first `length` tokens as text; what was read behind them becomes the tree, a chain."""
        if len(self.cached) > length:
            self.tree = Draft.chain(self.cached[length:])
            del self.cached[length:]
            cache.rewind(self.slot, length)

    def adopt(self, tokens: Sequence[int], nodes: Sequence[int], tree: Draft, cache: Slots) -> None:
        """The committed text is `tokens` now, all of it read. `nodes` are those of the last tree that bear what is new
        of it and then what was drafted after it, which is the new tree."""
        cache.keep(self.slot, 0, nodes)
        cache.rewind(self.slot, len(tokens))
        self.cached = list(tokens)
        self.feed, self.tree = [], tree
        self._committed = len(tokens)

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
