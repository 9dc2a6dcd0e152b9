"""Weights as whole numbers in groups, each group with a scale and a minimum: what 4-bit files hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.errors import UnsupportedModel

GROUPS = (16, 32, 128)
"""Inputs that may share a scale."""

UNIT = 256
"""Inputs whose scales may share a unit."""

_ROWS = 256  # outputs that are turned into numbers at a time, so that little memory is needed


@dataclass(frozen=True, slots=True)
class GroupedWeights:
    """A weight matrix [outputs, inputs] as codes: weight = scale * code - minimum, by groups along the inputs.

    Raises:
        UnsupportedModel: the arrays do not fit together.
    """

    codes: NDArray[np.uint8]
    """[outputs, inputs]: one code a byte, below 2 ** bits."""
    bits: int
    """How many bits a code needs: 4, 5, 6 or 8."""
    group: int
    """Inputs that share a scale: one of `GROUPS`. The last group may be shorter."""
    scales: NDArray[np.float32]
    """[outputs, groups], where groups = ceil(inputs / group)."""
    minimums: NDArray[np.float32]
    """[outputs, groups]."""
    scale_units: NDArray[np.float32] | None = None
    """[outputs, ceil(inputs / 256)] if each scale is a whole number from -128 to 127 times the unit of its 256 inputs,
    as in K-quants: the kernels then keep a byte for a scale. The scales are the same numbers with and without."""
    minimum_units: NDArray[np.float32] | None = None
    """The same for minimums."""

    def __post_init__(self) -> None:
        outputs, inputs = self.codes.shape
        groups, units = (outputs, -(-inputs // self.group)), (outputs, -(-inputs // UNIT))
        fits = self.group in GROUPS and 4 <= self.bits <= 8 and self.codes.dtype == np.uint8
        given = (self.scales, groups), (self.minimums, groups), (self.scale_units, units), (self.minimum_units, units)
        for array, shape in given:
            fits = fits and (array is None or (array.dtype == np.float32 and array.shape == shape))
        if not fits:
            raise UnsupportedModel(
                f"the scales of weights [{outputs}, {inputs}] of {self.bits} bits in groups of {self.group} do not fit",
                hint=f"groups have {', '.join(map(str, GROUPS))} inputs, and each a float32 scale and minimum",
            )

    def dequantise(self) -> NDArray[np.float32]:
        """The weights [outputs, inputs], each rounded once: in float32 where its products are exact, else in
        float64."""
        outputs, inputs = self.codes.shape
        unused = np.uint32((1 << self.bits) - 1)  # bits that a product with a code can fill
        exact = not (self.scales.view(np.uint32) & unused).any()
        wide = np.float32 if exact else np.float64
        out = np.empty((outputs, inputs), np.float32)
        for begin in range(0, outputs, _ROWS):
            rows = slice(begin, begin + _ROWS)
            scales, minimums = (
                np.repeat(each[rows].astype(wide), self.group, axis=1)[:, :inputs]
                for each in (self.scales, self.minimums)
            )
            scales *= self.codes[rows]
            scales -= minimums
            out[rows] = scales
        return out


def side_by_side(weights: Sequence[GroupedWeights]) -> GroupedWeights:
    """Matrices of the same inputs as one, their outputs in order: the same numbers, in the smallest of their groups and
    the most of their bits."""
    group, inputs = min(each.group for each in weights), weights[0].codes.shape[1]

    def split(each: GroupedWeights, numbers: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.repeat(numbers, each.group // group, axis=1)[:, : -(-inputs // group)]

    def units(arrays: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
        found = [array for array in arrays if array is not None]
        return np.concatenate(found) if len(found) == len(arrays) else None

    return GroupedWeights(
        codes=np.concatenate([each.codes for each in weights]),
        bits=max(each.bits for each in weights),
        group=group,
        scales=np.concatenate([split(each, each.scales) for each in weights]),
        minimums=np.concatenate([split(each, each.minimums) for each in weights]),
        scale_units=units([each.scale_units for each in weights]),
        minimum_units=units([each.minimum_units for each in weights]),
    )
