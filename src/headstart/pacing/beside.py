"""What drafting beside the target's forward saves and costs, learnt from the steps of one source.

Two figures: the share of its drafting that the target need not wait for, and how much longer a forward takes while the
source drafts beside it. A source that always drafts in turn has neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headstart.theory.costs import DraftCost


@dataclass(frozen=True)
class Rates:
    """How fast the two figures change. Fixed: nobody has to choose these."""

    step: float = 0.05
    """Share of the way to what the last draft showed."""
    forward_step: float = 0.15
    """Share of the way to what the last forward showed, as far as it shows anything: most do so seldom."""
    first_step: float = 0.5
    """The same of the very first one; in between it falls as one over their number."""
    max_log_slowing: float = 1.5
    """Most that is ever believed of a forward's slowing, as a logarithm."""


RATES = Rates()


class Beside:
    """The two figures of one source, from those of a profile on."""

    def __init__(self, cost: DraftCost) -> None:
        self.hidden = cost.hidden
        """The share of its drafting that is not waited for, where it drafts ahead."""
        self.log_slowing = math.log1p(cost.slowing)
        """The logarithm of how many times as long a forward takes while the source drafts beside it."""
        self._drafts = self._forwards = 0
        self._recent = 0.0  # share of the steps from which the level of all costs was learnt

    @property
    def slowing(self) -> float:
        """How much longer a forward takes then, as a share."""
        return math.expm1(self.log_slowing)

    def observe_draft(self, waited: float) -> None:
        """A draft that could have been made ahead was waited for, this share of its seconds in turn."""
        step = max(RATES.step, RATES.first_step / (1 + self._drafts))
        self.hidden += step * (1 - min(1.0, max(0.0, waited)) - self.hidden)
        self._drafts += 1

    def observe_forward(self, beside: bool, error: float, level_step: float) -> None:
        """A forward took the logarithm `error` longer than expected. Where all forwards have a drafter beside them, the
        level of all costs has taken that up, and nothing is learnt about this source."""
        self._recent *= 1 - level_step
        if beside:
            change = max(RATES.forward_step, RATES.first_step / (1 + self._forwards)) * (1 - self._recent) * error
            self.log_slowing = min(RATES.max_log_slowing, max(0.0, self.log_slowing + change))
            self._forwards += 1
            self._recent += level_step
