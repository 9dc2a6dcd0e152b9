"""The target's true distributions over a draft vocabulary, from its last states.

A distribution is exp(W h - log_z): h is the target's last state, W the rows of its output matrix that belong to the
draft vocabulary, and log_z the logarithm of the sum of exponentials over the whole vocabulary. The logits of the whole
vocabulary are needed once, and never kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class StateDistributions:
    """The distributions on some windows: last [B, T, d], log_z [B, T], and what makes logits [..., draft V] of
    states."""

    last: Tensor
    log_z: Tensor
    output: Callable[[Tensor], Tensor]

    def log_p(self, window: int, rows: Tensor) -> Tensor:
        """True log-probabilities [rows, draft V]."""
        return self.output(self.last[window, rows]).float().sub_(self.log_z[window, rows, None])
