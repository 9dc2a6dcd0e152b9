"""Linear layers of grouped weights inside a transformers model: what carries them until a decoder takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.model.grouped import GroupedWeights, side_by_side


class GroupedLinear(nn.Module):
    """y = x W^T + b in floats, with W made from its codes at every call. It holds no parameter: nothing can train it.

    The row kernels' grouped products compute the same but for rounding each row to 8-bit integers.
    """

    def __init__(self, weights: GroupedWeights, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weights, self.bias = weights, bias
        self.out_features, self.in_features = weights.codes.shape

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.from_numpy(self.weights.dequantise()).to(x.device, x.dtype)
        return F.linear(x, weight, None if self.bias is None else self.bias.to(x.dtype))


def joined_grouped(linears: Sequence[GroupedLinear]) -> GroupedLinear:
    """One layer that computes several of the same input, their outputs side by side."""
    biases = [linear.bias for linear in linears if linear.bias is not None]
    bias = torch.cat(biases) if len(biases) == len(linears) else None
    return GroupedLinear(side_by_side([linear.weights for linear in linears]), bias)


def fewest_bits(model: nn.Module) -> int | None:
    """Of the codes of a model's grouped layers; None if it has none."""
    return min(_bits(model), default=None)


def _bits(model: nn.Module) -> Iterable[int]:
    return (module.weights.bits for module in model.modules() if isinstance(module, GroupedLinear))
