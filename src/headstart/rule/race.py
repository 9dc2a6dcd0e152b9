"""Which tokens can win a draw from a long distribution: compiled code, where there is a C++ compiler.

It only sorts out who cannot win. `noise.Noise.draw` draws among the others, so that the token is the same bit for bit
with it and without it.
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
_MOST = 64
"""Tokens that can win, at most; there are rarely more than ten."""
_SOURCE = Path(__file__).with_name("race.cpp")

Able = Callable[[NDArray[np.float32], int], "NDArray[np.int64] | None"]
"""(distribution [V], key) -> the tokens that can win, in rising order; None where it cannot tell."""

log = logging.getLogger(__name__)


@functools.cache
def compiled() -> Able | None:
    """The function of this process, built at the first call; None where it cannot be had."""
    try:
        library = ctypes.CDLL(str(compiling.library(_SOURCE).path))
    except (compiling.Unavailable, OSError) as reason:
        log.info("draws from large vocabularies are slower here: %s", reason)
        return None
    return bound_to(library)


def bound_to(library: Any) -> Able:
    """The function of a compiled library."""
    function = library.headstart_able
    function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int)
    function.restype = ctypes.c_int

    def able(distribution: NDArray[np.float32], key: int) -> NDArray[np.int64] | None:
        found = np.empty(_MOST, dtype=np.int64)
        at, into = distribution.__array_interface__["data"][0], found.__array_interface__["data"][0]
        count = function(at, distribution.shape[0], key, into, _MOST)
        return found[:count] if count > 0 else None

    return able
