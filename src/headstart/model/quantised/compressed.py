"""compressed-tensors: int8 matrices as they are, and 4- or 8-bit codes packed into int32 words along the inputs.

Layouts from vllm-project/compressed-tensors (`pack_to_int32`): numbers are signed, and stored with half of their range
added where they are packed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headstart.model.grouped import ChannelWeights, GroupedWeights
from headstart.model.quantised.layout import (
    ALL,
    FLOATS,
    Outputs,
    Part,
    Shape,
    in_groups,
    order_of,
    part_of,
    unpacked,
    whole,
)  # fmt: skip


@dataclass(frozen=True)
class Channels:
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

    def numbers(self, of: Outputs) -> Tensor:
        return torch.from_numpy(self.codes(of).dequantise())


@dataclass(frozen=True)
class Packed:
    """ "pack-quantized": codes of 4 or 8 bits in groups, with zeros or without."""

    bits: int
    group: int
    """Inputs of a group, or -1 for all."""
    zeros: bool
    ordered: bool
    """Whether groups were made of inputs that do not stand together."""
    mark, by_output = "weight_packed", False

    @property
    def name(self) -> str:
        return f"compressed-tensors W{self.bits}A16, {'whole outputs' if self.group < 0 else f'groups of {self.group}'}"

    @property
    def kind(self) -> str | None:
        return f"int8 by {max(32, part_of(whole(self.group, 1)))}"

    @property
    def bits_of_a_weight(self) -> float:
        return self.bits + (64 if self.zeros else 32) / part_of(whole(self.group, 1))

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

    def numbers(self, of: Outputs) -> Tensor:
        return torch.from_numpy(self.codes(of).dequantise())
