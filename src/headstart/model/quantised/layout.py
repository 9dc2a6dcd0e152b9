"""A way to store quantised matrices, its parts in a checkpoint, and what several such ways share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.grouped import GROUPS, ChannelWeights, GroupedWeights
from headstart.model.quantised.tensors import Tensors

Shape = tuple[int, int]
"""Outputs, inputs."""

FLOATS = ("F16", "BF16", "F32")


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor that belongs to a quantised matrix."""

    shapes: tuple[tuple[int, ...], ...]
    """What its shape may be."""
    types: tuple[str, ...]
    """As safetensors name them."""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Outputs:
    """Some outputs of a quantised matrix, and where it is read."""

    tensors: Tensors
    module: str
    shape: Shape
    """Of the whole matrix."""
    first: int
    end: int

    def has(self, kind: str) -> bool:
        return f"{self.module}.{kind}" in self.tensors.names

    def words(self, kind: str, *index: slice) -> Tensor:
        """A tensor of this matrix, or a part of it."""
        return self.tensors.read(f"{self.module}.{kind}", *index)

    def floats(self, kind: str, *index: slice) -> Tensor:
        """The same in float32; see `Tensors.floats`."""
        return self.tensors.floats(f"{self.module}.{kind}", *index)

    @property
    def rows(self) -> slice:
        return slice(self.first, self.end)

    def by_words(self, each: int) -> tuple[slice, slice]:
        """The words of `each` outputs that hold these, and their places in them."""
        before = self.first % each
        return slice(self.first // each, -(-self.end // each)), slice(before, before + self.end - self.first)


ALL = slice(None)


class Layout(ABC):
    """How quantised matrices are stored."""

    name: str
    """What people call it, with its bits and groups."""
    mark: str
    """The tensor that every quantised module has."""
    kind: str | None
    """What rows are rounded to where it runs on its codes; None if it cannot."""
    by_output: bool = False
    """Whether scales are of whole outputs: see `ChannelWeights`."""
    bits: int
    """Of a code."""
    bits_of_a_weight: float
    """Memory of a weight in the kernels, at most."""

    @abstractmethod
    def parts(self, shape: Shape) -> dict[str, Part]:
        """The tensors of a matrix of this shape."""

    @abstractmethod
    def codes(self, of: Outputs) -> GroupedWeights | ChannelWeights:
        """These outputs."""

    def numbers(self, of: Outputs) -> Tensor:
        """The same in float32."""
        return torch.from_numpy(self.codes(of).dequantise())


class InGroups(Layout):
    """Codes whose inputs share a scale and a zero by groups. group: their inputs, or -1 for all; zeros: whether a
    minimum is kept beside each scale."""

    label: str

    def __init__(self, bits: int, group: int, *, zeros: bool = True) -> None:
        self.bits, self.group, self.zeros = bits, group, zeros
        self.name = f"{self.label.format(bits)}, {'whole outputs' if group < 0 else f'groups of {group}'}"

    @property
    def kind(self) -> str | None:  # type: ignore[override]  # groups that do not run are refused at the first use
        return f"int8 by {max(32, part_of(whole(self.group, 1)))}"

    @property
    def bits_of_a_weight(self) -> float:  # type: ignore[override]
        return self.bits + (64 if self.zeros else 32) / part_of(whole(self.group, 1))  # float32 each


def unpacked(words: Tensor, bits: int) -> NDArray[np.uint8]:
    """The codes [rows, n] in int32 words [rows, n * bits / 32]: the first code is in the lowest bits of the first."""
    rows = len(words)
    whole = words.contiguous().numpy().view(np.uint8).reshape(rows, -1)
    if bits == 8:
        return whole
    return np.stack((whole & 15, whole >> 4), axis=-1).reshape(rows, -1)


def in_groups(
    codes: NDArray[np.uint8],
    bits: int,
    group: int,
    scales: NDArray[np.float32],
    zeros: NDArray[np.float32],
    order: NDArray[np.int32] | None = None,
) -> GroupedWeights:
    """Weights scale * (code - zero), with scales and zeros [outputs, groups], in groups that the kernels have: those
    that are longer are cut, and each part keeps the scale."""
    inputs, part = codes.shape[1], part_of(group)
    minimums = scales * zeros
    if group != part:
        count = -(-inputs // part)
        scales, minimums = (np.repeat(each, group // part, axis=1)[:, :count] for each in (scales, minimums))
    return GroupedWeights(codes, bits, part, np.ascontiguousarray(scales), np.ascontiguousarray(minimums), order=order)


def part_of(group: int) -> int:
    """The inputs that are rounded together where so many share a scale.

    Raises:
        UnsupportedModel: the kernels have no groups that make up such a one.
    """
    fitting = [each for each in GROUPS if each <= FINEST and group % each == 0]
    if not fitting:
        raise UnsupportedModel(
            f"groups of {group} inputs do not run on the codes", hint="load it with quantize='none', in floats"
        )
    return max(fitting)


FINEST = 128
"""The most inputs of a row that are rounded together."""


def whole(group: int, inputs: int) -> int:
    """The inputs of a group; -1 in a config means all of them, and they are then counted up to whole parts."""
    return group if group > 0 else -(-inputs // 128) * 128


def order_of(stored: Tensor, module: str, size: int) -> NDArray[np.int32] | None:
    """The places of the inputs of the first group, of the second, and so on; None if they are in this order already.

    stored: the group of each input.

    Raises:
        UnsupportedModel: groups are not all of this size.
    """
    groups = stored.numpy()
    expected = np.arange(len(groups)) // size
    if np.array_equal(groups, expected):
        return None
    order = np.argsort(groups, kind="stable").astype(np.int32)
    if not np.array_equal(groups[order], expected):
        raise UnsupportedModel(
            f"the groups of inputs of {module} are not all of {size}",
            hint="quantise the model again, or give the original checkpoint",
        )
    return order
