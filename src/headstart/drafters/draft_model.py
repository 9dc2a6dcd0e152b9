"""A small causal LM as drafter: K cheap forwards guess a chain of K tokens, or a tree of K levels.

Chains are sampled from its own law q; trees are grown as `trees` says. It runs on the same runner and cache as the
target. Its cache is brought up to date by comparing tokens, not by being told: whatever was accepted, rejected or
emitted since, the longest common prefix stays, then what the text has in common with a path of the last tree, and the
rest is fed. After a full acceptance that is two tokens, x_K and the bonus; after a rejection, one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from headstart.drafters import BuildContext, Drafter, Observation, Row, Weights
from headstart.drafters.growing.chains import Guess, draw
from headstart.drafters.growing.policy import MOST, Tree, Ways, check_tree
from headstart.drafters.growing.trees import Guess as TreeGuess
from headstart.drafters.growing.trees import TopK, grow
from headstart.model.cache import Slots
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.theory.trees import Shape
from headstart.types import Draft

WEIGHTS: Weights = "model"


class DraftModel(Drafter):
    """Chains drawn from a draft LM; a greedy request gets the argmax chain, which is a point mass. Or trees.

    A chain ends before a token of which the draft itself is unsure: one whose law gives its likeliest token less
    than `confidence` (the first token is always proposed). Whether it ends is a function of the text up to there, so
    each position is still judged against the law its token was drawn from, and the rule stays exact.

    tree: "none" for chains, "top-k" for dynamic trees of the likeliest nodes (point masses, at any temperature),
    "sampled" for static trees whose shape is learnt, "mixed" for what suits a request. width, depth: of trees, see
    `Ways`. budget: nodes where nobody chooses; None is a chain of 5, or a tree of 32.
    """

    limit = 12

    def __init__(
        self,
        runner: ModelRunner,
        *,
        name: str,
        vocab_size: int,
        slots: int,
        budget: int | None = None,
        confidence: float = 0.0,
        chunk: int = 512,
        tree: Tree = "none",
        width: int = 8,
        depth: int | None = None,
    ) -> None:
        check_tree(tree)
        self.name = name
        self._ways: Ways | None = None
        self.default_budget = 5 if budget is None else budget
        if tree != "none":
            self._ways = Ways(tree, width=width, depth=depth)
            self.default_budget = 32 if budget is None else budget
            self.limit = MOST
            self.draws = tree != "top-k"  # which are point masses
        self.runner = runner
        self.cache = runner.new_cache(slots)
        self._vocab_size = vocab_size
        self._chunk = chunk
        self._confidence = confidence
        self._rows: dict[int, _Row] = {}

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        return () if self._ways is None else self._ways.sizes

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        rows = [self._row(context) for context in contexts]
        rooms = [self._room(context, row) for context, row in zip(contexts, rows, strict=True)]
        self._catch_up([row for row, room in zip(rows, rooms, strict=True) if room > 0 and row.feed])
        if self._ways is None:
            guesses = [_Guess(*each) for each in zip(contexts, rows, rooms, strict=True)]
            draw(guesses, self._next, self._sure if self._confidence > 0 else None)
            return [guess.draft() for guess in guesses]
        trees = []
        for context, row, room in zip(contexts, rows, rooms, strict=True):
            budget = min(context.budget.nodes, MOST) if room > 0 else 0
            trees.append(_Tree(context, row, budget, self._ways.way(context, budget), room))
        grow(trees, self._level)
        for tree in trees:
            tree.row.tree = Draft(tuple(tree.tokens), tuple(tree.parents))
        return [tree.draft() for tree in trees]

    def observe(self, observation: Observation) -> None:
        if self._ways is not None and observation.step.draft.source == self.name:
            self._ways.observe(observation.step)

    def release(self, request: int) -> None:
        if self._ways is not None:
            self._ways.release(request)
        row = self._rows.pop(request, None)
        if row is not None:
            self.cache.release(row.slot)

    def _room(self, context: Row, row: _Row) -> int:
        """How many tokens the draft's own context holds beyond the text: there this drafter has nothing to say.

        Nor does it after a token of the target's padding, for which it has no embedding.
        """
        if any(token >= self.runner.vocab_size for token in row.feed):
            return 0
        return self.runner.max_length - len(context.tokens)

    def _row(self, context: Row) -> _Row:
        if context.request not in self._rows:
            self._rows[context.request] = _Row(self.cache.acquire())
        row = self._rows[context.request]
        row.follow(context.tokens, self.cache)
        return row

    def _catch_up(self, live: Sequence[_Row]) -> None:
        """Read long unread stretches (a prompt) in chunks, so that a forward's size is bounded."""
        for row in live:
            while len(row.feed) > self._chunk:
                chunk, rest = row.feed[: self._chunk], row.feed[self._chunk :]
                self._forward([(row, chunk)])
                row.feed = rest

    def _forward(self, feeds: Sequence[tuple[_Row, list[int]]]) -> Tensor:
        """Feed tokens to each row and keep them; returns the logits [B, V] after the last of each."""
        out = self.runner.forward([Segment(row.slot, tuple(feed)) for row, feed in feeds], self.cache)
        for row, feed in feeds:
            self.cache.keep(row.slot, len(feed))
            row.cached += feed
        return self._fit(out.logits)

    def _next(self, live: Sequence[_Guess]) -> Tensor:
        return self._forward([(guess.row, guess.tokens[-1:] or guess.row.feed) for guess in live])

    def _level(self, live: Sequence[_Tree]) -> Tensor:
        if not live[0].tokens:  # all of them begin together
            return self._forward([(tree.row, tree.row.feed) for tree in live])
        return self._fit(self.runner.forward([tree.segment(tree.row.slot) for tree in live], self.cache).logits)

    def _sure(self, logits: Tensor) -> list[bool]:
        """For each row [V], whether its likeliest token has at least the wanted probability (before processors)."""
        wide = logits.float()
        likeliest = (wide.amax(-1) - wide.logsumexp(-1)).exp()
        return [float(p) >= self._confidence for p in likeliest.tolist()]

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


class _Row:
    """What the draft's cache holds of one request, and what it must still read.

    tree: the nodes whose keys and values lie as scratch behind those of `cached`.
    """

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.cached: list[int] = []
        self.feed: list[int] = []
        self.tree = Draft()
        self._committed = 0

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


class _Guess(Guess):
    """A guess that knows its request's place in the draft's cache."""

    def __init__(self, context: Row, row: _Row, room: int) -> None:
        super().__init__(context, min(context.budget.nodes, room))
        self.row = row


class _Tree(TreeGuess):
    """The same of a tree."""

    def __init__(self, context: Row, row: _Row, budget: int, way: TopK | Shape, room: int) -> None:
        super().__init__(context, budget, way, room)
        self.row = row
