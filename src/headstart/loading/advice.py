"""The drafters that `headstart doctor` recommends for a target on this machine, kept for `load(drafter="auto")`.

The files lie in the user's cache directory beside the profiles of costs, one for each target, machine, dtype, device
and quantisation. A file that is damaged, of another version or for a changed model is ignored; where nothing can be
written, nothing is kept. None of this is an error.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headstart.files import cache_directory, replacing
from headstart.pacing import profile

_VERSION = 1
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation of `headstart doctor`.

    drafters: as `load` takes them, local ones as absolute paths; none if none helped.
    k: their best fixed length, or nodes of a tree.
    tree: `draft_tree` of the measurement.
    speedup: over plain decoding.
    measured: whether the speedup was measured; else it was predicted.
    acceptance: conditional, by position.
    date: ISO.
    """

    drafters: tuple[str, ...]
    k: int
    tree: str
    speedup: float
    measured: bool
    acceptance: tuple[float, ...]
    date: str

    @property
    def missing(self) -> tuple[str, ...]:
        """Local drafters that are no longer where they were."""
        return tuple(name for name in self.drafters if Path(name).is_absolute() and not Path(name).is_dir())

    @property
    def reason(self) -> str:
        """Why `load` took these, for `engine.reason`."""
        how = "measured" if self.measured else "predicted"
        if not self.drafters:
            return f"doctor found no drafter that helps on {self.day} (the best was {how} at {self.speedup:.2f}x)"
        if self.missing:
            return f"doctor recommended {self.missing[0]} on {self.day}, which is no longer there"
        return f"doctor {how} {self.speedup:.1f}x with {' + '.join(self.drafters)} on {self.day}"

    @property
    def day(self) -> str:
        when = date.fromisoformat(self.date)
        return f"{when.day} {_MONTHS[when.month - 1]} {when.year}"


def read(source: str, config: Mapping[str, Any], dtype: object, device: object, quantize: str | None) -> Advice | None:
    """The advice for a target, or None. source: its resolved directory or hub id. config: of the model, as a dict."""
    try:
        found = json.loads(_path(source, config, dtype, device, quantize).read_text())["advice"]
        drafters = found["drafters"]
        if not isinstance(drafters, list) or not all(isinstance(name, str) and name for name in drafters):
            return None
        advice = Advice(
            drafters=tuple(drafters),
            k=int(found["k"]),
            tree=str(found["tree"]),
            speedup=float(found["speedup"]),
            measured=bool(found["measured"]),
            acceptance=tuple(float(share) for share in found["acceptance"]),
            date=date.fromisoformat(found["date"]).isoformat(),
        )
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError):
        return None
    usable = math.isfinite(advice.speedup) and advice.k >= 0 and len(set(drafters)) == len(drafters)
    return advice if usable and not {"auto", "none"} & set(drafters) else None


def write(
    source: str, config: Mapping[str, Any], dtype: object, device: object, quantize: str | None, advice: Advice
) -> Path | None:
    """Keep the advice as a whole file; returns its path, or None if it cannot be written."""
    with suppress(OSError, RuntimeError):
        path = _path(source, config, dtype, device, quantize)
        with replacing(path) as part:
            part.write_text(json.dumps({"target": source, "advice": asdict(advice)}, indent=1))
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
        "target": str(local.resolve()) if local.is_dir() else source,
        "config": config,
        "dtype": str(dtype),
        "device": str(device),
        "quantize": quantize,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:24]
    return directory() / f"{digest}.json"
