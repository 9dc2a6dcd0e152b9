"""The batches of one decoder on the row kernels, of which the last is kept from forward to forward."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from headstart.model.cache import NO_STATES, LayerShape
from headstart.model.decoders.tiled import TiledBatch
from headstart.model.native import structs
from headstart.model.packed import Packed
from headstart.model.planes import StateShape


class TiledBatches:
    """Makes the batches of one decoder. To make one takes as long as a small layer, and a step of decoding asks for
    rows of the cache of the step before: so the last batch is kept, and moves.

    The arguments are those of `TiledBatch`.
    """

    def __init__(
        self,
        windows: Sequence[int | None],
        *,
        shapes: Mapping[int, LayerShape],
        dtype: torch.dtype,
        vocabulary: int,
        positions: int,
        states: Mapping[int, StateShape] = NO_STATES,
    ) -> None:
        self._windows = windows
        self._fixed: dict[str, Any] = {
            "shapes": shapes, "dtype": dtype, "vocabulary": vocabulary, "positions": positions, "states": states,
        }  # fmt: skip
        self._kept: list[TiledBatch] = []

    def take(self, packed: Packed, model: structs.Model) -> TiledBatch:
        """A packed batch, complete but for what decoders add.

        Raises:
            InvalidBatch: see `TiledBatch`.
        """
        batch, outputs = self._take(), model.head.outputs
        if batch is None or batch.outputs != outputs or not batch.move_to(packed):
            count = int(model.layer_count)
            batch = TiledBatch(packed, self._windows, outputs=outputs, layers=count, **self._fixed)
        return batch

    def run(self, batch: TiledBatch, model: structs.Model) -> tuple[torch.Tensor, int]:
        """Run a batch that was taken; returns its logits [R, outputs], and how many experts its rows chose.

        Raises:
            NotEnoughMemory: see `TiledBatch`.
        """
        batch.run(model)
        logits, touched = batch.logits, batch.experts_touched
        if batch.can_move:
            del batch.logits  # they are the caller's alone
            self._kept[:] = [batch]
        return logits, touched

    def again(self) -> TiledBatches:
        """The same, which keep a batch of their own: for another cache, whose rows would throw away the other's."""
        made = copy.copy(self)
        made._kept = []
        return made

    def _take(self) -> TiledBatch | None:
        """The batch that is kept, which is nobody else's meanwhile: another thread may run the same decoder."""
        try:
            return self._kept.pop()
        except IndexError:
            return None
