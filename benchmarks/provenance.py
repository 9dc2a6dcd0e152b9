"""What a figure must carry: the command, commit, versions and machine that made it."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class Provenance:
    """Taken when the work starts. `load`: how many processes wanted a core in the minute before, on average."""

    command: str
    commit: str
    date: str
    versions: dict[str, str]
    cpu: str
    cores: int
    threads: int
    gpu: str | None
    load: float | None

    @classmethod
    def now(cls, *packages: str) -> Provenance:
        return cls(
            command=_command(sys.argv),
            commit=_commit(Path(__file__).parent),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={"python": platform.python_version(), **{package: version(package) for package in packages}},
            cpu=_cpu(),
            cores=os.cpu_count() or 1,
            threads=torch.get_num_threads(),
            gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        )

    def lines(self) -> list[str]:
        """For a reader, to print under a table."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        machine = f"{self.cpu}, {self.cores} cores, {self.threads} threads" + (f"; {self.gpu}" if self.gpu else "")
        load = "" if self.load is None else f"; load average {self.load} at the start"
        return [f"command: {self.command}", f"commit:  {self.commit}, {self.date}", versions, machine + load]


def _command(argv: list[str]) -> str:
    """The command line; a path that leads out of the checkout is cut to its name: where it lay helps nobody else."""
    return shlex.join(["python", f"benchmarks/{Path(argv[0]).name}", *map(_shortened, argv[1:])])


def _shortened(argument: str) -> str:
    option, equals, value = argument.rpartition("=")
    return option + equals + Path(value).name if value.startswith(("/", "~", "..")) else argument


def _commit(directory: Path) -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=directory, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = " with uncommitted changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "--short", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return "not in a git checkout"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
