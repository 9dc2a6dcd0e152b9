"""Growing drafts from a target's own first layers, on the target's own cache, or ahead of it on one of their own.

The first layers' keys and values of the committed text are the target's, and those of the guesses are scratch that the
verifying forward writes again, with the same numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeVar

from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.base.options import check_number
from headstart.drafters import BuildContext, Row, capabilities
from headstart.drafters.growing.grow import GrowingChain, Residual
from headstart.drafters.growing.own_model import DraftedText, ForeseeingModel
from headstart.drafters.growing.policy import MOST, GrowingDrafter, policy_of
from headstart.drafters.growing.tree import GrowingTree
from headstart.model.cache import Slots
from headstart.model.packed import Forward, Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft, TreeKind

LONGEST = 8
"""Tokens of the longest chain."""


def check_exit(target: ModelRunner, layer: int | None) -> None:
    """Refuse a target that cannot be left after so many layers.

    Raises:
        UnsupportedModel: it cannot; the message says why.
    """
    if not target.can_exit:
        raise UnsupportedModel(
            f"{target.config.model_type} runs through transformers' own modules, which cannot be left early",
            hint="early exit needs headstart's own decoder; use another drafter, such as 'suffix'",
        )
    if layer is not None and layer >= target.layers:
        raise UnsupportedModel(
            f"the target has {target.layers} layers, which cannot be left after {layer}",
            hint=f"choose a layer from 1 to {target.layers - 1}",
        )
    if target.layers < 2:
        raise UnsupportedModel("a target of one layer cannot be left early", hint="use another drafter")


class FirstLayersDrafter(GrowingDrafter):
    """Chains or trees of the first layers' guesses. A subclass says what these are, in `logits`.

    Args:
        budget: nodes where the user chooses no number; None is a chain of 4, or a tree of 16.
        tree, width, depth, residual: as of a draft model.
    """

    _cache: Slots | None = None

    def __init__(
        self,
        *,
        budget: int | None,
        tree: TreeKind,
        width: int = 8,
        depth: int | None = None,
        residual: Residual | None = None,
    ) -> None:
        if budget is not None:
            check_number("budget", budget, low=0, integer=True)
        policy = policy_of(tree, chain=(4, LONGEST), trees=(16, MOST), width=width, depth=depth, residual=residual)
        super().__init__(policy, budget)

    @abstractmethod
    def attach(self, target: ModelRunner, cache: Slots) -> None:
        """Take the target, and its cache as `_cache`."""

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        begins = [self._attached.lengths[row.slot] for row in rows]
        rooms = [self._room(*each) for each in zip(rows, begins, strict=True)]
        try:
            return [each.draft() for each in self._grow(rows, rooms, rows, self._next, self._level)]
        finally:
            for row, begin in zip(rows, begins, strict=True):
                self._attached.rewind(row.slot, begin)

    def _room(self, row: Row, begin: int) -> int:
        """Places of the slot beyond the text; none while a prompt is still unread, because a draft needs its keys."""
        room = min(self._attached.scratch_room(row.slot) - 1, self._attached.most_drafted)
        return room if begin == len(row.tokens) - 1 else 0

    def _next(self, live: Sequence[GrowingChain]) -> Tensor:
        return self._read([(guess.row, (guess.tokens or guess.row.tokens)[-1]) for guess in live])

    def _level(self, live: Sequence[GrowingTree]) -> Tensor:
        if not live[0].tokens:  # all of them begin together
            return self._read([(tree.row, tree.row.tokens[-1]) for tree in live])
        return self.logits([tree.segment(tree.row.slot) for tree in live], self._attached)

    def _read(self, feeds: Sequence[tuple[Row, int]]) -> Tensor:
        """Feed a token to each slot and keep it for now; returns the logits after it."""
        cache = self._attached
        logits = self.logits([Segment(row.slot, (token,)) for row, token in feeds], cache)
        for row, _ in feeds:
            cache.keep(row.slot, 1)
        return logits

    @property
    def _attached(self) -> Slots:
        """The target's cache."""
        assert self._cache is not None, "a drafter is attached before it drafts"
        return self._cache

    @abstractmethod
    def logits(self, segments: Sequence[Segment], cache: Slots) -> Tensor:
        """The logits [R, V] of the judged rows, by the first layers, on a cache of the target's kind."""


_D = TypeVar("_D", bound=FirstLayersDrafter)


def placed(made: _D, context: BuildContext) -> _D | FirstLayersAhead:
    """The drafter as it is, or on a cache of its own where it is to run beside the target."""
    return FirstLayersAhead(made, context.target, slots=context.slots) if context.apart else made


class FirstLayersAhead(ForeseeingModel):
    """First layers that can draft ahead: while the target runs, its cache must be left alone, so this has a cache of
    its own, for which the first layers read every text a second time. Its drafts are those of `inner`.

    Args:
        inner: the drafter that knows the first layers.
        target: whose layers these are.
        slots: requests that run at once.
    """

    def __init__(self, inner: FirstLayersDrafter, target: ModelRunner, *, slots: int) -> None:
        model = _FirstLayers(inner, target)
        super().__init__(model, inner.policy, vocab_size=target.vocab_size, slots=slots, budget=inner.default_budget)
        self.inner = inner
        self.name = inner.name

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        self.inner.attach(target, cache)
        super().attach(target, cache)

    def _room(self, row: Row, memory: DraftedText) -> int:
        """As in turn: nothing is drafted in the step in which the target reads the prompt."""
        return 0 if len(row.feed) > 1 else super()._room(row, memory)


class _FirstLayers:
    """A target's first layers and their way out, as a model."""

    weights_in_words = ""

    def __init__(self, inner: FirstLayersDrafter, target: ModelRunner) -> None:
        self._inner = inner
        self.vocab_size, self.max_length = target.vocab_size, target.max_length
        self.new_cache, self.width_invariant = target.new_cache, target.width_invariant

    def forward(self, segments: Sequence[Segment], cache: Slots) -> Forward:
        return Forward(self._inner.logits(segments, cache))

    def weights(self) -> Iterable[Tensor]:
        return capabilities.weights(self._inner)
