"""Energy of the whole machine, where it tells: the counters of Linux' powercap (Intel and AMD processors).

A counter holds microjoules and wraps around at `max_energy_range_uj`. Only packages are counted: cores and graphics are
parts of a package, and "psys" holds them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
_JOULE = 1e6


@dataclass(frozen=True, slots=True)
class Meter:
    """Counters that can be read, and where there are none, why. The default measures nothing.

    ranges: counter file to the microjoules at which it begins anew.
    """

    ranges: Mapping[Path, int] = field(default_factory=dict)
    reason: str = "not asked for"

    @classmethod
    def of_this_machine(cls, folder: Path = POWERCAP) -> Meter:
        packages = [zone for zone in sorted(folder.glob("intel-rapl:*")) if _name(zone).startswith("package")]
        if not packages:
            return cls(reason=f"this machine has no energy counter that the system shows ({folder}/intel-rapl:*)")
        try:
            ranges = {zone / "energy_uj": int((zone / "max_energy_range_uj").read_text()) for zone in packages}
            for counter in ranges:
                int(counter.read_text())
        except (OSError, ValueError) as error:
            return cls(reason=f"the energy counters cannot be read: {error}; most systems let only root read them")
        return cls(ranges, "")

    def read(self) -> dict[Path, int] | None:
        """Microjoules by counter; None if they cannot be read (any more)."""
        try:
            return {counter: int(counter.read_text()) for counter in self.ranges} or None
        except (OSError, ValueError):
            return None

    def since(self, before: Mapping[Path, int] | None) -> float | None:
        """Joules used since `before` was read. A counter that stands lower has wrapped around, once."""
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
        return (zone / "name").read_text().strip()
    except OSError:
        return ""
