"""Random weights of grouped products, and their products by the kernels."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.model import native
from headstart.model.decoders.grouped import GroupedLinear
from headstart.model.grouped import UNIT, GroupedWeights, JoinedWeights
from headstart.model.native.grouping import FLOATS, HALVES, POWERS, UNITS
from headstart.model.native.weights import NativeWeights

F32 = NDArray[np.float32]

FORMS = {"floats": FLOATS, "halves": HALVES, "units": UNITS, "powers": POWERS}

TABLED = 0
"""Of `bits`: codes of four bits that stand for numbers of a table."""

TABLE = np.array([-128, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 127], np.int8)


def weights_of(
    shape: tuple[int, int], bits: int, group: int, form: str, *, middle: bool, seed: int = 0
) -> GroupedWeights:
    """Random weights whose scales the form holds. middle: symmetric codes, whose zero stands in the middle."""
    rng = np.random.default_rng(seed)
    outputs, inputs = shape
    groups, blocks = -(-inputs // group), -(-inputs // UNIT)
    codes = rng.integers(0, 1 << (bits or 4), shape, dtype=np.uint8)

    def numbers() -> tuple[F32, F32 | None]:
        if form == "units":
            units = rng.standard_normal((outputs, blocks)).astype(np.float16).astype(np.float32)
            spread = np.repeat(units, UNIT // group, axis=1)[:, :groups]
            return (rng.integers(-128, 128, (outputs, groups)) * spread).astype(np.float32), units
        if form == "powers":
            return np.ldexp(np.float32(1), rng.integers(-20, 3, (outputs, groups)), dtype=np.float32), None
        drawn = rng.standard_normal((outputs, groups))
        return (drawn.astype(np.float16) if form == "halves" else drawn).astype(np.float32), None

    (scales, scale_units), (minimums, minimum_units) = numbers(), numbers()
    if bits == TABLED:
        return GroupedWeights(codes, 4, group, scales, np.zeros_like(scales), scale_units, table=TABLE)
    if middle:
        minimums, minimum_units = np.float32(1 << bits - 1) * scales, None
    return GroupedWeights(codes, bits, group, scales, minimums, scale_units, minimum_units)


def multiply(weights: GroupedWeights | JoinedWeights, x: F32, *, threads: int = 1, bias: F32 | None = None) -> F32:
    held = NativeWeights(native.GROUPED4)
    product = held.product(GroupedLinear(weights, None if bias is None else torch.from_numpy(bias)))
    y = np.full((len(x), weights.shape[0]), np.nan, np.float32)
    native.kernels().multiply(product, x.ctypes.data, len(x), y.ctypes.data, threads)
    return y


def rows(count: int, inputs: int, seed: int = 1) -> F32:
    return np.random.default_rng(seed).standard_normal((count, inputs)).astype(np.float32)
