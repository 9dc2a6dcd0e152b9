"""Weights as whole numbers in groups, each group with a scale and a minimum: what 4-bit files hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class GroupedWeights:
    """A weight matrix [outputs, inputs] as codes: weight = scale * code - minimum, by groups along the inputs."""

    codes: NDArray[np.uint8]
    """[outputs, inputs]: one code a byte, below 2 ** bits."""
    bits: int
    """How many bits a code needs: 4, 5, 6 or 8."""
    group: int
    """Inputs that share a scale; it divides the number of inputs."""
    scales: NDArray[np.float32]
    """[outputs, inputs / group]."""
    minimums: NDArray[np.float32]
    """[outputs, inputs / group]."""

    def dequantise(self) -> NDArray[np.float32]:
        """The weights [outputs, inputs], each rounded once: in float32 where its products are exact, else in
        float64."""
        outputs, inputs = self.codes.shape
        unused = np.uint32((1 << self.bits) - 1)  # bits that a product with a code can fill
        exact = not (self.scales.view(np.uint32) & unused).any()
        by_group = self.codes.reshape(outputs, -1, self.group)
        wide: NDArray[np.floating] = by_group.astype(np.float32 if exact else np.float64)
        np.multiply(wide, self.scales[:, :, None], out=wide)
        np.subtract(wide, self.minimums[:, :, None], out=wide)
        return wide.astype(np.float32, copy=False).reshape(outputs, inputs)
