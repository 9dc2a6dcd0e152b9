"""A small causal LM as drafter: K cheap forwards guess a chain of K tokens, or a tree of K levels.

Chains are sampled from its own law q; trees are grown as in `growing.trees`. It runs on the same runner and cache as
the target. Its cache is brought up to date by comparing tokens: whatever was accepted, rejected or emitted since, the
longest common prefix stays, then what the text has in common with a path of the last tree, and the rest is fed. After a
full acceptance that is two tokens, x_K and the bonus; after a rejection, one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from headstart.drafters import BuildContext, Row, Weights
from headstart.drafters.growing.chains import GrowingChain
from headstart.drafters.growing.own_cache import CachedText, OwnCacheDrafter
from headstart.drafters.growing.policy import MOST, GrowingDrafter, policy_of
from headstart.drafters.growing.trees import GrowingTree
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.types import Draft, TreeKind

WEIGHTS: Weights = "model"

LONGEST = 12
"""Tokens of the longest chain."""


class DraftModel(GrowingDrafter, OwnCacheDrafter):
    """Chains drawn from a draft LM; a greedy request gets the argmax chain, which is a point mass. Or trees.

    Args:
        runner: the draft.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        budget: nodes where nobody chooses; None is a chain of 5, or a tree of 32.
        chunk: tokens that the draft reads in one forward.
        tree: "none" for chains, "top-k" for dynamic trees of the likeliest nodes (point masses, at any temperature),
            "sampled" for static trees whose shape is learnt, "mixed" for what suits a request.
        width, depth: of trees, see `TreePolicy`.
    """

    def __init__(
        self,
        runner: ModelRunner,
        *,
        name: str,
        vocab_size: int,
        slots: int,
        budget: int | None = None,
        chunk: int = 512,
        tree: TreeKind = "none",
        width: int = 8,
        depth: int | None = None,
    ) -> None:
        policy = policy_of(tree, chain=(5, LONGEST), trees=(32, MOST), width=width, depth=depth)
        GrowingDrafter.__init__(self, policy, budget)
        OwnCacheDrafter.__init__(self, runner, slots, chunk)
        self.name = name
        self._vocab_size = vocab_size

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        memories = [self._memory(row) for row in rows]
        rooms = [self._room(row, memory) for row, memory in zip(rows, memories, strict=True)]
        self._catch_up([memory for memory, room in zip(memories, rooms, strict=True) if room > 0 and memory.feed])
        found = self._grow(rows, rooms, memories, self._next, self._level)
        for each in found:
            if isinstance(each, GrowingTree):
                each.memory.tree = Draft(tuple(each.tokens), tuple(each.parents))
        return [each.draft() for each in found]

    def _room(self, row: Row, memory: _Memory) -> int:
        """How many tokens the draft's own context holds beyond the text; none after a token of the target's padding,
        for which the draft has no embedding."""
        if any(token >= self.runner.vocab_size for token in memory.feed):
            return 0
        return self.runner.max_length - len(row.tokens)

    def _memory(self, row: Row) -> _Memory:
        if row.request not in self._memories:
            self._memories[row.request] = _Memory(*self._seat(row, row.tokens))
        memory: _Memory = self._memories[row.request]
        memory.follow(row.tokens, self.cache)
        return memory

    def _next(self, live: Sequence[GrowingChain]) -> Tensor:
        return self._fit(self._read([(chain.memory, chain.tokens[-1:] or chain.memory.feed) for chain in live]))

    def _level(self, live: Sequence[GrowingTree]) -> Tensor:
        if not live[0].tokens:  # all of them begin together
            return self._fit(self._read([(tree.memory, tree.memory.feed) for tree in live]))
        return self._fit(self.runner.forward([tree.segment(tree.memory.slot) for tree in live], self.cache).logits)

    def _fit(self, logits: Tensor) -> Tensor:
        """Draft logits over the target's vocabulary: the two may differ by padding, which is never proposed."""
        missing = self._vocab_size - logits.shape[-1]
        return F.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits[:, : self._vocab_size]


def build(context: BuildContext) -> DraftModel:
    assert context.draft is not None, "a draft model has been read"
    return DraftModel(
        context.draft,
        name=context.name,
        vocab_size=context.target.vocab_size,
        slots=context.slots,
        **context.given("budget", "tree"),
    )


class _Memory(CachedText):
    """What the draft's cache holds of one request, and what it must still read."""

    def __init__(self, slot: int, cached: Sequence[int], salt: str) -> None:
        super().__init__(slot, cached, salt)
        self.tree = Draft()
        """The nodes whose keys and values lie as scratch behind those of `cached`."""
        self._committed = len(cached)

    def follow(self, tokens: Sequence[int], cache: Slots) -> None:
        """Compare with the committed tokens; only what is newer than the last time can differ."""
        same = min(self._committed, len(self.cached))
        # x0 is always fed anew: its logits are the first draft's law
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
