"""The arithmetic of grouped products in NumPy, in the steps of grouped.h: its results are the kernels' bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headstart.model.grouped import GroupedWeights
from headstart.model.native.grouping import STORED, form_of

F32 = NDArray[np.float32]


def fused(a: F32, b: F32, c: F32) -> F32:
    """a * b + c, rounded once. The product is exact in float64; the sum is rounded to odd there, so that rounding it to
    float32 is the only rounding that shows."""
    product, c64 = a.astype(np.float64) * b, c.astype(np.float64)
    with np.errstate(invalid="ignore"):
        total = product + c64
        back = total - product
        error = (product - (total - back)) + (c64 - back)
    bits = np.ascontiguousarray(total).view(np.int64)
    odd = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    with np.errstate(over="ignore"):
        return np.where(odd, bits + toward, bits).view(np.float64).astype(np.float32)


def round_rows(x: F32, together: int) -> tuple[NDArray[np.int64], F32]:
    """Rows [M, inputs] as int8 codes, and their scales [M, blocks] of so many inputs together."""
    codes, scales = np.zeros(x.shape, np.int64), []
    for begin in range(0, x.shape[1], together):
        block = x[:, begin : begin + together]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            bad = ~np.isfinite(block).all(axis=1)
            peak = np.abs(block).max(axis=1)
            inverse = np.where(peak > np.float32(1e-30), np.float32(127) / peak, np.float32(0)).astype(np.float32)
            rounded = np.rint(block.astype(np.float64) * inverse[:, None])
        codes[:, begin : begin + together] = np.where(bad[:, None], 0, rounded)
        scales.append(np.where(bad, np.float32("nan"), peak / np.float32(127)).astype(np.float32))
    return codes, np.stack(scales, axis=1)


def product(weights: GroupedWeights, x: F32, bias: F32 | None = None) -> F32:
    """y [M, outputs] = x W^T + bias."""
    multiple = form_of(weights).minimum
    codes, group = weights.codes if weights.table is None else weights.table[weights.codes], weights.group
    together = max(32, group)
    rows, factors = round_rows(x, together)
    total = np.zeros((len(x), len(codes)), np.float32)
    for g, at in enumerate(range(0, x.shape[1], group)):
        mine = rows[:, at : at + group]
        sums = mine.sum(axis=1)[:, None]
        whole = mine @ codes[:, at : at + group].T.astype(np.int64)
        if multiple != STORED:
            whole -= multiple * sums
        scaled = whole.astype(np.float32) * weights.scales[None, :, g]
        if multiple == STORED:
            scaled = fused(-sums.astype(np.float32), weights.minimums[None, :, g], scaled)
        total = fused(scaled, factors[:, at // together, None], total)
    return total if bias is None else total + bias


def int8_product(weight: F32, x: F32, bias: F32 | None = None) -> F32:
    """y [M, outputs] = x W^T + bias of the kind INT8: rows and outputs rounded to int8, each with its own scale."""

    def scales(numbers: F32) -> tuple[F32, F32]:
        peak = np.abs(numbers).max(axis=1, keepdims=True)
        return peak / np.float32(127), np.float32(127) / peak

    scale, inverse = scales(weight)
    codes = np.rint(weight * inverse).astype(np.int64)
    factor, inverse = scales(x)
    whole = np.rint(x.astype(np.float64) * inverse).astype(np.int64) @ codes.T
    scaled = whole.astype(np.float32) * scale.T
    return scaled * factor if bias is None else fused(scaled, np.broadcast_to(factor, scaled.shape), bias)
