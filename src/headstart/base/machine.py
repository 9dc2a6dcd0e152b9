"""What the processor is: what tells machines apart wherever something depends on them."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def cpu_name() -> str:
    """The processor's model name, or its architecture where the system does not say more."""
    return next(iter(_lines("model name")), "") or platform.processor() or platform.machine()


def cpu_features() -> str:
    """Model names and instruction sets, in one string: what compiled code depends on."""
    return "\n".join(sorted({*_lines("model name"), *_lines("flags"), *_lines("Features")})) or platform.processor()


def _lines(name: str) -> list[str]:
    """Values of the lines of /proc/cpuinfo that begin so; none on systems without it."""
    with suppress(OSError):
        lines = _CPUINFO.read_text().splitlines()
        return [line.partition(":")[2].strip() for line in lines if line.startswith(name)]
    return []
