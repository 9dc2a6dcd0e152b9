"""What a batch size changes on a machine of given bandwidth and arithmetic: c, v(n) and the speedup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headstart import theory
from headstart.base.options import check_number
from headstart.theory import BestK, DraftCost, Machine, Model, StepCosts
from headstart.theory.costs import DRAFT

_CURVE, _FAR = 40, 4096


@dataclass(frozen=True, slots=True)
class Deployment:
    """draft: a model on the same machine, or c, the same at every batch size. context: cached tokens per request."""

    machine: Machine
    target: Model
    draft: Model | float
    context: float = 0.0

    def costs(self, batch: int) -> StepCosts:
        """Seconds of steps of a whole batch, by rows of each of its requests."""
        check_number("batch", batch, low=1, integer=True)
        machine, target = self.machine, self.target
        read = target.parameters * target.bytes_per_weight + batch * self.context * target.kv_bytes_per_token
        # One straight line up to the rows that take longer to compute than the weights to read, another one beyond
        bend = max(1, int(read / machine.bandwidth * machine.flops / (2 * target.parameters * batch)))
        rows = np.array(sorted({1, bend, bend + 1, bend + 2}))
        seconds = theory.forward_seconds(machine, target, rows, batch, self.context)
        if isinstance(self.draft, Model):
            token = theory.forward_seconds(machine, self.draft, 1, batch, self.context)
        else:
            token = self.draft * float(seconds[0])
        drafts = {DRAFT: DraftCost(token=token)}
        return StepCosts(tuple(zip(rows.tolist(), seconds.tolist(), strict=True)), drafts=drafts)


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
    costs = deployment.costs(size)
    c, v = costs.c(), costs.v
    plain = size / theory.forward_seconds(deployment.machine, deployment.target, 1, size, deployment.context)
    gained = theory.speedup(alpha, k, c, v)
    best = theory.best_k(alpha, c, v, most=most)
    return BatchRow(size, plain, c, v(k + 1), gained, plain * gained, best)
