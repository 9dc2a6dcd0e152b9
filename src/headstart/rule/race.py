"""The first tokens in the race of a draw from a long distribution: compiled code, where there is a C++ compiler.

The tokens are those that `noise.Noise` draws without it, bit for bit: where the code cannot tell, it says so.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headstart.base import compiling

SHORTEST = 512
"""Below this size of a distribution the call costs more than it saves."""
_SOURCE = Path(__file__).with_name("race.cpp")


class First(Protocol):
    """The places of the first `count` of the race of weights [V], the winner first, or of all that have a weight; None
    where it cannot tell. tokens [V]: of each weight, where that is not its place; contiguous."""

    def __call__(
        self, weights: NDArray[np.float32], key: int, count: int, tokens: NDArray[np.int64] | None = None
    ) -> list[int] | None: ...


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
    weights_and_tokens, drawn_and_count = (ctypes.c_void_p, ctypes.c_void_p), (ctypes.c_void_p, ctypes.c_int)
    function.argtypes = (*weights_and_tokens, ctypes.c_int64, ctypes.c_uint64, *drawn_and_count)
    function.restype = ctypes.c_int

    def first(
        weights: NDArray[np.float32], key: int, count: int, tokens: NDArray[np.int64] | None = None
    ) -> list[int] | None:
        drawn = (ctypes.c_int64 * count)()
        of = None if tokens is None else compiling.address(tokens)
        found = function(compiling.address(weights), of, len(weights), key, drawn, count)
        return drawn[:found] if found >= 0 else None

    return first
