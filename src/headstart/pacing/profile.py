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
from typing import Any, TypeVar

from headstart.base.files import cache_directory, cache_file, replacing
from headstart.base.machine import cpu_name
from headstart.pacing.constants import STEADY
from headstart.pacing.measuring import Measurement
from headstart.theory.costs import DraftCost, StepCosts
from headstart.theory.mixture import Routing

_T = TypeVar("_T")
_VERSION = 4


def directory() -> Path:
    """Where profiles lie. Read from the environment at each call."""
    return cache_directory("profiles")


def profiled(
    facts: Mapping[str, Any], measure: Callable[[], Measurement], check: Callable[[], Mapping[int, float]]
) -> StepCosts:
    """The costs of what `facts` describe: from the file, or measured now and written to it.

    Other work on a machine only ever adds time. So a profile in which any forward is much slower than now was taken on
    a busy machine, and is replaced; one that is faster is right, and the machine busy now. What is measured while
    forwards take now this long and now that long is used, and not kept.

    check: seconds of a few forwards now, by their rows.
    """
    facts = {"version": _VERSION, **machine(), **facts}
    with suppress(OSError, RuntimeError):  # there may be no home at all
        path = cache_file("profiles", facts)
        found = read(path)
        if found is not None and all(found.unrelated(n) < STEADY * seconds for n, seconds in check().items()):
            return found
        measured = measure()
        if measured.steady:
            write(path, facts, measured.costs)
        return measured.costs
    return measure().costs


def machine() -> dict[str, Any]:
    """What tells machines apart, as far as costs go."""
    import torch

    from headstart.model.threads import process_threads

    return {
        "node": platform.node(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": process_threads(),
        "torch": torch.__version__,
    }


def read(path: Path) -> StepCosts | None:
    """None if there is no file, or none that makes sense."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))["costs"]
        rows = tuple((int(n), float(seconds)) for n, seconds in stored.pop("rows"))
        drafts = {str(name): _of_numbers(DraftCost, cost) for name, cost in stored.pop("drafts", {}).items()}
        routing = _of_numbers(Routing, stored.pop("routing", {}))
        return _of_numbers(StepCosts, stored, rows=rows, drafts=drafts, routing=routing)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _of_numbers(kind: Callable[..., _T], stored: Mapping[str, Any], **rest: Any) -> _T:
    """A dataclass, the fields of which are numbers and switches, but for the rest. It checks what they may be.

    By hand, since every start reads a profile: to import pydantic takes a tenth of a second.

    Raises:
        TypeError: a field is neither, or there is none of its name.
    """
    if wrong := [name for name, value in stored.items() if not isinstance(value, int | float)]:
        raise TypeError(f"{wrong[0]} is no number")
    return kind(**stored, **rest)


def write(path: Path, facts: Mapping[str, Any], costs: StepCosts) -> None:
    """All or nothing: another process never reads half a file."""
    with suppress(OSError), replacing(path) as part:
        part.write_text(json.dumps({"facts": facts, "costs": asdict(costs)}, indent=1, default=str), encoding="utf-8")
