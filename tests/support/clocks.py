"""Other clocks for some modules. The module `time` itself is everybody's: the event loop of a server that another test
keeps running would sleep until the other clock's time has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest


def set_clock(patch: pytest.MonkeyPatch, clock: Callable[[], float], *modules: ModuleType) -> None:
    """Let these modules see `clock` as `time.monotonic` and `time.perf_counter`."""
    seen = SimpleNamespace(**{**vars(time), "monotonic": clock, "perf_counter": clock})
    for module in modules:
        patch.setattr(module, "time", seen)
