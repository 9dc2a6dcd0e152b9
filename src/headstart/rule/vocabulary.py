"""A part of the target's vocabulary: what a drafter with fewer tokens than the target can propose.

Its logits and distributions have a column for each of these tokens alone, so that filters, softmax and draws take a
part of the time. Processors know the target's tokens, and are told which of them the columns are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headstart.rule.processors import Processor


class PartialVocabulary:
    """ids: [W] int64, the token of each column; none twice. size: V, of the target's vocabulary."""

    def __init__(self, ids: Tensor, size: int) -> None:
        self.size = size
        self.ids = ids.cpu()
        self._given = ids
        self.numbers: NDArray[np.int64] = np.ascontiguousarray(self.ids.numpy(), dtype=np.int64)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """The token of each column: a look at a tuple takes a tenth of the time of one at a tensor."""
        return tuple(self.ids.tolist())

    def spread(self, row: NDArray[Any], elsewhere: float) -> NDArray[Any]:
        """[W] to [V]."""
        found = np.full(self.size, elsewhere, dtype=row.dtype)
        found[self.numbers] = row
        return found

    def edit(self, row: NDArray[np.float32], processors: Sequence[Processor]) -> None:
        """Change logits [W] in place by processors, which know the whole vocabulary."""
        usual = Processor.edit_columns
        if all(getattr(type(each), "edit_columns", usual) is not usual for each in processors):
            for processor in processors:
                processor.edit_columns(row, self.numbers, self.size)
            return
        whole = self.spread(row, -math.inf)
        for processor in processors:
            processor.edit(whole)
        row[:] = whole[self.numbers]

    def widened(self, logits: Tensor) -> Tensor:
        """[R, W] to [R, V], with -inf for the other tokens."""
        wide = logits.new_full((len(logits), self.size), -math.inf)
        return wide.index_copy_(1, self._given.to(logits.device), logits)

    def narrowed(self, logits: Tensor) -> Tensor:
        """[R, V] to [R, W]."""
        return logits.index_select(1, self._given.to(logits.device))
