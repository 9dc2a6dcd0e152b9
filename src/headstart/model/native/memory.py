"""Memory that the kernels' structures point to: kept alive, and aligned as the kernels read it."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


class Pointed:
    """Tensors and structures kept alive for the structures that point to them."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._structures: list[ctypes.Structure] = []

    def pointer(self, tensor: Tensor) -> int:
        """The address of a tensor's numbers, without a gap between them."""
        self.tensors.append(tensor.detach().contiguous())
        return self.tensors[-1].data_ptr()

    def structure(self, structure: ctypes.Structure) -> int:
        """The address of a structure."""
        self._structures.append(structure)
        return ctypes.addressof(structure)

    def gain(self, gain: Tensor | None) -> int | None:
        """The address of a norm's gain in float32; None for no norm."""
        return None if gain is None else self.pointer(gain.float())


def aligned(size: int) -> Tensor:
    """So many bytes, not set to anything. The first one begins a cache line, as a tile's rows must."""
    memory = torch.empty(size + 64, dtype=torch.uint8)
    return memory[-memory.data_ptr() % 64 :]
