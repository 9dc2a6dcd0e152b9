"""What a figure must carry: the command, commit, versions and machine that made it."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headstart.base.machine import cpu_name, versions_of

PACKAGES = ("headstart", "torch", "transformers", "numpy")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Taken when the work starts. commit: of headstart's checkout, or "" for an installed package. load: how many
    processes wanted a core in the minute before, on average."""

    command: str
    commit: str
    date: str
    versions: Mapping[str, str]
    cpu: str
    cores: int
    threads: int | None
    gpu: str | None
    load: float | None

    @classmethod
    def now(cls, *packages: str) -> Provenance:
        threads, gpu = _torch_facts()
        return cls(
            command=shlex.join(["headstart", *sys.argv[1:]]),
            commit=_commit(Path(__file__).parent),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={"python": platform.python_version(), **versions_of(*PACKAGES, *packages)},
            cpu=cpu_name(),
            cores=os.cpu_count() or 1,
            threads=threads,
            gpu=gpu,
            load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        )

    def record(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self) -> dict[str, str]:
        """For a reader: what it is called, and its value."""
        threads = "" if self.threads is None else f", {self.threads} thread" + "s" * (self.threads != 1)
        moment = self.date.replace("T", " ").replace("+00:00", " UTC")
        return {
            "command": self.command,
            "made": moment + (f", commit {self.commit}" if self.commit else ""),
            "machine": f"{self.cpu}, {self.cores} cores{threads}" + (f"; {self.gpu}" if self.gpu else ""),
            "versions": ", ".join(f"{name} {number}" for name, number in self.versions.items()),
            "load average at the start": "unknown" if self.load is None else f"{self.load:g}",
        }


def _torch_facts() -> tuple[int | None, str | None]:
    """Threads and GPU, if torch has been imported; this must not import it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None, None
    return torch.get_num_threads(), torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _commit(directory: Path) -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=directory, capture_output=True, encoding="utf-8", errors="replace", check=True
        ).stdout.strip()

    try:
        # Another project's checkout that headstart happens to be installed in says nothing about headstart
        git("ls-files", "--error-unmatch", Path(__file__).name)
        changed = " with uncommitted changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "--short", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return ""
