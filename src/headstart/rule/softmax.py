"""Softmax of rows of logits on the host, their likeliest tokens, and what is asked of a draft's distributions: compiled
code, or torch and NumPy where there is no C++ compiler. The two round differently, by a few units in the last place."""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.base import compiling
from headstart.base.compiling import address
from headstart.rule.rest import SOURCE, readable

log = logging.getLogger(__name__)


class Softmax(Protocol):
    """What is asked of rows of logits x [R, V], float32 and contiguous. No row reads another."""

    def distributions(self, x: NDArray[np.float32], temperatures: Sequence[float]) -> NDArray[np.float32]:
        """The softmax of x / temperature [R, V]; NaN throughout a row with a NaN, with +inf, or with -inf alone."""
        ...

    def likeliest(self, x: NDArray[np.float32], count: int) -> tuple[list[list[int]], list[list[float]]]:
        """Of each row the `count` likeliest columns, the likeliest first, and the logarithms of their probabilities;
        NaN for a row that has no distribution."""
        ...

    def siblings(self, q: Sequence[NDArray[Any] | None], columns: Sequence[int]) -> NDArray[Any] | None:
        """What each node of some families was drawn from [N, W]. q: of a first child, the distribution [W]; None for a
        child after it, which is drawn without the columns of those before it. None where that is left to NumPy."""
        ...

    def sums(self, q: NDArray[Any]) -> tuple[float, list[float]]:
        """The least weight of q [N, W], NaN if one is, and the sum of each row."""
        ...


class InTorch:
    """The same by tensor operations."""

    def distributions(self, x: NDArray[np.float32], temperatures: Sequence[float]) -> NDArray[np.float32]:
        colder = torch.from_numpy(x) / torch.tensor(temperatures).unsqueeze(1)
        found: NDArray[np.float32] = colder.softmax(-1).numpy()
        return found

    def likeliest(self, x: NDArray[np.float32], count: int) -> tuple[list[list[int]], list[list[float]]]:
        # logsumexp takes ten times as long where x is -inf
        chances, places = torch.from_numpy(x).softmax(-1).topk(min(count, x.shape[1]))
        return places.tolist(), chances.log().tolist()

    def siblings(self, *_: Any) -> None:
        """They are NumPy's."""

    def sums(self, q: NDArray[Any]) -> tuple[float, list[float]]:
        return q.item(q.argmin()), np.add.reduce(q, 1).tolist()


class Compiled:
    """The functions of a compiled library."""

    def __init__(self, library: Any) -> None:
        self._softmax, self._likeliest = library.headstart_softmax, library.headstart_likeliest
        rows = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._softmax.argtypes = (*rows, ctypes.c_void_p, ctypes.c_void_p)
        self._softmax.restype = None
        self._likeliest.argtypes = (*rows, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        self._likeliest.restype = ctypes.c_bool
        self._siblings = library.headstart_siblings
        self._siblings.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self._siblings.restype = None
        self._sums = library.headstart_sums
        self._sums.argtypes, self._sums.restype = (*rows, ctypes.c_void_p), ctypes.c_float

    def distributions(self, x: NDArray[np.float32], temperatures: Sequence[float]) -> NDArray[np.float32]:
        p = np.empty_like(x)
        divisors = (ctypes.c_float * len(x))(*temperatures)
        self._softmax(address(x), *x.shape, divisors, address(p))
        return p

    def likeliest(self, x: NDArray[np.float32], count: int) -> tuple[list[list[int]], list[list[float]]]:
        count = min(count, x.shape[1])
        columns, scores = np.empty((len(x), count), np.int64), np.empty((len(x), count), np.float32)
        if not self._likeliest(address(x), *x.shape, count, address(columns), address(scores)):
            return InTorch().likeliest(x, count)
        return columns.tolist(), scores.tolist()

    def siblings(self, q: Sequence[NDArray[Any] | None], columns: Sequence[int]) -> NDArray[Any] | None:
        first = q[0]
        if first is None or not all(each is None or readable(each, np.float32) for each in q):
            return None
        rows = np.empty((len(q), len(first)), np.float32)
        given = (ctypes.c_void_p * len(q))(*[None if each is None else address(each) for each in q])
        self._siblings(given, (ctypes.c_int64 * len(q))(*columns), *rows.shape, address(rows))
        return rows

    def sums(self, q: NDArray[Any]) -> tuple[float, list[float]]:
        if not readable(q, np.float32):
            return InTorch().sums(q)
        found = (ctypes.c_double * len(q))()
        return self._sums(address(q), *q.shape, found), found[:]


@functools.cache
def softmax() -> Softmax:
    """What this process computes with, built at the first call."""
    try:
        return Compiled(ctypes.CDLL(str(compiling.library(SOURCE).path)))
    except (compiling.Unavailable, OSError) as reason:
        log.info("distributions are slower here: %s", reason)
        return InTorch()
