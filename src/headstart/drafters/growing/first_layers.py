"""Growing drafts from a target's own first layers, on the target's own cache.

The first layers' keys and values of the committed text are the target's, and those of the guesses are scratch that the
verifying forward writes again, with the same numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor

from headstart.drafters import Row
from headstart.drafters.growing.chains import GrowingChain
from headstart.drafters.growing.policy import GrowingDrafter
from headstart.drafters.growing.tree import GrowingTree
from headstart.errors import UnsupportedModel
from headstart.model.cache import Slots
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft


def check_exit(target: ModelRunner, layer: int | None) -> None:
    """Refuse a target that cannot be left after so many layers.

    Raises:
        UnsupportedModel: what stands in the way.
    """
    if not target.can_exit:
        raise UnsupportedModel(
            f"{target.config.model_type} runs through transformers' own modules, which cannot be left early",
            hint="early exit works for Llama, Mistral, Qwen2 and Qwen3; use another drafter, such as 'suffix'",
        )
    if layer is not None and layer >= target.layers:
        raise UnsupportedModel(
            f"the target has {target.layers} layers, which cannot be left after {layer}",
            hint=f"choose a layer from 1 to {target.layers - 1}",
        )
    if target.layers < 2:
        raise UnsupportedModel("a target of one layer cannot be left early", hint="use another drafter")


class FirstLayersDrafter(GrowingDrafter):
    """Chains or trees of the first layers' guesses. A subclass says what these are, in `_run`."""

    _cache: Slots | None = None

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        assert self._cache is not None, "a drafter is attached before it is asked"
        begins = [self._cache.lengths[row.slot] for row in rows]
        rooms = [self._room(*each) for each in zip(rows, begins, strict=True)]
        try:
            return [each.draft() for each in self._grow(rows, rooms, rows, self._next, self._level)]
        finally:
            for row, begin in zip(rows, begins, strict=True):
                self._cache.rewind(row.slot, begin)

    def _room(self, row: Row, begin: int) -> int:
        """Places of the slot beyond the text; none while a prompt is still unread, because a draft needs its keys."""
        assert self._cache is not None, "a drafter is attached before it is asked"
        return self._cache.capacity - len(row.tokens) if begin == len(row.tokens) - 1 else 0

    def _next(self, live: Sequence[GrowingChain]) -> Tensor:
        return self._read([(guess.row, (guess.tokens or guess.row.tokens)[-1]) for guess in live])

    def _level(self, live: Sequence[GrowingTree]) -> Tensor:
        if not live[0].tokens:  # all of them begin together
            return self._read([(tree.row, tree.row.tokens[-1]) for tree in live])
        return self._run([tree.segment(tree.row.slot) for tree in live])

    def _read(self, feeds: Sequence[tuple[Row, int]]) -> Tensor:
        """Feed a token to each slot and keep it for now; returns the logits after it."""
        assert self._cache is not None, "a drafter is attached before it is asked"
        logits = self._run([Segment(row.slot, (token,)) for row, token in feeds])
        for row, _ in feeds:
            self._cache.keep(row.slot, 1)
        return logits

    @abstractmethod
    def _run(self, segments: Sequence[Segment]) -> Tensor:
        """The logits [R, V] of the judged rows, by the first layers."""
