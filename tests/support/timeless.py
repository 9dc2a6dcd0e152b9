"""Adaptive pacing whose decisions depend on no clock: tiny models' own times are all alike, and mostly noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from headstart.drafters import Drafter, capabilities, may_draft
from headstart.pacing.controller import AdaptivePacing, AdaptivePlan
from headstart.pacing.row_state import Asked
from headstart.pacing.source import Source
from headstart.theory.costs import DraftCost, StepCosts
from headstart.types import Step

ROWS = ((1, 0.010), (2, 0.0102), (4, 0.0106), (8, 0.0114), (16, 0.013), (64, 0.014))
"""Rows of a forward and its seconds: costs at which some drafts pay and others do not."""


class Timeless(AdaptivePacing):
    """Believes its costs whatever the clock says, and that deciding takes no time."""

    def __init__(self, sources: Sequence[Source], costs: StepCosts) -> None:
        super().__init__(sources, costs, clock=lambda: 0.0)

    def _learn_costs(self, plan: AdaptivePlan, steps: Sequence[Step], asked_by_step: Sequence[Asked]) -> None:
        pass


CHEAP = ((1, 0.010), (64, 0.01001))
"""Rows that cost next to nothing, so that hardly any draft is too expensive."""


def timeless(
    drafter: Drafter, token: float = 0.001, most: int | None = None, rows: Sequence[tuple[int, float]] = ROWS
) -> Timeless:
    """For a drafter whose every token takes so many seconds. most: the most nodes of a draft."""
    sources = []
    for part in capabilities.parts(drafter):
        limit = capabilities.limit(part) if most is None else min(most, capabilities.limit(part))
        trees = capabilities.sizes(part)
        sizes = tuple(size for size in trees if size[0] <= limit)
        if trees and not sizes:
            sizes = ((limit, min(limit, trees[0][1])),)
        sources.append(Source(part.name, limit, sizes, partial(may_draft, part)))
    costs = {part.name: DraftCost(0.0, token, token / 50, 0.01) for part in capabilities.parts(drafter)}
    return Timeless(sources, StepCosts(tuple(rows), 0.0, costs))
