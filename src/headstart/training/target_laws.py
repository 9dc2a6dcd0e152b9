"""The target's true laws over a draft vocabulary, from its last states.

A law is exp(W h - log_z): h is the target's last state, W the rows of its output matrix that belong to the draft
vocabulary, and log_z the logarithm of the sum of exponentials over the whole vocabulary. The logits of the whole
vocabulary are needed once, and never kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

ROWS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class StateLaws:
    """The laws on some windows: last [B, T, d], log_z [B, T], and what makes logits [..., draft V] of states."""

    last: Tensor
    log_z: Tensor
    output: Callable[[Tensor], Tensor]

    def log_p(self, window: int, rows: Tensor) -> Tensor:
        """True log-probabilities [rows, draft V]."""
        return self.output(self.last[window, rows]).float().sub_(self.log_z[window, rows, None])


def log_sums(logits: Tensor) -> Tensor:
    """The logarithm of the sum of exponentials of each row, [B, T, V] to [B, T], in float32.

    `torch.logsumexp` takes ten times as long on a processor; the log-softmax of one token gives the same number.
    """
    rows = torch.split(logits.flatten(0, 1), ROWS_AT_ONCE)
    found = [part[:, 0].float() - part.float().log_softmax(-1)[:, 0] for part in rows]
    return torch.cat(found).view(logits.shape[:2])
