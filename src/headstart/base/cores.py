"""How many cores a process may use for what keeps all of them busy, and which of them count.

A forward is as fast as its cores together, and the second thread of a core adds nothing to sums that one thread already
fills it with. So cores are counted, not threads; of a processor with two kinds of cores the fast ones; and no more than
the system grants: the cores that the process is bound to, and the share of time that a container has.
"""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "OMP_NUM_THREADS"
"""The environment variable by which programs are usually told how many threads they may use."""

MOST = 256
"""Threads that a forward of the row kernels can use."""

_FAST = 0.6
"""Of the best core's capacity, the least that makes a core one of the fast ones. ARM's small cores have 0.2 to 0.45."""
_QUICK = 0.8
"""The same of its clock, where nothing else is said. Cores of one kind differ by a few hundredths."""


@dataclass(frozen=True, slots=True)
class Cores:
    """How many threads to use, and why."""

    threads: int
    why: str


_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")
"""Variables that make OpenMP bind each thread to a core, so that what the first one is bound to says nothing."""


def find_cores(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Cores:
    """What this process may use. root: where `sys` and `proc` of Linux lie.

    Where OpenMP binds threads, the cores of the machine count; PyTorch's own number of threads is then one for each
    core that the process was bound to at first.
    """
    given = environment.get(VARIABLE, "").partition(",")[0].strip()
    if given.isdecimal() and int(given) > 0:
        return Cores(int(given), f"as {VARIABLE} says")
    counted = {"linux": lambda: _linux(root, _binds(environment)), "darwin": _macos, "win32": _windows}.get(
        sys.platform, _any
    )()
    quota = min(_quotas(root), default=math.inf) if sys.platform == "linux" else math.inf
    granted = max(1, math.floor(quota)) if quota < math.inf else counted.threads  # one that is held up holds up all
    return (
        Cores(granted, f"of the cores, the control group grants the time of {quota:g}")
        if granted < counted.threads
        else counted
    )


def _binds(environment: Mapping[str, str]) -> bool:
    off = environment.get("OMP_PROC_BIND", "").strip().lower() == "false"
    return not off and any(environment.get(name) for name in _BINDING)


def _any() -> Cores:
    return Cores(os.cpu_count() or 1, "the processors of this machine")


# -- Linux -------------------------------------------------------------------------------------------------------------


def _linux(root: Path, binds: bool) -> Cores:
    allowed = set(range(os.cpu_count() or 1))
    if sys.platform == "linux" and not binds:
        allowed = os.sched_getaffinity(0)
    fast = _fast(allowed, root / "sys/devices")
    cpus = root / "sys/devices/system/cpu"
    cores = {_text(cpus / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in fast}
    kind = "performance cores" if len(fast) < len(allowed) else "cores"
    bound = len(allowed) < (os.cpu_count() or 1)
    return Cores(len(cores), f"the {kind} {'that this process is bound to' if bound else 'of this machine'}")


def _fast(allowed: Collection[int], devices: Path) -> Collection[int]:
    """The fast ones of these processors: all of them where they are alike."""
    intel = _numbers(_text(devices / "cpu_core/cpus")) & set(allowed)
    if intel and _text(devices / "cpu_atom/cpus"):
        return intel
    for name, least in (("cpu_capacity", _FAST), ("cpufreq/cpuinfo_max_freq", _QUICK)):
        said = {cpu: _text(devices / f"system/cpu/cpu{cpu}/{name}") for cpu in allowed}
        speeds = {cpu: int(speed) for cpu, speed in said.items() if speed.isdecimal()}
        if len(speeds) == len(allowed) and len(set(speeds.values())) > 1:
            return [cpu for cpu, speed in speeds.items() if speed >= least * max(speeds.values())]
    return allowed


def _numbers(said: str) -> set[int]:
    """Of a list such as 0-3,8."""
    ranges = (part.partition("-") for part in said.split(",") if part)
    return {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)}


def _quotas(root: Path) -> Iterator[float]:
    """How many cores' time each of the control groups around this process grants."""
    mounts = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if not kinds:
            yield from _up(mounts, path, _second)
        elif "cpu" in kinds.split(","):
            yield from _up(mounts / kinds, path, _first)
            yield from _up(mounts / "cpu", path, _first)


def _up(mount: Path, path: str, quota: Callable[[Path], float | None]) -> Iterator[float]:
    """From a group up to the root; a container may see its own group as the root, and know another path."""
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if (found := quota(folder)) is not None:
            yield found
        if folder == mount:
            return


def _second(folder: Path) -> float | None:
    """Of version 2."""
    return _ratio(*(_text(folder / "cpu.max").split() or ["max"]), "100000")


def _first(folder: Path) -> float | None:
    """Of version 1."""
    return _ratio(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str, *_: str) -> float | None:
    known = quota.isdecimal() and period.isdecimal() and int(period) > 0
    return int(quota) / int(period) if known else None


def _text(path: Path) -> str:
    """What a file of the system says; nothing where there is none."""
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8").strip()
    return ""


# -- other systems -----------------------------------------------------------------------------------------------------


def _macos() -> Cores:
    for name, kind in (("hw.perflevel0.physicalcpu", "performance cores"), ("hw.physicalcpu", "cores")):
        with suppress(OSError):
            asked = ("/usr/sbin/sysctl", "-n", name)
            said = subprocess.run(asked, capture_output=True, encoding="utf-8", check=False).stdout.strip()
            if said.isdecimal() and int(said) > 0:
                return Cores(int(said), f"the {kind} of this machine")
    return _any()


def _windows() -> Cores:
    if sys.platform != "win32":
        return _any()
    import ctypes

    ask = ctypes.windll.kernel32.GetLogicalProcessorInformationEx
    size = ctypes.c_ulong(0)
    ask(0, None, ctypes.byref(size))  # 0: RelationProcessorCore
    held = ctypes.create_string_buffer(size.value)
    return cores_in(held.raw) if size.value and ask(0, held, ctypes.byref(size)) else _any()


def cores_in(records: bytes) -> Cores:
    """The fast cores in what Windows says of all: SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX, one behind the other, each
    with its kind, its size, flags, and its class, of which the highest is the fastest."""
    classes, at = [], 0
    while at + 10 <= len(records):
        _, size, _, of = struct.unpack_from("<IIBB", records, at)
        classes.append(of)
        at += max(size, 10)
    fast = classes.count(max(classes, default=0))
    if not fast:
        return _any()
    return Cores(fast, f"the {'performance cores' if fast < len(classes) else 'cores'} of this machine")
