"""Leaving the target room on the tokens for which drafts are made ahead: Saguaro's sampling.

Where a drawn token is rejected, the bonus token is drawn from what the target has more of than the draft,
max(p - q, 0). A draft that draws its likeliest tokens a little less often leaves more of that on just those tokens, and
they are the ones for which the next drafts are made: more outcomes are foreseen, for some acceptance. The distribution
that a token is drawn from is still the one that it is judged with, so the target's distribution is kept whatever the
shares.

Source: Saguaro (arXiv:2603.03251).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from headstart.base.options import check_number


@dataclass(frozen=True, slots=True)
class Residual:
    """How much is left to the target.

    Raises:
        InvalidOption: a number out of its range.
    """

    share: float
    """C: of its probability, what each of the likeliest tokens keeps, before the distribution is made to sum to 1
    again."""
    tokens: int = 4
    """How many of the likeliest tokens."""

    def __post_init__(self) -> None:
        check_number("draft_residual", self.share, above=0, high=1)
        check_number("tokens", self.tokens, low=1, integer=True)

    def lower(self, q: Tensor) -> Tensor:
        """The distribution [V] that is drawn from instead of q [V]."""
        likeliest = q.topk(min(self.tokens, len(q))).indices
        lowered = q.clone()
        lowered[likeliest] *= self.share
        return lowered / lowered.sum()
