"""From blocks to codes: types of 256 inputs a block, whose groups have small whole scales of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headstart.model.gguf.tables import IQ4
from headstart.model.grouped import GroupedWeights

Bytes = NDArray[np.uint8]


def q4_k(blocks: Bytes) -> GroupedWeights:
    """Two halves, 12 bytes of scales and minimums, 128 of nibbles."""
    scales, minimums = _scales_and_minimums(blocks)
    return _made(_chunks(blocks[..., 16:144]), 4, scales, minimums)


def q5_k(blocks: Bytes) -> GroupedWeights:
    """As Q4_K, with 32 bytes of fifth bits before the nibbles: bit i of byte j belongs to input 32 i + j."""
    scales, minimums = _scales_and_minimums(blocks)
    high = (blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    return _made(_chunks(blocks[..., 48:176]) | high << np.uint8(4), 5, scales, minimums)


def q6_k(blocks: Bytes) -> GroupedWeights:
    """128 bytes of low nibbles, 64 of high pairs of bits, 16 signed scales of 16 inputs each, and a half.

    Each half of a block has 64 nibble bytes and 32 bytes of pairs; pair i of byte j belongs to input 32 i + j.
    """
    rows, count = blocks.shape[:2]
    low = blocks[..., :128].reshape(rows, count, 2, 1, 64)
    nibbles = np.concatenate((low & 15, low >> 4), axis=-2).reshape(rows, count, 2, 4, 32)
    pairs = blocks[..., 128:192].reshape(rows, count, 2, 1, 32)
    high = (pairs >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    codes = (nibbles | high << np.uint8(4)).reshape(rows, count, 16, 16)
    scales = _half(blocks, 208)[..., None] * blocks[..., 192:208].view(np.int8).astype(np.float32)
    return _made(codes, 6, scales, 32 * scales)


def iq4_xs(blocks: Bytes) -> GroupedWeights:
    """A half, 2 bytes of high and 4 of low bits of 8 scales, 128 bytes of nibbles into a table."""
    low = np.stack((blocks[..., 4:8] & 15, blocks[..., 4:8] >> 4), axis=-1).reshape(*blocks.shape[:2], 8)
    packed = np.ascontiguousarray(blocks[..., 2:4]).view("<u2")
    high = (packed >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    whole = (low | high.astype(np.uint8) << 4).astype(np.float32) - 32
    scales = _half(blocks, 0)[..., None] * whole
    return _made(IQ4[_chunks(blocks[..., 8:136], 16)], 8, scales, 128 * scales)


def _scales_and_minimums(blocks: Bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Of the 8 groups of a block [rows, blocks, 8]: 6 bits each, the upper two of the last four packed into the
    first."""
    first, second, third = (blocks[..., at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate((first & 63, (third & 15) | (first >> 6) << 4), axis=-1)
    minimums = np.concatenate((second & 63, (third >> 4) | (second >> 6) << 4), axis=-1)
    return _half(blocks, 0)[..., None] * scales, _half(blocks, 2)[..., None] * minimums


def _chunks(packed: Bytes, size: int = 32) -> Bytes:
    """Nibbles [rows, blocks, 8, 32] of 128 bytes: each `size` bytes hold as many inputs low, and the next high."""
    four = packed.reshape(*packed.shape[:2], -1, 1, size)
    return np.concatenate((four & 15, four >> 4), axis=-2).reshape(*packed.shape[:2], 8, 32)


def _made(codes: Bytes, bits: int, scales: NDArray[np.float32], minimums: NDArray[np.float32]) -> GroupedWeights:
    """codes [rows, blocks, groups, inputs of a group]; scales and minimums [rows, blocks, groups]."""
    rows = len(codes)
    return GroupedWeights(
        codes.reshape(rows, -1), bits, codes.shape[-1], scales.reshape(rows, -1), minimums.reshape(rows, -1)
    )


def _half(blocks: Bytes, at: int) -> NDArray[np.float32]:
    """The half-precision number at this byte of each block."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0].astype(np.float32)
