"""Measured costs in a file, so that a pair is measured once per machine. A file that cannot be used is no error.

Files lie in the user's cache directory, one for each combination of everything that costs depend on. Damaged, from
another version, unreadable: measured again. Not writable: measured at every load.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from headstart.files import cache_directory, cache_file, replacing
from headstart.machine import cpu_name
from headstart.theory.costs import StepCosts

_VERSION = 2
_SLOWER = 1.5
_COSTS = TypeAdapter(StepCosts)


def directory() -> Path:
    """Where profiles lie. Read from the environment at each call."""
    return cache_directory("profiles")


def profiled(facts: Mapping[str, Any], measure: Callable[[], StepCosts], check: Callable[[], float]) -> StepCosts:
    """The costs of what `facts` describe: from the file, or measured now and written to it.

    check: seconds of a forward of one row now. Other work on a machine only ever adds time: a profile that is much
    slower was taken on a busy machine, and is replaced; one that is faster is right, and the machine busy now.
    """
    facts = {"version": _VERSION, **machine(), **facts}
    with suppress(OSError, RuntimeError):  # there may be no home at all
        path = cache_file("profiles", facts)
        found = read(path)
        if found is not None and check() * _SLOWER > found.rows[0][1]:
            return found
        costs = measure()
        write(path, facts, costs)
        return costs
    return measure()


def machine() -> dict[str, Any]:
    """What tells machines apart, as far as costs go."""
    import torch

    return {
        "node": platform.node(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def read(path: Path) -> StepCosts | None:
    """None if there is no file, or none that makes sense."""
    try:
        return _COSTS.validate_python(json.loads(path.read_text())["costs"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write(path: Path, facts: Mapping[str, Any], costs: StepCosts) -> None:
    """All or nothing: another process never reads half a file."""
    with suppress(OSError), replacing(path) as part:
        part.write_text(json.dumps({"facts": facts, "costs": asdict(costs)}, indent=1, default=str))
