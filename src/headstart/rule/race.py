"""The first tokens in the race of a draw from a long distribution: compiled code, where there is a C++ compiler.

The tokens are those that `noise.Noise` draws without it, bit for bit: where the code cannot tell, it says so.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.base import compiling

SHORTEST = 512
"""Below this size of a distribution the call costs more than it saves."""
_SOURCE = Path(__file__).with_name("race.cpp")

First = Callable[[NDArray[np.float32], int, int], "list[int] | None"]
"""(weights [V], key, count) -> the first `count` tokens of the race, the winner first, or all that have a weight; None
where it cannot tell."""

log = logging.getLogger(__name__)


@functools.cache
def compiled() -> First | None:
    """The function of this process, built at the first call; None where it cannot be had."""
    try:
        library = ctypes.CDLL(str(compiling.library(_SOURCE).path))
    except (compiling.Unavailable, OSError) as reason:
        log.info("draws from large vocabularies are slower here: %s", reason)
        return None
    return bound_to(library)


def bound_to(library: Any) -> First:
    """The function of a compiled library."""
    function = library.headstart_draw
    function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int)
    function.restype = ctypes.c_int

    def first(weights: NDArray[np.float32], key: int, count: int) -> list[int] | None:
        drawn = (ctypes.c_int64 * count)()
        found = function(weights.__array_interface__["data"][0], len(weights), key, drawn, count)
        return drawn[:found] if found >= 0 else None

    return first
