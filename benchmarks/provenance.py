"""What a benchmark's figures carry: the package's provenance, under the benchmark's own command line."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from headstart.measure import provenance


class Provenance(provenance.Provenance):
    """Taken when the work starts."""

    @classmethod
    def now(cls, *packages: str) -> Provenance:
        return replace(super().now(*packages), command=_command(sys.argv))

    def lines(self) -> list[str]:
        """For a reader, to print under a table."""
        return [f"{name}: {value}" for name, value in self.rows().items()]


def results_file(folder: Path, name: str) -> Path:
    """Where the figures of a run that begins now go; runs that begin together in a loop have files of their own. The
    folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    return folder / f"{name}-{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03}.json"


def _command(argv: list[str]) -> str:
    """The command line; a path that leads out of the checkout is cut to its name: where it lay helps nobody else."""
    return shlex.join(["python", f"benchmarks/{Path(argv[0]).name}", *map(_shortened, argv[1:])])


def _shortened(argument: str) -> str:
    option, equals, value = argument.rpartition("=")
    parts = [Path(part).name if part.startswith(("/", "~", "..")) else part for part in value.split(",")]
    return option + equals + ",".join(parts)
