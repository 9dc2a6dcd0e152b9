"""MXFP4: experts of 4-bit floats in groups of 32, each group with a power of two, as GPT-OSS is published.

A parameter of experts is two tensors: `*_blocks` [experts, outputs, groups, 16], two codes in a byte, the first in the
low half; and `*_scales` [experts, outputs, groups], exponents counted from -127. Source: the OCP Microscaling Formats
(MX) Specification 1.0, and openai/gpt-oss. All other matrices are floats.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.gguf.blocks import FORMS, mxfp4
from headstart.model.grouped import BlockRows, ChannelWeights, GroupedWeights, Rows, StoredWeights
from headstart.model.quantised.layout import Layout, Outputs, Part, Shape
from headstart.model.quantised.tensors import Tensors

_GROUP = 32


class Mxfp4(Layout):
    """Experts in MXFP4; no linear layer is."""

    name, mark, kind, bits, bits_of_a_weight = "MXFP4", "weight_blocks", "int8 by 32", 4, 4.25

    def parts(self, shape: Shape) -> dict[str, Part]:
        outputs, inputs = shape
        return {"weight_blocks": Part(((outputs, inputs // _GROUP, 16),), ("U8",))}

    def codes(self, of: Outputs) -> GroupedWeights | ChannelWeights:
        raise UnsupportedModel(f"{of.module} is MXFP4, and no expert", hint="give the original checkpoint, or GGUF")


class ExpertsOfCodes:
    """The experts of one parameter, whose inputs come before their outputs in the shape that transformers has.

    Raises:
        DamagedModel: a tensor is missing, or of another shape or type.
    """

    def __init__(self, tensors: Tensors, parameter: str, shape: tuple[int, ...]) -> None:
        self.tensors, self.parameter = tensors, parameter
        self.count, self.inputs, self.outputs = shape
        groups = -(-self.inputs // _GROUP)
        if self.inputs % _GROUP:
            raise tensors.damaged(f"{parameter!r} has {self.inputs} inputs, no multiple of {_GROUP}")
        wanted = {"blocks": (self.count, self.outputs, groups, 16), "scales": (self.count, self.outputs, groups)}
        self.names = {f"{parameter}_{kind}" for kind in wanted}
        for kind, each in wanted.items():
            name = f"{parameter}_{kind}"
            if name not in tensors.names:
                raise tensors.damaged(f"tensor {name!r} is missing")
            found = tensors.dtype(name), tensors.shape(name)
            if found != ("U8", each):
                raise tensors.damaged(f"tensor {name!r} is {found[0]} {list(found[1])}, and U8 {list(each)} is needed")

    def matrices(self, *, interleaved: bool) -> list[StoredWeights]:
        """Those of each expert [outputs, inputs], read when they are needed; interleaved ones with every second output
        first."""
        order = np.arange(self.outputs)
        if interleaved:
            order = np.concatenate([order[::2], order[1::2]])

        def of(number: int) -> StoredWeights:
            shape = self.outputs, self.inputs
            return StoredWeights(
                shape, 4, lambda rows: self._read(number, order[rows]), blocks=lambda: (self._blocks(number, order),)
            )

        return [of(number) for number in range(self.count)]

    def fill(self, to: Tensor) -> None:
        """Read all of them into a parameter [experts, inputs, outputs], rounded to its dtype."""
        for number, each in enumerate(to):
            each.copy_(torch.from_numpy(self._read(number, slice(None)).dequantise()).T)

    def _stored(self, number: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Codes and exponents of an expert."""
        only = slice(number, number + 1)
        blocks, exponents = (
            self.tensors.read(f"{self.parameter}_{kind}", only)[0].numpy() for kind in ("blocks", "scales")
        )
        return blocks, exponents

    def _blocks(self, number: int, order: NDArray[np.intp]) -> BlockRows:
        """An expert in the blocks of GGUF, which the kernels pack: the exponent, and codes of which the first half is
        in the low nibbles."""
        blocks, exponents = self._stored(number)
        made = np.empty((*exponents.shape, 1 + _GROUP // 2), np.uint8)
        made[..., 0] = exponents
        # two codes in turn from a number of 64 bits: eight bytes hold 16 of them, in the order of its nibbles
        low, high = np.moveaxis(np.ascontiguousarray(blocks).view("<u8"), -1, 0)
        even = np.uint64(0x0F0F0F0F0F0F0F0F)
        firsts, seconds = (low & even) | (high & even) << np.uint64(4), low >> np.uint64(4) & even | high & ~even
        made[..., 1::2] = firsts[..., None].view(np.uint8)
        made[..., 2::2] = seconds[..., None].view(np.uint8)
        rows = (made.ctypes.data + order * made.strides[0]).astype(np.intp)
        return BlockRows(f"{self.parameter}_scales", FORMS["MXFP4"], rows, self.inputs, (made.reshape(-1),))

    def _read(self, number: int, rows: Rows) -> GroupedWeights:
        blocks, exponents = (each[rows] for each in self._stored(number))
        found = mxfp4(_codes(blocks), exponents.astype(np.int32) - 128)  # for doubled numbers
        if not np.isfinite(found.scales).all():
            raise self.tensors.damaged(f"tensor '{self.parameter}_scales' holds an exponent of no finite number")
        return found


def _codes(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.stack((blocks & 15, blocks >> 4), axis=-1).reshape(*blocks.shape[:2], _GROUP)
