"""What the processor is: what tells machines apart wherever something depends on them."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType

_CPUINFO = Path("/proc/cpuinfo")


def cpu_name() -> str:
    """The processor's model name, or its architecture where the system does not say more."""
    return next(iter(_lines("model name")), "") or _asked() or platform.processor() or platform.machine()


@cache
def versions_of(*packages: str) -> Mapping[str, str]:
    """The versions of these packages; one that is not installed is left out."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return MappingProxyType(found)


def cpu_features() -> str:
    """Model names and instruction sets, in one string: what compiled code depends on."""
    return "\n".join(sorted({*_lines("model name"), *_lines("flags"), *_lines("Features")})) or platform.processor()


@cache
def _asked() -> str:
    """The model name where a system call, or a program of the system's, has to be asked for it."""
    with suppress(OSError):
        if sys.platform == "darwin":
            asked = ("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")
            return subprocess.run(asked, capture_output=True, encoding="utf-8", check=False).stdout.strip()
        if sys.platform == "win32":
            import winreg

            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
                return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    return ""


def _lines(name: str) -> list[str]:
    """Values of the lines of /proc/cpuinfo that begin so; none on systems without it."""
    with suppress(OSError):
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
        return [line.partition(":")[2].strip() for line in lines if line.startswith(name)]
    return []
