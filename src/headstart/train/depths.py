"""Guesses of several depths, laid end to end: what a parallel draft LM reads in training.

Depth 0 is the text itself. A row (t, d) of a further depth is a mask token at position t + d the d-th mask
behind token t: it sees the text up to t and the masks of its own chain before it, and its label is the target's
distribution after token t + d. Deep guesses are trained on fewer rows: each depth keeps a share of the rows of the one
before, so that the masks before a row are always there.

Source: PARD (arXiv:2504.18583, sections 3.2 and 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

DEPTHS = 8
"""Guesses in a row that a parallel draft is trained on by default."""


def shares(depths: int, keep: float, floor: float) -> list[float]:
    """The share of the rows that each depth keeps: max(keep^d, floor)."""
    return [max(keep**depth, floor) for depth in range(depths)]


@dataclass(frozen=True, eq=False)
class Layout:
    """The rows of a window."""

    anchors: Tensor
    """Of each row, the token t of the text that its chain follows [R]."""
    depths: Tensor
    """Of each row, its depth [R]; the rows of depth 0 are first, and are the text."""

    @classmethod
    def of(cls, length: int, kept: Sequence[float], chance: torch.Generator | None = None) -> Layout:
        """The rows of a window of so many tokens. kept: the share of the rows of each depth. chance: which of them;
        None for all whose label is in the window, whatever the shares."""
        order = torch.arange(length) if chance is None else torch.randperm(length, generator=chance)
        anchors = []
        for depth, share in enumerate(kept):
            # a prefix of one order: each depth keeps some of the rows of the depth before
            rows = order if depth == 0 or chance is None else order[: max(1, round(share * length))]
            anchors.append(rows[rows + depth < length].sort().values)
        depths = [torch.full_like(rows, depth) for depth, rows in enumerate(anchors)]
        return cls(torch.cat(anchors), torch.cat(depths))

    def __len__(self) -> int:
        return len(self.anchors)

    @cached_property
    def positions(self) -> Tensor:
        """Of each row, its position [R], which is also that of its label among the target's distributions."""
        return self.anchors + self.depths

    def tokens(self, ids: Tensor, mask: int) -> Tensor:
        """What the rows read [n, R], of windows ids [n, T]."""
        return torch.where(self.depths > 0, mask, ids[:, self.anchors])

    def visible(self) -> Tensor:
        """Which rows each row sees, bool [R, R]."""
        text = self.depths == 0
        above = text & (self.anchors <= self.anchors[:, None])
        chain = ~text & (self.anchors == self.anchors[:, None]) & (self.depths <= self.depths[:, None])
        return above | chain

    def mask(self, dtype: torch.dtype) -> Tensor:
        """What is added to the scores [1, 1, R, R]."""
        seen = self.visible()
        return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)[None, None]
