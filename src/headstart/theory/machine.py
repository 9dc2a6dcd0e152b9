"""What a forward costs on a machine of so many bytes and FLOPs a second: the two-line roofline.

A forward of n rows for each of b requests reads every weight once and the caches once, and multiplies every weight with
b*n rows:

    seconds = max((P w + b L kappa) / bandwidth, 2 P b n / flops) + overhead

P parameters of w bytes, L cached tokens of kappa bytes each. A mixture of experts reads more for more rows: P w is then
multiplied by 1 - s + s D / k, where a share s of what one row reads are its k experts, and all rows together meet D of
them in each layer (`headstart.theory.mixture`). While the first term is the larger, rows are free, and
that is what speculation lives on. Left out: the FLOPs of attention, activations, the processor's own caches, and
kernels that reach neither limit. Measured figures are better wherever there are any. Source: Williams, Waterman,
Patterson, "Roofline: an insightful visual performance model for multicore architectures" (2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headstart.base.options import check_number
from headstart.theory.mixture import DENSE, Routing
from headstart.theory.rounds import expected_tokens
from headstart.theory.values import Real, numbers, plain, scalar, whole

MOST_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's two limits, and what every forward costs besides."""

    bandwidth: float
    """Bytes/s that reading the weights reaches."""
    flops: float
    """FLOP/s that the products reach, in the weights' type."""
    overhead: float = 0.0
    """Seconds of every forward, whatever its size."""

    def __post_init__(self) -> None:
        check_number("bandwidth", self.bandwidth, above=0)
        check_number("flops", self.flops, above=0)
        check_number("overhead", self.overhead, low=0)


@dataclass(frozen=True, slots=True)
class Model:
    """A model's sizes."""

    parameters: float
    """Those that a token meets; of a mixture of experts the active ones."""
    bytes_per_weight: float = 2.0
    kv_bytes_per_token: float = 0.0
    """Of all layers: 2 x layers x KV heads x head size x bytes."""
    routing: Routing = DENSE
    """How many experts rows choose from, and how alike; of a dense model one that all share."""
    expert_share: float = 0.0
    """Of the parameters that a token meets, those of the experts that were chosen for it."""

    def __post_init__(self) -> None:
        check_number("parameters", self.parameters, above=0)
        check_number("bytes_per_weight", self.bytes_per_weight, above=0)
        check_number("kv_bytes_per_token", self.kv_bytes_per_token, low=0)
        check_number("expert_share", self.expert_share, low=0, high=1)

    @property
    def flat(self) -> bool:
        """Whether the weights that a forward reads are the same for any number of rows."""
        return self.routing.dense or not self.expert_share


def forward_seconds(
    machine: Machine, model: Model, rows: ArrayLike = 1, batch: ArrayLike = 1, context: ArrayLike = 0
) -> Real:
    """Seconds of one forward of `rows` rows for each of `batch` requests with `context` cached tokens each."""
    n, b = whole("rows", rows, low=1), whole("batch", batch, low=1)
    return plain(_seconds(machine, model, n, b, numbers("context", context, low=0)))


def batch_speedup(
    machine: Machine,
    target: Model,
    alpha: ArrayLike,
    k: ArrayLike,
    batch: ArrayLike = 1,
    *,
    draft: Model | float,
    context: ArrayLike = 0,
) -> Real:
    """E(alpha, K) t(1, b) / (t(K+1, b) + K d(b)): the speedup of a whole batch, all of whose requests draft K tokens.

    draft: a model that runs on the same machine, one row for each request and step, or c, a step's cost in plain steps
    of the target at the same batch size. Requests that accept less than others do not wait: batches are ragged.
    """
    n, b, length = whole("k", k), whole("batch", batch, low=1), numbers("context", context, low=0)
    plain_step = _seconds(machine, target, np.ones(()), b, length)
    if isinstance(draft, Model):
        step = _seconds(machine, draft, np.ones(()), b, length)
    else:
        step = scalar("draft", draft, low=0) * plain_step
    cost = _seconds(machine, target, n + 1, b, length) + n * step
    return plain(expected_tokens(alpha, k) * plain_step / cost)


def crossover_batch(machine: Machine, model: Model, k: ArrayLike, context: ArrayLike = 0) -> Real:
    """The batch size up to which verifying K + 1 rows takes no longer than reading weights and caches: rows are free.

    b = (P w / bandwidth) / (2 P (K+1) / flops - L kappa / bandwidth), not rounded; infinite where the caches of each
    request take longer to read than its rows to compute. In a mixture of experts further rows are never free: 0.
    """
    if not model.flat:
        return plain(np.zeros(np.broadcast_shapes(np.shape(k), np.shape(context))))
    reading = model.parameters * model.bytes_per_weight / machine.bandwidth
    computing = 2 * model.parameters * (whole("k", k) + 1) / machine.flops
    caches = numbers("context", context, low=0) * model.kv_bytes_per_token / machine.bandwidth
    with np.errstate(divide="ignore"):
        return plain(np.where(computing > caches, reading / np.maximum(computing - caches, 0), np.inf))


def paying_batch(
    machine: Machine,
    target: Model,
    alpha: float,
    k: int,
    *,
    draft: Model | float,
    context: float = 0,
    most: int = MOST_BATCH,
) -> int:
    """The batch size up to which every batch gains by drafting K tokens; 0 where not even a single request does.

    It is `most` where all batches up to that size gain.
    """
    sizes = np.arange(1, int(whole("most", most, low=1)) + 1)
    a, n, cached = scalar("alpha", alpha), int(whole("k", k)), scalar("context", context)
    gains = batch_speedup(machine, target, a, n, sizes, draft=draft, context=cached)
    losing = np.flatnonzero(gains <= 1)
    return int(losing[0]) if losing.size else int(sizes[-1])


def _seconds(machine: Machine, model: Model, rows: Any, batch: Any, context: Any) -> Any:
    weights = model.parameters * model.bytes_per_weight * model.routing.reading(rows, model.expert_share, batch)
    reading = (weights + batch * context * model.kv_bytes_per_token) / machine.bandwidth
    return np.maximum(reading, 2 * model.parameters * batch * rows / machine.flops) + machine.overhead
