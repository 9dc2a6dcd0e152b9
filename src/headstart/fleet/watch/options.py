"""How a fleet is watched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from headstart.base.options import check_fields, option, strict

_watch, _drift = partial(option, panel="Watching"), partial(option, panel="Drift")


@strict
@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How a fleet is watched."""

    window: float = _watch(60.0, "Show what was counted in the last SECONDS.", above=0)
    timeout: float = _watch(5.0, "Seconds to wait for a server.", above=0)
    drift_window: float = _drift(300.0, "Seconds that are one window for the detector.", above=0)
    drop: float = _drift(0.05, "Drift is proved if acceptance fell by more than this share.", low=0.0, high=0.9)
    learning: int = _drift(48, "Windows from which is learnt what is normal.", low=12)
    false_alarm: float = _drift(
        10_000.0, "While nothing changes, a false alarm comes after so many windows at the earliest, on average.", low=2
    )
    draft_cost: float | None = _drift(
        None,
        "What drafting a token costs in plain steps (doctor's c), so that an alarm names the best K. "
        "Default: as --baseline says.",
        low=0.0,
    )

    def __post_init__(self) -> None:
        check_fields(self)
