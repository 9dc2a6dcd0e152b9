"""From blocks, as they lie in a file, to codes with scales and minimums: types of 32 inputs a block, and floats.

Layouts from ggml-common.h of ggml-org/llama.cpp. Half-precision scales, nibbles low before high: the first half of a
block's inputs is in the low nibbles, the second in the high ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import DamagedModel
from headstart.model.gguf.header import Tensor
from headstart.model.gguf.superblocks import iq4_xs, q4_k, q5_k, q6_k
from headstart.model.gguf.tables import IQ4
from headstart.model.grouped import GroupedWeights, Rows

Bytes = NDArray[np.uint8]


def grouped(tensor: Tensor, rows: Rows = slice(None)) -> GroupedWeights | None:
    """Some rows of a tensor as codes; None where it holds floats.

    Raises:
        DamagedModel: a scale is no finite number.
    """
    return decoded(tensor, rows) if tensor.type.name in DECODERS else None


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
    return raw.view("<f2" if tensor.type.name == "F16" else "<f4").astype(np.float32)


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
    return _made(IQ4[_nibbles(blocks[..., 2:])], 8, scale, 128 * scale)


def _made(codes: Bytes, bits: int, scales: NDArray[np.float32], minimums: NDArray[np.float32]) -> GroupedWeights:
    """codes [rows, blocks, 32]; scales and minimums [rows, blocks]."""
    return GroupedWeights(codes.reshape(len(codes), -1), bits, codes.shape[-1], scales, minimums)


def _half(blocks: Bytes, at: int) -> NDArray[np.float32]:
    """The half-precision number at this byte of each block."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0].astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    return np.concatenate((packed & 15, packed >> 4), axis=-1)


def _fifth(packed: Bytes) -> Bytes:
    """The fifth bits of a block's 32 codes, in their place."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << np.uint8(4)


DECODERS: dict[str, Callable[[Bytes], GroupedWeights]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": iq4_xs,
}
"""By type: blocks [rows, blocks, bytes] to codes."""

BITS = {
    "Q4_0": 4, "Q4_1": 4, "Q5_0": 5, "Q5_1": 5, "Q8_0": 8, "Q4_K": 4, "Q5_K": 5, "Q6_K": 6, "IQ4_NL": 8, "IQ4_XS": 8,
}  # fmt: skip
"""By type: of its codes, after a table has been looked up."""
