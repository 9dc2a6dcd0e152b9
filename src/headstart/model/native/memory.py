"""Memory that the kernels' structures point to: kept alive, and aligned as the kernels read it."""

from __future__ import annotations

import torch
from torch import Tensor


class Pointed:
    """Tensors kept alive for the structures that point to them."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def pointer(self, tensor: Tensor) -> int:
        """The address of a tensor's numbers, without a gap between them."""
        self.tensors.append(tensor.detach().contiguous())
        return self.tensors[-1].data_ptr()

    def gain(self, gain: Tensor | None) -> int | None:
        """The address of a norm's gain in float32; None for no norm."""
        return None if gain is None else self.pointer(gain.float())


def aligned(size: int) -> Tensor:
    """So many bytes, not set to anything. The first one begins a cache line, as a tile's rows must."""
    memory = torch.empty(size + 64, dtype=torch.uint8)
    return memory[-memory.data_ptr() % 64 :]
