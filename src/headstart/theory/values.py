"""Numbers in, numbers out: everything in `headstart.theory` takes scalars and arrays and broadcasts as NumPy does.

A value outside its range is refused with `InvalidOption`, which names it; nothing is clipped.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.base.errors import InvalidOption

Real = Any
"""A float where every argument was a scalar, otherwise an array of float64."""
Array = NDArray[np.float64]


def numbers(name: str, value: ArrayLike, *, low: float = -math.inf, high: float = math.inf) -> Array:
    """`value` as an array of float64, every entry finite and low <= entry <= high.

    Raises:
        InvalidOption: with the first entry that is not.
    """
    found = _as_array(name, value)
    good = np.isfinite(found) & (found >= low) & (found <= high)
    if not good.all():
        _refuse(name, float(found[~good][0]), low, high, "a number")
    return found


def whole(name: str, value: ArrayLike, *, low: int = 0) -> Array:
    """`value` as an array of whole numbers of at least `low`, in float64; 5.0 is whole, 5.5 is refused."""
    found = _as_array(name, value)
    good = np.isfinite(found) & (found >= low) & (found == np.floor(found))
    if not good.all():
        _refuse(name, float(found[~good][0]), low, math.inf, "a whole number")
    return found


def scalar(name: str, value: ArrayLike, *, low: float = -math.inf, high: float = math.inf) -> float:
    """`value` as one number, low <= value <= high."""
    found = numbers(name, value, low=low, high=high)
    if found.ndim:
        raise InvalidOption(f"{name} has shape {list(found.shape)}", hint=f"{name} must be one number here")
    return float(found)


def plain(result: ArrayLike) -> Real:
    """A float for an array without axes."""
    found = np.asarray(result, dtype=np.float64)
    return float(found) if found.ndim == 0 else found


def _as_array(name: str, value: ArrayLike) -> Array:
    try:
        found = np.asarray(value)
        if found.dtype.kind in "iuf":
            return found.astype(np.float64)
    except ValueError:  # rows of different lengths
        pass
    raise InvalidOption(f"{name}={value!r} is not a number", hint=f"{name} must be a number, or an array of numbers")


def _refuse(name: str, value: float, low: float, high: float, kind: str) -> None:
    wanted = kind
    if low > -math.inf:
        wanted += f" of at least {low:g}"
    if high < math.inf:
        wanted += f" and at most {high:g}"
    raise InvalidOption(f"{name}={value:g} is out of range", hint=f"{name} must be {wanted}")
