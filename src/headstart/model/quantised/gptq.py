"""GPTQ and AWQ: unsigned codes in int32 words, with a float16 scale and a whole zero for each group.

GPTQ packs eight inputs of an output into a word, AutoAWQ's "gemm" eight outputs of an input. Layouts from AutoGPTQ,
GPTQModel and AutoAWQ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.grouped import GroupedWeights
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

_AWQ_ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])
"""Which of eight outputs each nibble of a word belongs to, from the lowest."""


@dataclass(frozen=True)
class _Grouped:
    """Settings that both have."""

    bits: int
    group: int
    """Inputs of a group, or -1 for all."""
    label = ""
    mark = "qweight"
    by_output = False

    @property
    def name(self) -> str:
        return f"{self.label} {self.bits}-bit, {'whole outputs' if self.group < 0 else f'groups of {self.group}'}"

    @property
    def kind(self) -> str | None:
        return f"int8 by {max(32, part_of(whole(self.group, 1)))}"

    @property
    def bits_of_a_weight(self) -> float:
        return self.bits + 64 / part_of(whole(self.group, 1))  # a scale and a minimum in float32

    def _scales(self, of: Outputs) -> NDArray[np.float32]:
        return of.floats("scales", ALL, of.rows).t().contiguous().numpy()

    def _parts(self, shape: Shape) -> dict[str, Part]:
        outputs, inputs = shape
        groups = -(-inputs // whole(self.group, inputs))
        return {
            "scales": Part(((groups, outputs),), FLOATS),
            "qzeros": Part(((groups, outputs * self.bits // 32),), ("I32",)),
        }


@dataclass(frozen=True)
class Gptq(_Grouped):
    """GPTQ. Where inputs were taken by their weight (desc_act), those of a group are brought together once, and the
    rows that are multiplied are put into the same order."""

    offset: int = 1
    """What is added to stored zeros: 1 in version 1 of the format, 0 in version 2."""
    label = "GPTQ"

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

    def numbers(self, of: Outputs) -> Tensor:
        return torch.from_numpy(self.codes(of).dequantise())


@dataclass(frozen=True)
class Awq(_Grouped):
    """AutoAWQ's "gemm"."""

    label = "AWQ"

    def parts(self, shape: Shape) -> dict[str, Part]:
        outputs, inputs = shape
        return self._parts(shape) | {"qweight": Part(((inputs, outputs * self.bits // 32),), ("I32",))}

    def codes(self, of: Outputs) -> GroupedWeights:
        words, among = of.by_words(8)
        codes, zeros = (_in_order(unpacked(of.words(kind, ALL, words), 4))[:, among] for kind in ("qweight", "qzeros"))
        scales = self._scales(of)
        group = whole(self.group, of.shape[1])
        return in_groups(np.ascontiguousarray(codes.T), 4, group, scales, zeros.T.astype(np.float32))

    def numbers(self, of: Outputs) -> Tensor:
        return torch.from_numpy(self.codes(of).dequantise())


def _in_order(stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
    eights = stored.reshape(len(stored), -1, 8)
    codes = np.empty_like(eights)
    codes[..., _AWQ_ORDER] = eights
    return codes.reshape(len(stored), -1)
