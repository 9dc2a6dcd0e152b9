"""Gemma 4's assistant: the small model that is published beside a Gemma 4 drafts on the target's own keys and values.

It has no cache and reads no prompt. All it needs of a text are the target's cache and the target's state of the last
token there, which comes with every step. From that state and the pending token it guesses the next one, and goes on
with its own state in place of the target's. Drafts are chains or trees, at any temperature; nodes of a tree know of
those above them by the state alone, so that a level is one forward however it branches. Where centroids leave tokens
out, their probability is 0 in its distribution, which keeps the rule exact.

Source: transformers 5.23, `SinglePositionMultiTokenCandidateGenerator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.base.options import check_number
from headstart.drafters import BuildContext, Observation, Row, Weights
from headstart.drafters.growing.grow import GrowingChain
from headstart.drafters.growing.last_states import LastStates
from headstart.drafters.growing.policy import GrowingDrafter, policy_of, usual_tree
from headstart.drafters.growing.tree import GrowingTree
from headstart.model.cache import Slots
from headstart.model.decoders.parts import embedding_factor
from headstart.model.heads.gemma4_assistant import AssistantHead, TextSeen
from headstart.model.heads.gemma4_assistant_checkpoint import is_assistant as recognises
from headstart.model.heads.gemma4_assistant_checkpoint import read
from headstart.model.recipes import recipe_of
from headstart.model.runner import ModelRunner
from headstart.types import Draft, TreeKind

__all__ = ["WEIGHTS", "AssistantDrafter", "build", "recognises"]

WEIGHTS: Weights = "head"

CHAIN, LONGEST = 4, 12
"""Tokens of a chain where nobody chooses, and of the longest."""
TREE, NODES = 24, 60
"""The same of the nodes of a tree."""
WIDTH = 8
"""Nodes that a dynamic tree expands in a level, and children of each."""


class AssistantDrafter(GrowingDrafter):
    """Drafts of one assistant, on the cache of the target that it is attached to.

    Args:
        head: ready to run.
        layers: of the target, whose final state is tapped.
        budget: nodes where nobody chooses; None takes what the kind of draft usually has.
        tree: the kind of drafts.
    """

    def __init__(
        self,
        head: AssistantHead,
        *,
        layers: int,
        budget: int | None = None,
        tree: TreeKind = "mixed",
        name: str = "gemma4-assistant",
    ) -> None:
        super().__init__(policy_of(tree, chain=(CHAIN, LONGEST), trees=(TREE, NODES), width=WIDTH), budget)
        check_number("budget", self.default_budget, low=0, integer=True)
        self.name = name
        self.taps = (layers,)
        self.head = head
        self._cache: Slots | None = None
        self._last = LastStates(layers)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        runner: ModelRunner,
        *,
        budget: int | None = None,
        tree: TreeKind | None = None,
        name: str = "gemma4-assistant",
    ) -> AssistantDrafter:
        """Read an assistant for this target. tree: None takes trees, but chains for a small target.

        Raises:
            ModelNotFound, PickleCheckpoint, UnsupportedModel: see `gemma4_assistant_checkpoint.read`.
        """
        checkpoint = read(folder, runner.config)
        embedding = runner.model.get_input_embeddings().weight.detach()
        factor = embedding_factor(recipe_of(runner.config), runner.dtype)
        head = AssistantHead(checkpoint, embedding, factor, runner.max_length)
        kind = usual_tree(runner.config) if tree is None else tree
        return cls(head, layers=runner.layers, budget=budget, tree=kind, name=name)

    def weights(self) -> Iterable[Tensor]:
        return self.head.weights()

    @property
    def weights_in_words(self) -> str:
        return self.head.weights_in_words

    def attach(self, target: ModelRunner, cache: Slots) -> None:  # noqa: ARG002 -- the head was made for it
        missing = {attention.keys_of for attention in self.head.recipe.attentions} - set(cache.keys)
        if missing:
            raise UnsupportedModel(
                f"{self.name} attends to keys of the target's layers {sorted(map(str, missing))}, which are not kept",
                hint="leave the choice of the target's decoder to 'auto'",
            )
        self._cache = cache

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        assert self._cache is not None, "a drafter is attached before it drafts"
        seen = TextSeen(self._cache, self.head.dtype)
        memories = [self._begin(row) for row in rows]
        rooms = [self._room(row) if memory else 0 for row, memory in zip(rows, memories, strict=True)]
        grown = self._grow(rows, rooms, memories, partial(self._next, seen), partial(self._level, seen))
        return [each.draft() for each in grown]

    def observe(self, observation: Observation) -> None:
        super().observe(observation)
        self._last.observe(observation)

    def release(self, request: int) -> None:
        super().release(request)
        self._last.release(request)

    def _begin(self, row: Row) -> dict[int, Tensor]:
        """The states that a draft goes on from: at first that of the token before x0; none where it is not known."""
        state = self._last.before(row)
        return {} if state is None else {_BEFORE: state}

    def _room(self, row: Row) -> int:
        """How many nodes a draft may feed: none while the cache holds less than the text before x0."""
        assert self._cache is not None, "a drafter is attached before it drafts"
        if self._cache.lengths[row.slot] != len(row.tokens) - 1:
            return 0
        return max(0, min(self.limit, self._cache.capacity - len(row.tokens)))

    def _next(self, seen: TextSeen, live: Sequence[GrowingChain]) -> Tensor:
        """The logits after each chain's last token, or after x0."""
        last = len(live[0].tokens) - 1
        fed = [[(last, last - 1)] if last >= 0 else [_X0] for _ in live]
        return self._step(seen, live, fed)

    def _level(self, seen: TextSeen, live: Sequence[GrowingTree]) -> Tensor:
        """The logits after each tree's fresh nodes, or after x0."""
        fed = [[(node, tree.parents[node]) for node in tree.fresh] if tree.tokens else [_X0] for tree in live]
        return self._step(seen, live, fed)

    def _step(
        self,
        seen: TextSeen,
        live: Sequence[GrowingChain | GrowingTree],
        fed: Sequence[Sequence[tuple[int, int]]],
    ) -> Tensor:
        """Feed nodes (index, that of the parent) of each draft; returns the logits after them."""
        rows, states = [], []
        for each, nodes in zip(live, fed, strict=True):
            for node, parent in nodes:
                rows.append((each.row.slot, each.row.tokens[-1] if node == -1 else each.tokens[node]))
                states.append(each.memory[parent])
        output = self.head.run(rows, torch.stack(states), seen)
        left = iter(output.states)
        for each, nodes in zip(live, fed, strict=True):
            each.memory.update({node: next(left) for node, _ in nodes})
        return output.logits


def build(context: BuildContext) -> AssistantDrafter:
    return AssistantDrafter.load(
        context.source, context.target, budget=context.budget, tree=context.tree, name=context.name
    )


_BEFORE = -2
"""Where the states of a draft have that of the token before x0, which is node -1."""
_X0 = (-1, _BEFORE)
