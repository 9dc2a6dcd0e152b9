"""What the machine shows apart from the runs: seconds of forwards and drafts, bytes of memory, joules.

Energy is that of the whole machine, where it has counters: those of Linux' powercap (Intel and AMD processors). A
counter holds microjoules and wraps around at `max_energy_range_uj`. Only packages are counted: cores and graphics are
parts of a package, and "psys" holds them all.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from headstart.drafters import capabilities
from headstart.theory import StepCosts

if TYPE_CHECKING:
    from headstart.engine.engine import Engine


POWERCAP = Path("/sys/class/powercap")
_JOULE = 1e6


@dataclass(frozen=True, slots=True)
class Meter:
    """Counters that can be read, and where there are none, why. The default measures nothing.

    ranges: counter file to the microjoules at which it begins again.
    """

    ranges: Mapping[Path, int] = field(default_factory=dict)
    reason: str = "not asked for"

    @classmethod
    def of_this_machine(cls, folder: Path = POWERCAP) -> Meter:
        packages = [zone for zone in sorted(folder.glob("intel-rapl:*")) if _name(zone).startswith("package")]
        if not packages:
            return cls(reason=f"this machine has no energy counter that the system shows ({folder}/intel-rapl:*)")
        try:
            ranges = {
                zone / "energy_uj": int((zone / "max_energy_range_uj").read_text(encoding="utf-8")) for zone in packages
            }
            for counter in ranges:
                int(counter.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return cls(reason=f"the energy counters cannot be read: {error}; most systems let only root read them")
        return cls(ranges, "")

    def read(self) -> dict[Path, int] | None:
        """Microjoules by counter; None if they cannot be read (any more)."""
        try:
            return {counter: int(counter.read_text(encoding="utf-8")) for counter in self.ranges} or None
        except (OSError, ValueError):
            return None

    def since(self, before: Mapping[Path, int] | None) -> float | None:
        """Joules used since `before` was read. A counter that is lower has wrapped around, once."""
        now = self.read()
        if before is None or now is None:
            return None
        used = 0
        for counter, value in now.items():
            change = value - before[counter]
            used += change if change >= 0 else change + self.ranges[counter]
        return used / _JOULE


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


_KIB = 1024
_DEPTH = 4  # of the draft by which two measurements are compared


def measure_costs(engine: Engine, *, seconds: float = 1.0) -> StepCosts:
    """Seconds of target forwards by rows, and of each source's draft, for one request. The engine must be idle."""
    from headstart.pacing.measuring import measure

    return measure(engine.target, engine.cache, capabilities.parts(engine.drafter), batch=1, seconds=seconds).costs


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

    target, parts = list(engine.target.weights()), capabilities.parts(engine.drafter)
    caches = [cache for part in parts if isinstance(cache := getattr(part, "cache", None), Slots)]
    shared = bytes_of([*target, *(tensor for part in parts for tensor in capabilities.weights(part))])
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


def _peak() -> int:
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB
