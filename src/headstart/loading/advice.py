"""The drafters that `headstart doctor` recommends for a target on this machine, kept for `load(drafter="auto")`.

The files lie in the user's cache directory beside the profiles of costs, one for each target, machine, dtype, device
and quantisation. A file that is damaged, of another version or for a changed model is ignored; where nothing can be
written, nothing is kept. None of this is an error.
"""

from __future__ import annotations

import json
import math
from calendar import month_name
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

from headstart.base.files import cache_directory, cache_file, replacing
from headstart.drafters.building import PREFIX
from headstart.pacing import profile
from headstart.types import TreeKind

_VERSION = 2


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation of `headstart doctor`.

    drafters: as `load` takes them, local ones as absolute paths; none if none helped.
    k: their best fixed length, or nodes of a tree.
    tree: `draft_tree` of the measurement.
    speedup: of whole answers over decoding without a drafter, as measured.
    acceptance: conditional, by position.
    date: ISO.
    """

    drafters: tuple[str, ...]
    k: int
    tree: TreeKind | Literal["auto"]
    speedup: float
    acceptance: tuple[float, ...]
    date: str

    @property
    def missing(self) -> tuple[str, ...]:
        """Local drafters that are no longer where they were."""
        names = [name.removeprefix(PREFIX) for name in self.drafters]
        return tuple(name for name in names if Path(name).is_absolute() and not Path(name).exists())

    @property
    def reason(self) -> str:
        """Why `load` took these, for `engine.reason`."""
        if not self.drafters and not self.acceptance:
            return f"doctor found no drafter that helps on {self.day} (the best never drafted)"
        if not self.drafters:
            return f"doctor found no drafter that helps on {self.day} (the best was measured at {self.speedup:.2f}x)"
        if self.missing:
            return f"doctor recommended {self.missing[0]} on {self.day}, which is no longer there"
        return f"doctor measured {self.speedup:.2f}x with {' + '.join(self.drafters)} on {self.day}"

    @property
    def day(self) -> str:
        when = date.fromisoformat(self.date)
        return f"{when.day} {month_name[when.month]} {when.year}"


def read(source: str, config: Mapping[str, Any], dtype: object, device: object, quantize: str | None) -> Advice | None:
    """The advice for a target, or None. source: its resolved directory or hub id. config: of the model, as a dict."""
    try:
        found = json.loads(_path(source, config, dtype, device, quantize).read_text(encoding="utf-8"))
        stored = found["advice"]
        if not all(isinstance(stored[name], list) for name in ("drafters", "acceptance")):
            return None  # a word is a sequence of letters, too
        advice = Advice(**{**stored, **{name: tuple(stored[name]) for name in ("drafters", "acceptance")}})
        date.fromisoformat(advice.date)
        return advice if _usable(advice) else None
    except (OSError, RuntimeError, ValueError, TypeError, KeyError):
        return None


def _usable(advice: Advice) -> bool:
    """Whether its fields are what they should be. By hand: pydantic takes a tenth of a second of every start."""
    names, numbers = advice.drafters, (advice.speedup, *advice.acceptance)
    good = all(isinstance(name, str) and name not in ("", "auto", "none") for name in names)
    good = good and len(set(names)) == len(names) and advice.tree in ("auto", *get_args(TreeKind))
    good = good and type(advice.k) is int and advice.k >= 0
    return good and all(isinstance(each, int | float) and math.isfinite(each) for each in numbers)


def write(
    source: str, config: Mapping[str, Any], dtype: object, device: object, quantize: str | None, advice: Advice
) -> Path | None:
    """Keep the advice as a whole file; returns its path, or None if it cannot be written."""
    with suppress(OSError, RuntimeError):
        path = _path(source, config, dtype, device, quantize)
        with replacing(path) as part:
            part.write_text(json.dumps({"target": source, "advice": asdict(advice)}, indent=1), encoding="utf-8")
        return path
    return None


def directory() -> Path:
    """Where advice lies. Read from the environment at each call."""
    return cache_directory("advice")


def _path(source: str, config: Mapping[str, Any], dtype: object, device: object, quantize: str | None) -> Path:
    local = Path(source)
    facts = {
        "version": _VERSION,
        "headstart": version("headstart"),
        **profile.machine(),
        "target": str(local.resolve()) if local.exists() else source,
        "config": config,
        "dtype": str(dtype),
        "device": str(device),
        "quantize": quantize,
    }
    return cache_file("advice", facts)
