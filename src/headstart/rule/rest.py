"""What a rejected draft token leaves of the target's distribution: compiled code, where there is a C++ compiler. It
lies with the softmax, whose Python needs torch; the rule needs none."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.base import compiling
from headstart.base.compiling import address

SOURCE = Path(__file__).with_name("softmax.cpp")


def left(
    p: NDArray[Any], weight: Any, q: NDArray[Any], tokens: NDArray[np.int64] | None
) -> tuple[NDArray[Any], float] | None:
    """max(weight * p - q, 0) [V], divided by its sum if that is not 0, and the sum. tokens [W]: of q's weights, where
    they are of a part of the vocabulary. None where NumPy must compute it: without a compiler, and for numbers of
    other kinds."""
    width = len(p if tokens is None else tokens)
    if not (readable(p, np.float32) and readable(q, np.float32) and len(q) == width):
        return None
    if not (tokens is None or readable(tokens, np.int64)) or (function := _compiled()) is None:
        return None
    rest = np.empty_like(p)
    places = None if tokens is None else address(tokens)
    total: float = function(address(p), len(p), weight, address(q), places, len(q), address(rest))
    return None if total < 0 else (rest, total)


@functools.cache
def _compiled() -> Any:
    """The function of this process, built at the first call; None where it cannot be had."""
    try:
        function = ctypes.CDLL(str(compiling.library(SOURCE).path)).headstart_left
    except (compiling.Unavailable, OSError):
        return None  # `softmax` says it
    q_and_rest = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, *q_and_rest)
    function.restype = ctypes.c_double
    return function


def readable(array: NDArray[Any], dtype: type) -> bool:
    """Whether compiled code can read it as it lies."""
    return array.dtype == dtype and array.flags.c_contiguous
