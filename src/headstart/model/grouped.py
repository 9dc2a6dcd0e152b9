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
        """The weights [outputs, inputs]. The arithmetic is in float64, so that each weight is rounded once."""
        outputs, inputs = self.codes.shape
        wide = self.codes.reshape(outputs, -1, self.group).astype(np.float64)
        wide *= self.scales[:, :, None]
        wide -= self.minimums[:, :, None]
        return wide.astype(np.float32).reshape(outputs, inputs)
