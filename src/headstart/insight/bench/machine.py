"""What the engine costs apart from the runs: seconds of forwards and drafts, and bytes of memory."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from headstart.theory import StepCosts

if TYPE_CHECKING:
    from headstart.engine.engine import Engine

_KIB = 1024
_DEPTH = 4  # of the draft by which two measurements are compared


def measure_costs(engine: Engine, *, seconds: float = 1.0) -> StepCosts:
    """Seconds of target forwards by rows, and of each source's draft, for one request. The engine must be idle."""
    from headstart.pacing.measuring import measure

    return measure(engine.target, engine.cache, engine.drafter.parts, batch=1, seconds=seconds).costs


def least(first: StepCosts, second: StepCosts) -> StepCosts:
    """Of two measurements of one engine the lower one of each figure: other work on a machine only ever adds time."""
    again = dict(second.rows)
    rows = tuple((n, min(seconds, again.get(n, seconds))) for n, seconds in first.rows)
    drafts = {
        name: min(cost, second.drafts.get(name, cost), key=lambda each: each.seconds(_DEPTH))
        for name, cost in first.drafts.items()
    }
    return replace(first, rows=rows, drafts=drafts)


def memory_of(engine: Engine) -> dict[str, int | None]:
    """Bytes: weights and caches of target and drafters as they lie in memory, the process' peak, the GPU's peak.

    The peak is that of the process since it began, loading included. Tensors count whole storages, each once.
    """
    from headstart.model.cache import Slots
    from headstart.model.memory import bytes_of

    target, parts = list(engine.target.weights()), engine.drafter.parts
    caches = [cache for part in parts if isinstance(cache := getattr(part, "cache", None), Slots)]
    shared = bytes_of([*target, *(tensor for part in parts for tensor in part.weights())])
    found: dict[str, int | None] = {
        "target_cache": engine.cache.memory(),
        "target_weights": bytes_of(target),
        "drafter_caches": sum(cache.memory() for cache in caches),
        "drafter_weights": shared - bytes_of(target),
        "peak_process": _peak(),
        "peak_gpu": None,
    }
    if engine.target.device.type == "cuda":
        import torch

        found["peak_gpu"] = torch.cuda.max_memory_allocated(engine.target.device)
    return found


def _peak() -> int | None:
    try:
        import resource
    except ImportError:  # no such call on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB
