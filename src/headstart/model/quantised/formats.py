"""The layouts that are known: compressed-tensors, GPTQ, AWQ and FP8.

compressed-tensors has int8 matrices as they are, and 4- or 8-bit codes packed into int32 words along the inputs; its
numbers are signed, and stored with half of their range added where they are packed. GPTQ and AWQ have unsigned codes in
int32 words, with a float16 scale and a whole zero for each group: GPTQ packs eight inputs of an output into a word,
AutoAWQ's "gemm" eight outputs of an input.

Layouts from vllm-project/compressed-tensors (`pack_to_int32`), AutoGPTQ, GPTQModel and AutoAWQ.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.grouped import ChannelWeights, GroupedWeights
from headstart.model.quantised.layout import (
    ALL,
    FLOATS,
    InGroups,
    Layout,
    Outputs,
    Part,
    Shape,
    in_groups,
    order_of,
    unpacked,
    whole,
)  # fmt: skip


class Channels(Layout):
    """W8A8, "int-quantized": int8 weights with a scale for each output, rows rounded to int8 with a scale for each."""

    name = "compressed-tensors W8A8"
    mark, kind, by_output, bits = "weight", "int8 by the row, as its makers had it", True, 8
    bits_of_a_weight = 8.0

    def parts(self, shape: Shape) -> dict[str, Part]:
        outputs, _ = shape
        return {
            "weight": Part((shape,), ("I8",)),
            "weight_scale": Part(((outputs, 1), (outputs,), (1,), ()), FLOATS),
        }

    def codes(self, of: Outputs) -> ChannelWeights:
        scales = of.floats("weight_scale").reshape(-1).expand(of.shape[0])[of.rows].contiguous()
        return ChannelWeights(of.words("weight", of.rows, ALL).numpy(), scales.numpy())


class Packed(InGroups):
    """ "pack-quantized": codes of 4 or 8 bits in groups, with zeros or without. ordered: whether groups were made of
    inputs that are not side by side."""

    label, mark = "compressed-tensors W{}A16", "weight_packed"

    def __init__(self, bits: int, group: int, *, zeros: bool, ordered: bool) -> None:
        super().__init__(bits, group, zeros=zeros)
        self.ordered = ordered

    def parts(self, shape: Shape) -> dict[str, Part]:
        outputs, inputs = shape
        each, groups = 32 // self.bits, -(-inputs // whole(self.group, inputs))
        return {
            "weight_packed": Part(((outputs, -(-inputs // each)),), ("I32",)),
            "weight_scale": Part(((outputs, groups),), FLOATS),
            "weight_shape": Part(((2,),), ("I64", "I32"), needed=False),
            **({"weight_zero_point": Part(((-(-outputs // each), groups),), ("I32",))} if self.zeros else {}),
            **({"weight_g_idx": Part(((inputs,),), ("I32", "I64"))} if self.ordered else {}),
        }

    def codes(self, of: Outputs) -> GroupedWeights:
        inputs, half = of.shape[1], 1 << (self.bits - 1)
        codes = unpacked(of.words("weight_packed", of.rows, ALL), self.bits)[:, :inputs]
        scales = of.floats("weight_scale", of.rows, ALL).numpy()
        zeros = np.full(scales.shape, half, np.float32)
        if self.zeros:
            words, among = of.by_words(32 // self.bits)
            stored = unpacked(of.words("weight_zero_point", words, ALL).t(), self.bits)
            zeros = stored[:, among].T.astype(np.float32)
        group = whole(self.group, inputs)
        order = order_of(of.words("weight_g_idx"), of.module, group) if self.ordered else None
        codes = np.ascontiguousarray(codes if order is None else codes[:, order])
        return in_groups(codes, self.bits, group, scales, zeros, order)


_AWQ_ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])
"""Which of eight outputs each nibble of a word belongs to, from the lowest."""


class _QWeight(InGroups):
    """What GPTQ and AWQ share: scales and zeros by groups of inputs."""

    mark = "qweight"

    def _scales(self, of: Outputs) -> NDArray[np.float32]:
        return of.floats("scales", ALL, of.rows).t().contiguous().numpy()

    def _parts(self, shape: Shape) -> dict[str, Part]:
        outputs, inputs = shape
        groups = -(-inputs // whole(self.group, inputs))
        return {
            "scales": Part(((groups, outputs),), FLOATS),
            "qzeros": Part(((groups, outputs * self.bits // 32),), ("I32",)),
        }


class Gptq(_QWeight):
    """GPTQ. Where inputs were taken by their weight (desc_act), those of a group are brought together once, and the
    rows that are multiplied are put into the same order. offset: what is added to stored zeros, 1 in version 1 of the
    format and 0 in version 2."""

    label = "GPTQ {}-bit"

    def __init__(self, bits: int, group: int, offset: int = 1) -> None:
        super().__init__(bits, group)
        self.offset = offset

    def parts(self, shape: Shape) -> dict[str, Part]:
        outputs, inputs = shape
        return self._parts(shape) | {
            "qweight": Part(((inputs * self.bits // 32, outputs),), ("I32",)),
            "g_idx": Part(((inputs,),), ("I32", "I64"), needed=False),
        }

    def codes(self, of: Outputs) -> GroupedWeights:
        group = whole(self.group, of.shape[1])
        order = order_of(of.words("g_idx"), of.module, group) if of.has("g_idx") else None
        codes = unpacked(of.words("qweight", ALL, of.rows).t(), self.bits)
        words, among = of.by_words(32 // self.bits)
        zeros = unpacked(of.words("qzeros", ALL, words), self.bits)[:, among].T
        if self.offset and bool((zeros == (1 << self.bits) - 1).any()):
            raise UnsupportedModel(
                f"{of.module} holds a zero that programs read in different ways (all bits set, in version 1 of GPTQ)",
                hint="convert the checkpoint to checkpoint_format='gptq_v2', which has no such zeros",
            )
        if order is not None:
            codes = np.ascontiguousarray(codes[:, order])
        scales = self._scales(of)
        return in_groups(codes, self.bits, group, scales, zeros.astype(np.float32) + np.float32(self.offset), order)


class Awq(_QWeight):
    """AutoAWQ's "gemm"."""

    label = "AWQ {}-bit"

    def parts(self, shape: Shape) -> dict[str, Part]:
        outputs, inputs = shape
        return self._parts(shape) | {"qweight": Part(((inputs, outputs * self.bits // 32),), ("I32",))}

    def codes(self, of: Outputs) -> GroupedWeights:
        words, among = of.by_words(8)
        codes, zeros = (_in_order(unpacked(of.words(kind, ALL, words), 4))[:, among] for kind in ("qweight", "qzeros"))
        scales = self._scales(of)
        group = whole(self.group, of.shape[1])
        return in_groups(np.ascontiguousarray(codes.T), 4, group, scales, zeros.T.astype(np.float32))


def _in_order(stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
    eights = stored.reshape(len(stored), -1, 8)
    codes = np.empty_like(eights)
    codes[..., _AWQ_ORDER] = eights
    return codes.reshape(len(stored), -1)


BLOCK = 128


class Fp8(Layout):
    """Floats of eight bits (e4m3) with a scale for a tensor, for each output, or for blocks of both: "fp8" (blocks of
    128 x 128, DeepSeek's and Qwen's way) and compressed-tensors' "float-quantized". They run nowhere here as they are;
    `quantize="none"` makes floats of them."""

    mark, kind, bits, bits_of_a_weight = "weight", None, 8, 8.0

    def __init__(self, name: str) -> None:
        self.name = name

    def parts(self, shape: Shape) -> dict[str, Part]:
        outputs, inputs = shape
        blocks = (-(-outputs // BLOCK), -(-inputs // BLOCK))
        return {
            "weight": Part((shape,), ("F8_E4M3",)),
            "weight_scale_inv": Part((blocks,), FLOATS, needed=False),
            "weight_scale": Part(((outputs, 1), (outputs,), (1,), ()), FLOATS, needed=False),
            "input_scale": Part(((1,), ()), FLOATS, needed=False),
        }

    def codes(self, of: Outputs) -> GroupedWeights:
        raise UnsupportedModel(
            f"{self.name} does not run on the codes of {of.module}", hint="load it with quantize='none'"
        )

    def numbers(self, of: Outputs) -> Tensor:
        found = of.floats("weight", of.rows, ALL)
        if of.has("weight_scale_inv"):
            blocks = of.floats("weight_scale_inv")[torch.arange(of.first, of.end) // BLOCK]
            return found * blocks.repeat_interleave(BLOCK, 1)[:, : of.shape[1]]
        if not of.has("weight_scale"):
            raise of.tensors.damaged(f"{of.module} has no scale")
        return found * of.floats("weight_scale").reshape(-1).expand(of.shape[0])[of.rows, None]
