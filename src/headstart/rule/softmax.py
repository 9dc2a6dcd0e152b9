"""Softmax of rows of logits on the host, their likeliest tokens, and what is asked of a draft's distributions: compiled
code, or torch and NumPy where there is no C++ compiler. The two round differently, by a few units in the last place."""

from __future__ import annotations

import ctypes
import functools
import logging
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.base import compiling
from headstart.base.compiling import address
from headstart.rule.rest import SOURCE, readable

log = logging.getLogger(__name__)


class Wanted(NamedTuple):
    """Which of the likeliest columns after some rows are wanted, for paths that go on from paths."""

    width: int
    """Of each row, at most so many."""
    above: Sequence[float]
    """By row, the logarithm of the probability of the path up to there."""
    least: float
    """The logarithm of the least probability of a path with its column."""
    most: int
    """Of all rows together so many, and those that are as likely as the last of them."""


Likeliest = tuple[Sequence[int], Sequence[int], Sequence[float]]
"""Row by row, and likeliest first: the row, the column, and the logarithm of the probability of the path with it."""


def chosen(columns: Sequence[Sequence[int]], scores: Sequence[Sequence[float]], wanted: Wanted) -> Likeliest:
    """Those that are wanted of each row's likeliest columns, given the logarithms of their probabilities."""
    found = []
    for row, (above, ids, values) in enumerate(zip(wanted.above, columns, scores, strict=True)):
        for column, value in list(zip(ids, values, strict=True))[: wanted.width]:
            score = above + min(value, 0.0)  # rounding must not make a path likelier than its beginning
            if value > -math.inf and score >= wanted.least:  # -inf has probability 0, and a NaN has no meaning
                found.append((row, column, score))
    if len(found) > wanted.most:
        least = sorted((score for _, _, score in found), reverse=True)[wanted.most - 1]
        found = [each for each in found if each[2] >= least]
    return tuple(zip(*found, strict=True)) if found else ((), (), ())  # type: ignore[return-value]


class Softmax(Protocol):
    """What is asked of rows of logits x [R, V], float32 and contiguous. No row reads another."""

    def distributions(self, x: NDArray[np.float32], temperatures: Sequence[float]) -> NDArray[np.float32]:
        """The softmax of x / temperature [R, V]; NaN throughout a row with a NaN, with +inf, or with -inf alone."""
        ...

    def likeliest(self, x: NDArray[np.float32], wanted: Wanted) -> Likeliest:
        """The likeliest columns that are wanted; none of probability 0, or of a row that has no distribution."""
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

    def likeliest(self, x: NDArray[np.float32], wanted: Wanted) -> Likeliest:
        # logsumexp takes ten times as long where x is -inf
        chances, places = torch.from_numpy(x).softmax(-1).topk(min(wanted.width, x.shape[1]))
        return chosen(places.tolist(), chances.log().tolist(), wanted)

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
        bounds = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_double, ctypes.c_int64)
        self._likeliest.argtypes = (*rows, *bounds, ctypes.c_void_p, ctypes.c_void_p)
        self._likeliest.restype = ctypes.c_int64
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

    def likeliest(self, x: NDArray[np.float32], wanted: Wanted) -> Likeliest:
        width, above, least, most = wanted
        rows, size = x.shape
        room = rows * min(width, size)
        found, scores = (ctypes.c_int64 * (2 * room))(), (ctypes.c_double * (2 * room))()
        paths = (ctypes.c_double * rows)(*above)
        kept = self._likeliest(address(x), rows, size, room // rows, paths, least, most, found, scores)
        if kept < 0:
            return InTorch().likeliest(x, wanted)
        return found[:kept], found[room : room + kept], scores[:kept]

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
