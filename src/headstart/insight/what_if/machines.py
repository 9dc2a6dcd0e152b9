"""What a batch size changes on a machine of given bandwidth and arithmetic: c, v(n), what drafting is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headstart import theory
from headstart.insight.what_if.answers import Costs
from headstart.theory import BestK, Machine, Model

_CURVE, _FAR = 40, 4096


@dataclass(frozen=True, slots=True)
class Deployment:
    """draft: a model on the same machine, or c, the same at every batch size. context: cached tokens per request."""

    machine: Machine
    target: Model
    draft: Model | float
    context: float = 0.0

    def costs(self, batch: int, most: int) -> Costs:
        """c and v(n) of a batch."""
        plain = theory.forward_seconds(self.machine, self.target, 1, batch, self.context)
        c = self.draft
        if isinstance(c, Model):
            c = theory.forward_seconds(self.machine, c, 1, batch, self.context) / plain
        return Costs(float(c), theory.verify_cost_of(self.machine, self.target, batch, self.context), most)


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch size. plain, speculative: tokens per second of all its requests together; verify: v(K+1)."""

    batch: int
    plain: float
    c: float
    verify: float
    speedup: float
    speculative: float
    best: BestK


@dataclass(frozen=True, slots=True)
class Batches:
    """free_up_to: the batch size up to which K + 1 rows cost no more than one (infinite: always). pays_up_to: up to
    which every batch gains; `MOST_BATCH` if nothing else was met. curve: sizes from 1 on, for a plot."""

    alpha: float
    k: int
    rows: tuple[BatchRow, ...]
    curve: tuple[BatchRow, ...]
    free_up_to: float
    pays_up_to: int


def batches(deployment: Deployment, alpha: float, k: int, sizes: Sequence[int], most: int) -> Batches:
    """What each of these batch sizes gains by K draft tokens per request and round."""
    machine, target, context = deployment.machine, deployment.target, deployment.context
    pays = theory.paying_batch(machine, target, alpha, k, draft=deployment.draft, context=context)
    far = max(*sizes, min(2 * pays, _FAR), 2)
    steps = sorted({round(size) for size in far ** (np.arange(_CURVE) / (_CURVE - 1))})
    return Batches(
        alpha,
        k,
        tuple(_row(deployment, alpha, k, size, most) for size in sizes),
        tuple(_row(deployment, alpha, k, size, most) for size in steps),
        theory.crossover_batch(machine, target, k, context),
        pays,
    )


def _row(deployment: Deployment, alpha: float, k: int, size: int, most: int) -> BatchRow:
    costs = deployment.costs(size, most)
    plain = size / theory.forward_seconds(deployment.machine, deployment.target, 1, size, deployment.context)
    gained = theory.speedup(alpha, k, costs.c, costs.v)
    best = theory.best_k(alpha, costs.c, costs.v, most=most)
    return BatchRow(size, plain, costs.c, theory.verify_cost(costs.v, k + 1), gained, plain * gained, best)
