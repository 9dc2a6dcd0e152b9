"""From blocks, as they lie in a file, to codes with scales and minimums; and to floats.

Layouts from ggml-common.h of ggml-org/llama.cpp. Blocks of 32 inputs have half-precision scales, and nibbles low before
high: the first half of a block's inputs is in the low nibbles, the second in the high ones. In blocks of 256, groups of
inputs have small whole scales of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import DamagedModel
from headstart.model import native
from headstart.model.gguf.header import Tensor
from headstart.model.grouped import BlockForm, GroupedWeights, Rows
from headstart.model.native.grouping import HALVES, POWERS, STORED, UNITS

Bytes = NDArray[np.uint8]

IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
"""What the 16 codes of IQ4_NL and IQ4_XS stand for (kvalues_iq4nl of ggml-common.h)."""

MXFP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""What its 16 codes stand for, floats with 2 bits of exponent and 1 of fraction, doubled. Source: the OCP Microscaling
Formats (MX) Specification 1.0."""

_PLAIN = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}

_TOO_LARGE = 125
"""An exponent of MXFP4 with which its largest number, 12, is no float32; 255 stands for no number at all."""


def grouped(tensor: Tensor, rows: Rows = slice(None)) -> GroupedWeights | None:
    """Some rows of a tensor as codes; None where it holds floats.

    Raises:
        DamagedModel: a scale is no finite number.
    """
    return decoded(tensor, rows) if tensor.type.bits else None


def decoded(tensor: Tensor, rows: Rows = slice(None)) -> GroupedWeights:
    """The same of a tensor that is known to hold codes."""
    decode = DECODERS[tensor.type.name]
    raw = tensor.data[rows]
    with np.errstate(invalid="ignore"):
        found = decode(raw.reshape(len(raw), -1, tensor.type.size))
    if not (np.isfinite(found.scales).all() and np.isfinite(found.minimums).all()):
        raise DamagedModel(
            f"tensor {tensor.name!r} holds a scale that is no finite number",
            hint="the file is damaged: copy or download it again",
        )
    return found


def floats(tensor: Tensor, rows: Rows = slice(None)) -> NDArray[np.float32]:
    """Some rows of a tensor as float32 [rows, inputs], whatever its type."""
    codes = grouped(tensor, rows)
    if codes is not None:
        return codes.dequantise()
    raw = tensor.data[rows]
    if tensor.type.name == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return raw.view(_PLAIN[tensor.type.name]).astype(np.float32)


def _q4_0(blocks: Bytes) -> GroupedWeights:
    scale = _half(blocks, 0)
    return _made(_nibbles(blocks[..., 2:]), 4, scale, 8 * scale)


def _q4_1(blocks: Bytes) -> GroupedWeights:
    return _made(_nibbles(blocks[..., 4:]), 4, _half(blocks, 0), -_half(blocks, 2))


def _q5_0(blocks: Bytes) -> GroupedWeights:
    scale = _half(blocks, 0)
    return _made(_nibbles(blocks[..., 6:]) | _fifth(blocks[..., 2:6]), 5, scale, 16 * scale)


def _q5_1(blocks: Bytes) -> GroupedWeights:
    return _made(_nibbles(blocks[..., 8:]) | _fifth(blocks[..., 4:8]), 5, _half(blocks, 0), -_half(blocks, 2))


def _q8_0(blocks: Bytes) -> GroupedWeights:
    scale = _half(blocks, 0)
    return _made(blocks[..., 2:] ^ np.uint8(0x80), 8, scale, 128 * scale)  # signed numbers, counted from -128


def _iq4_nl(blocks: Bytes) -> GroupedWeights:
    scale = _half(blocks, 0)
    return _made(_nibbles(blocks[..., 2:]), 4, scale, None, table=IQ4)


def _mxfp4(blocks: Bytes) -> GroupedWeights:
    """A byte of exponent, counted from -128 for doubled numbers, and 16 of nibbles into a table."""
    return mxfp4(_nibbles(blocks[..., 1:]), blocks[..., 0].astype(np.int32) - 128)


def mxfp4(codes: Bytes, exponents: NDArray[np.int32]) -> GroupedWeights:
    """Weights of codes [rows, groups, 32] into the table, with exponents [rows, groups]. Scales that would make numbers
    too large are NaN."""
    scales = np.where(exponents < _TOO_LARGE, np.ldexp(np.float32(1), exponents), np.float32("nan"))
    scales[~(codes & 7).any(axis=-1)] = 0  # blocks of zeros have the smallest exponent, which no normal float32 has
    return _made(codes, 4, scales.astype(np.float32), None, table=MXFP4)


def _made(
    codes: Bytes,
    bits: int,
    scales: NDArray[np.float32],
    minimums: NDArray[np.float32] | None,
    scale_units: NDArray[np.float32] | None = None,
    minimum_units: NDArray[np.float32] | None = None,
    table: NDArray[np.int8] | None = None,
) -> GroupedWeights:
    """codes [rows, blocks, inputs], or [rows, blocks, groups, inputs of a group]; scales and minimums without the last;
    units [rows, blocks], where there are groups."""
    rows, group = len(codes), codes.shape[-1]
    scales = scales.reshape(rows, -1)
    least = np.zeros_like(scales) if minimums is None else minimums.reshape(rows, -1)
    return GroupedWeights(codes.reshape(rows, -1), bits, group, scales, least, scale_units, minimum_units, table=table)


def _half(blocks: Bytes, at: int) -> NDArray[np.float32]:
    """The half-precision number at this byte of each block."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0].astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """Codes [rows, blocks, 2 size] of blocks that lie evenly [rows, blocks, size]: the low halves of all, then the
    high."""
    rows, count, size = packed.shape
    even = packed.strides == (count * packed.strides[1], packed.strides[1], 1)
    if not (even and native.available()):
        return np.concatenate((packed & 15, packed >> 4), axis=-1)
    codes = np.empty((rows, count, 2 * size), np.uint8)
    native.kernels().nibbles(packed.ctypes.data, rows * count, packed.strides[1], size, codes.ctypes.data)
    return codes


def _fifth(packed: Bytes) -> Bytes:
    """The fifth bits of a block's 32 codes, in their place."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << np.uint8(4)


def _q2_k(blocks: Bytes) -> GroupedWeights:
    """16 bytes of scales and minimums of 16 inputs each, 64 of codes, and two halves."""
    units = _half(blocks, 80), _half(blocks, 82)
    packed = blocks[..., :16]
    scales, minimums = units[0][..., None] * (packed & 15), units[1][..., None] * (packed >> 4)
    return _made(_pairs(blocks[..., 16:80]), 2, scales, minimums, *units)


def _q3_k(blocks: Bytes) -> GroupedWeights:
    """32 bytes of third bits, 64 of pairs, 12 of 16 scales of 6 bits, and a half.

    Third bit i of byte j belongs to input 32 i + j. The low four bits of the scales fill 8 bytes, the first eight low
    and the others high; the upper two fill 4 bytes, bits 2 i and 2 i + 1 of byte j for scale 4 i + j.
    """
    rows, count = blocks.shape[:2]
    third = (blocks[..., None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    codes = _pairs(blocks[..., 32:96]) | third.reshape(rows, count, 16, 16) << np.uint8(2)
    low = np.concatenate((blocks[..., 96:104] & 15, blocks[..., 96:104] >> 4), axis=-1)
    high = (blocks[..., None, 104:108] >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    unit = _half(blocks, 108)
    scales = unit[..., None] * ((low | high.reshape(rows, count, 16) << np.uint8(4)).astype(np.float32) - 32)
    return _made(codes, 3, scales, 4 * scales, unit, 4 * unit)


def _pairs(packed: Bytes) -> Bytes:
    """Codes of two bits [rows, blocks, 16, 16] of 64 bytes: pair i of byte j of each half belongs to input 32 i + j."""
    rows, count = packed.shape[:2]
    halves = packed.reshape(rows, count, 2, 1, 32)
    return ((halves >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & np.uint8(3)).reshape(rows, count, 16, 16)


def _q4_k(blocks: Bytes) -> GroupedWeights:
    """Two halves, 12 bytes of scales and minimums, 128 of nibbles."""
    scales, minimums = _scales_and_minimums(blocks)
    return _made(_chunks(blocks[..., 16:144]), 4, scales, minimums, *_units(blocks))


def _q5_k(blocks: Bytes) -> GroupedWeights:
    """As Q4_K, with 32 bytes of fifth bits before the nibbles: bit i of byte j belongs to input 32 i + j."""
    scales, minimums = _scales_and_minimums(blocks)
    high = (blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    return _made(_chunks(blocks[..., 48:176]) | high << np.uint8(4), 5, scales, minimums, *_units(blocks))


def _q6_k(blocks: Bytes) -> GroupedWeights:
    """128 bytes of low nibbles, 64 of high pairs of bits, 16 signed scales of 16 inputs each, and a half.

    Each half of a block has 64 nibble bytes and 32 bytes of pairs; pair i of byte j belongs to input 32 i + j.
    """
    rows, count = blocks.shape[:2]
    low = blocks[..., :128].reshape(rows, count, 2, 1, 64)
    nibbles = np.concatenate((low & 15, low >> 4), axis=-2).reshape(rows, count, 2, 4, 32)
    codes = nibbles.reshape(rows, count, 16, 16) | _pairs(blocks[..., 128:192]) << np.uint8(4)
    unit = _half(blocks, 208)
    scales = unit[..., None] * blocks[..., 192:208].view(np.int8).astype(np.float32)
    return _made(codes, 6, scales, 32 * scales, unit, 32 * unit)


def _iq4_xs(blocks: Bytes) -> GroupedWeights:
    """A half, 2 bytes of high and 4 of low bits of 8 scales, 128 bytes of nibbles into a table."""
    low = np.stack((blocks[..., 4:8] & 15, blocks[..., 4:8] >> 4), axis=-1).reshape(*blocks.shape[:2], 8)
    packed = np.ascontiguousarray(blocks[..., 2:4]).view("<u2")
    high = (packed >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    whole = (low | high.astype(np.uint8) << 4).astype(np.float32) - 32
    unit = _half(blocks, 0)
    scales = unit[..., None] * whole
    return _made(_chunks(blocks[..., 8:136], 16), 4, scales, None, unit, table=IQ4)


def _scales_and_minimums(blocks: Bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Of the 8 groups of a block [rows, blocks, 8]: 6 bits each, the upper two of the last four packed into the
    first."""
    first, second, third = (blocks[..., at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate((first & 63, (third & 15) | (first >> 6) << 4), axis=-1)
    minimums = np.concatenate((second & 63, (third >> 4) | (second >> 6) << 4), axis=-1)
    return _half(blocks, 0)[..., None] * scales, _half(blocks, 2)[..., None] * minimums


def _chunks(packed: Bytes, size: int = 32) -> Bytes:
    """Nibbles [rows, blocks, 8, 32] of 128 bytes: each `size` bytes hold as many inputs low, and the next high."""
    rows, count = packed.shape[:2]
    parts = np.ascontiguousarray(packed).reshape(rows, -1, size)
    return _nibbles(parts).reshape(rows, count, 8, 32)


def _units(blocks: Bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What the scales and the minimums of a block are whole multiples of."""
    return _half(blocks, 0), _half(blocks, 2)


DECODERS: dict[str, Callable[[Bytes], GroupedWeights]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
}
"""By type: blocks [rows, blocks, bytes] to codes."""

FORMS = {
    "Q4_0": BlockForm(2, 4, 32, HALVES, 8),
    "Q4_1": BlockForm(3, 4, 32, HALVES, STORED),
    "Q5_0": BlockForm(6, 5, 32, HALVES, 16),
    "Q5_1": BlockForm(7, 5, 32, HALVES, STORED),
    "Q8_0": BlockForm(8, 8, 32, HALVES, 128),
    "Q2_K": BlockForm(10, 2, 16, UNITS, STORED),
    "Q3_K": BlockForm(11, 3, 16, UNITS, 4),
    "Q4_K": BlockForm(12, 4, 32, UNITS, STORED),
    "Q5_K": BlockForm(13, 5, 32, UNITS, STORED),
    "Q6_K": BlockForm(14, 6, 16, UNITS, 32),
    "IQ4_NL": BlockForm(20, 4, 32, HALVES, 0, IQ4),
    "IQ4_XS": BlockForm(23, 4, 32, UNITS, 0, IQ4),
    "MXFP4": BlockForm(39, 4, 32, POWERS, 0, MXFP4),
}
"""By type, what the kernels make of its blocks (blocks.h)."""
