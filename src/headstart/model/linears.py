"""bf16 linear layers on a CPU with their weight reordered once for the matrix kernel.

`nn.Linear` in bf16 reorders its weight at every call; reordering it once at load reads the memory two to three
times as fast on narrow batches. The plain layer is the twin it is tested against.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """y = x W^T + b with W in the kernel's own layout. Holds no parameter: it cannot be trained or saved."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach().contiguous()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """residual + x W^T + b in one kernel."""
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, self._bias, "add")  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")  # type: ignore[no-any-return]


class PlainLinear(nn.Module):
    """The same interface on an ordinary weight, for every other dtype and device."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._weight = linear.weight.detach()
        self._bias = None if linear.bias is None else linear.bias.detach()

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return residual + F.linear(x, self._weight, self._bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)


def joined(linears: Sequence[nn.Linear]) -> nn.Linear:
    """One layer that computes several of the same input, their outputs side by side."""
    first = linears[0]
    bias = first.bias is not None
    wide = nn.Linear(1, 1, bias=bias, device="meta")
    wide.in_features, wide.out_features = first.in_features, sum(linear.out_features for linear in linears)
    wide.weight = nn.Parameter(torch.cat([linear.weight for linear in linears]), requires_grad=False)
    if bias:
        wide.bias = nn.Parameter(torch.cat([linear.bias for linear in linears]), requires_grad=False)
    return wide


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this build and processor have the packed bf16 kernel."""
    return (
        device.type == "cpu"
        and dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.cpu._is_avx512_bf16_supported()
    )


def pack_linears(model: nn.Module) -> None:
    """Replace every `nn.Linear` of the model in place. Tied weights are packed apart; the embedding keeps its own."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))
