"""How many cores count, on trees of files such as Linux shows of other machines, and on what other systems say."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from headstart.base import cores
from headstart.base.cores import Cores, cores_in, find_cores


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cores]:
    """What is found of a system of these files and processors, for a process that may use some of them."""

    def found(files: Mapping[str, str], processors: int, allowed: set[int] | None = None, **environment: str) -> Cores:
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(os, "cpu_count", lambda: processors)
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda _: set(range(processors)) if allowed is None else allowed, raising=False
        )
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return find_cores(environment, tmp_path)

    return found


def each(name: str, said: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """The file of this name of each processor."""
    return {f"sys/devices/system/cpu/cpu{cpu}/{name}": text for text, cpus in said.items() for cpu in cpus}


SIBLINGS = "topology/thread_siblings_list"


def test_a_system_that_says_nothing(found: Callable[..., Cores]) -> None:
    assert found({}, 4) == Cores(4, "the cores of this machine")


def test_threads_of_a_core_count_once(found: Callable[..., Cores]) -> None:
    tree = each(SIBLINGS, {f"{n},{n + 4}": [n, n + 4] for n in range(4)})
    assert found(tree, 8) == Cores(4, "the cores of this machine")
    assert found(tree, 8, {0, 4, 1}) == Cores(2, "the cores that this process is bound to")


def test_intel_says_which_cores_are_fast(found: Callable[..., Cores]) -> None:
    """Six fast cores of two threads each, and eight slow ones, whose clocks would not tell them apart."""
    tree = each(SIBLINGS, {f"{n}-{n + 1}": [n, n + 1] for n in range(0, 12, 2)} | {f"{n}": [n] for n in range(12, 20)})
    tree |= {"sys/devices/cpu_core/cpus": "0-11", "sys/devices/cpu_atom/cpus": "12-19"}
    assert found(tree, 20) == Cores(6, "the performance cores of this machine")
    assert found(tree, 20, {0, 2, 12}) == Cores(2, "the performance cores that this process is bound to")
    assert found(tree, 20, {14, 15, 16}) == Cores(3, "the cores that this process is bound to")


def test_arm_says_what_a_core_can_do(found: Callable[..., Cores]) -> None:
    """One core of 1024, three of 850 and four small ones: whoever takes the first alone loses three good ones."""
    tree = each("cpu_capacity", {"260": range(4), "850": range(4, 7), "1024": range(7, 8)})
    assert found(tree, 8) == Cores(4, "the performance cores of this machine")


@pytest.mark.parametrize(("slow", "count"), [("3300000", 4), ("5000000", 8)])
def test_a_clock_tells_where_nothing_else_does(found: Callable[..., Cores], slow: str, count: int) -> None:
    """Dense cores are far slower; favoured ones are a little faster, and are cores like the others."""
    tree = each("cpufreq/cpuinfo_max_freq", {"5100000": range(4), slow: range(4, 8)})
    assert found(tree, 8).threads == count


@pytest.mark.parametrize(
    ("quota", "threads"),
    [("max 100000", 8), ("250000 100000", 2), ("199000 100000", 1), ("1000 100000", 1), ("900000 100000", 8), ("", 8)],
)
def test_the_share_of_a_container(found: Callable[..., Cores], quota: str, threads: int) -> None:
    tree = {"proc/self/cgroup": "0::/docker/ab", "sys/fs/cgroup/docker/ab/cpu.max": quota}
    assert found(tree, 8).threads == threads


def test_the_share_of_a_group_around_it(found: Callable[..., Cores]) -> None:
    """It holds for all groups in it, and the least of them counts."""
    tree = {"proc/self/cgroup": "0::/pod/app", "sys/fs/cgroup/pod/cpu.max": "200000 100000"}
    tree["sys/fs/cgroup/pod/app/cpu.max"] = "400000 100000"
    assert found(tree, 8) == Cores(2, "of the cores, the control group grants the time of 2")


def test_the_share_where_the_group_is_the_root(found: Callable[..., Cores]) -> None:
    """A container may know its group by a path that is not there for it."""
    tree = {"proc/self/cgroup": "0::/not/here", "sys/fs/cgroup/cpu.max": "150000 100000"}
    assert found(tree, 8).threads == 1


@pytest.mark.parametrize(("quota", "threads"), [("-1", 8), ("300000", 3)])
def test_the_share_in_the_first_version(found: Callable[..., Cores], quota: str, threads: int) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct/app"
    tree = {"proc/self/cgroup": "5:memory:/app\n4:cpu,cpuacct:/app\n0::/app", f"{folder}/cpu.cfs_quota_us": quota}
    tree[f"{folder}/cpu.cfs_period_us"] = "100000"
    assert found(tree, 8).threads == threads


def test_the_environment_comes_first(found: Callable[..., Cores]) -> None:
    tree = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "100000 100000"}
    assert found(tree, 8, OMP_NUM_THREADS="6") == Cores(6, "as OMP_NUM_THREADS says")
    assert found(tree, 8, OMP_NUM_THREADS="4,2").threads == 4
    for nonsense in ("0", "many", "-3", ""):
        assert found(tree, 8, OMP_NUM_THREADS=nonsense).threads == 1


@pytest.mark.parametrize(
    ("said", "threads"),
    [
        ({"OMP_PROC_BIND": "true"}, 8),
        ({"OMP_PLACES": "cores"}, 8),
        ({"GOMP_CPU_AFFINITY": "0-7"}, 8),
        ({"OMP_PROC_BIND": "False", "OMP_PLACES": "cores"}, 1),
        ({}, 1),
    ],
)
def test_what_openmp_binds_a_thread_to_says_nothing(
    found: Callable[..., Cores], said: Mapping[str, str], threads: int
) -> None:
    assert found({}, 8, {0}, **said).threads == threads


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP binds threads")
def test_a_process_whose_threads_openmp_binds_uses_all_cores() -> None:
    code = (
        "import torch; from headstart.model.threads import process_threads, use_in_process\n"
        "own = torch.get_num_threads(); use_in_process(None); print(own, process_threads())"
    )
    said = {name: text for name, text in os.environ.items() if name != cores.VARIABLE}
    own, used = (
        subprocess.run([sys.executable, "-c", code], env=said | more, capture_output=True, check=True).stdout.split()
        for more in ({}, {"OMP_PROC_BIND": "true"})
    )
    assert own == used


def test_macos_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"hw.perflevel0.physicalcpu": "6\n", "hw.physicalcpu": "10\n"}

    def run(asked: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(asked, 0, said.get(asked[-1], ""))

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(cores.subprocess, "run", run)
    assert find_cores({}) == Cores(6, "the performance cores of this machine")
    del said["hw.perflevel0.physicalcpu"]  # as on Intel
    assert find_cores({}) == Cores(10, "the cores of this machine")
    said.clear()
    assert find_cores({}).threads == os.cpu_count()


def test_windows_says_classes() -> None:
    """Records have sizes of their own; those of fast cores have the highest class."""

    def record(of: int, groups: int = 1) -> bytes:
        body = struct.pack("<BB20xH", 0, of, groups) + bytes(16 * groups)
        return struct.pack("<II", 0, 8 + len(body)) + body

    assert cores_in(b"".join([record(1), record(1, 2), *[record(0)] * 3])) == Cores(
        2, "the performance cores of this machine"
    )
    assert cores_in(record(0) * 4) == Cores(4, "the cores of this machine")
    assert cores_in(b"").threads == os.cpu_count()
