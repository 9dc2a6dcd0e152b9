"""What the engine costs apart from the runs: seconds of forwards and drafts, and bytes of memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headstart.theory import StepCosts

if TYPE_CHECKING:
    from headstart.engine.engine import Engine

_KIB = 1024
_DEPTH = 4  # of the draft by which two measurements are compared
_OURS = "headstart."


def measure_costs(engine: Engine, *, seconds: float = 1.0) -> StepCosts:
    """Seconds of target forwards by rows, and of each source's draft, for one request. The engine must be idle."""
    from headstart.pacing.measuring import measure

    return measure(engine.target, engine.cache, engine.drafter.parts, batch=1, seconds=seconds)


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
    seen: set[int] = set()
    found: dict[str, int | None] = {
        "target_cache": _bytes(engine.cache, seen),
        "target_weights": _bytes(engine.target, seen),
        "drafter_caches": sum(_bytes(each, seen) for each in _caches(engine.drafter)),
        "drafter_weights": _bytes(engine.drafter, seen),
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


def _caches(drafter: Any) -> Iterator[Any]:
    for part in getattr(drafter, "parts", ()):
        cache = getattr(part, "cache", None)
        if cache is not None:
            yield cache


def _bytes(thing: Any, seen: set[int]) -> int:
    """Bytes of the tensors that `thing` holds and that were not `seen` yet.

    Looks into modules, containers and objects of this package: weights lie in transformers' modules, or packed in a
    decoder, and only the objects themselves know where.
    """
    import torch

    total, waiting = 0, [thing]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor):
            storage = each.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                total += storage.nbytes()
        elif isinstance(each, torch.nn.Module):
            waiting += [*each.parameters(recurse=False), *each.buffers(recurse=False), *each.children()]
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
        elif type(each).__module__.startswith(_OURS):
            waiting += vars(each).values() if hasattr(each, "__dict__") else ()
    return total
