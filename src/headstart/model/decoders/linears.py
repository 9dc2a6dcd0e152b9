"""Linear layers on a CPU whose weights were prepared once for the matrix kernel: bf16 packed, or int8.

`nn.Linear` in bf16 reorders its weight at every call; reordering it once at load reads the memory faster on narrow
batches. int8 weights are half the bytes again. The plain layer is the twin both are tested against.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PreparedLinear(nn.Module):
    """y = x W^T + b with a weight laid out at load. It holds no parameter: it cannot be trained or saved."""

    _weight: Tensor
    _bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def weights(self) -> Iterable[Tensor]:
        """The tensors it holds."""
        return (tensor for tensor in vars(self).values() if isinstance(tensor, Tensor))


class PackedLinear(PreparedLinear):
    """bf16 weights in the kernel's own layout."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = linear.weight.detach().contiguous()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """residual + x W^T + b in one kernel."""
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, self._bias, "add")  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")  # type: ignore[no-any-return]


class Int8Linear(PreparedLinear):
    """y = x W^T + b in whole numbers: W is int8 with a scale for each output, x becomes int8 with a scale for each row.

    Sums of whole numbers have no order, so a row's result has the same bits beside any other rows.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = linear.weight.detach()
        self._scales = (weight.abs().amax(dim=1).float() / 127).clamp(min=torch.finfo(torch.float32).tiny)
        whole = torch.empty(weight.shape, dtype=torch.int8)
        for begin in range(0, len(weight), 256):  # in blocks that stay in the processor's cache
            rows = slice(begin, begin + 256)
            whole[rows] = (weight[rows].float() / self._scales[rows, None]).round_()
        self._weight = torch.ops.onednn.qlinear_prepack(whole, None)
        self._zeros = torch.zeros(len(whole), dtype=torch.int32)
        self._bias = None if linear.bias is None else linear.bias.detach().float()

    def forward(self, x: Tensor) -> Tensor:
        whole, scale = int8_rows(x.reshape(-1, self.in_features))
        y = torch.ops.onednn.qlinear_pointwise(
            whole, 1.0, 128, self._weight, self._scales, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        y = y * scale[:, None] if self._bias is None else y * scale[:, None] + self._bias
        return y.to(x.dtype).reshape(*x.shape[:-1], self.out_features)  # type: ignore[no-any-return]


def int8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [M, d] as uint8 with zero point 128, and their scales [M]: the row's largest number becomes 127."""
    wide = x.float()
    peak = wide.abs().amax(dim=-1)
    inverse = torch.where(peak > 0, 127 / peak, 0)
    return torch.round(wide * inverse[:, None]).add_(128).to(torch.uint8), peak / 127


class PlainLinear(PreparedLinear):
    """The same interface on an ordinary weight, for every other dtype and device."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self._weight = linear.weight.detach()
        self._bias = None if linear.bias is None else linear.bias.detach()

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return residual + F.linear(x, self._weight, self._bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)


def joined(linears: Sequence[nn.Linear]) -> nn.Linear:
    """One layer that computes several of the same input, their outputs side by side."""
    return linear_of(torch.cat([linear.weight.detach() for linear in linears]), joined_bias(linears))


def joined_bias(linears: Sequence[Any]) -> Tensor | None:
    """The biases of several layers one after the other, zeros for those that have none; None if no layer has one."""
    there = [linear.bias for linear in linears if linear.bias is not None]
    if not there:
        return None
    zeros = there[0].new_zeros
    found = [zeros(linear.out_features) if linear.bias is None else linear.bias.detach() for linear in linears]
    return torch.cat(found)


def linear_of(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A layer of this matrix [outputs, inputs], without copying it."""
    layer = nn.Linear(1, 1, bias=bias is not None, device="meta")
    layer.out_features, layer.in_features = weight.shape
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


def lies_by_inputs(module: Any) -> bool:
    """Whether this is a `Conv1D` of transformers, whose matrix is [inputs, outputs]."""
    library: Any = sys.modules.get("transformers.pytorch_utils")  # no module is one before that is imported
    return library is not None and isinstance(module, library.Conv1D)


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this build and processor have the packed bf16 kernel."""
    return device.type == "cpu" and dtype == torch.bfloat16 and torch.cpu._is_avx512_bf16_supported() and _packs()


@cache
def _packs() -> bool:
    """Found out by packing a weight: oneDNN may be held below what the processor has (ONEDNN_MAX_CPU_ISA)."""
    try:
        PackedLinear(linear_of(torch.zeros(16, 16, dtype=torch.bfloat16)))(torch.zeros(1, 16, dtype=torch.bfloat16))
    except (RuntimeError, AttributeError):  # no such kernel for this processor, or not in this build
        return False
    return True


def float_layer(dtype: torch.dtype, device: torch.device) -> type[PackedLinear] | type[PlainLinear]:
    """The best layer for weights of this kind that are not rounded."""
    return PackedLinear if can_pack(dtype, device) else PlainLinear


def can_quantize(device: torch.device) -> bool:
    """Whether this build and processor have int8 products whose sums cannot overflow (VNNI)."""
    return device.type == "cpu" and torch.cpu._is_vnni_supported() and _sums_are_exact()


@cache
def _sums_are_exact() -> bool:
    """Found out with the largest numbers there are: without VNNI, below which oneDNN may be held (ONEDNN_MAX_CPU_ISA),
    sums of two products overflow 16 bits and stop at their end."""
    inputs = 64
    try:
        found = Int8Linear(linear_of(torch.ones(16, inputs)))(torch.ones(1, inputs))
    except (RuntimeError, AttributeError):
        return False
    return bool((found - inputs).abs().max() < 0.01)


def prepare(model: nn.Module, quantize: str | None, kept: Collection[int] = ()) -> None:
    """Replace every `nn.Linear` of the model in place by the best layer for its weights here. kept: but for these, by
    `id`.

    Tied weights are prepared apart; the embedding keeps its own.
    """
    parameter = next(model.parameters())
    if quantize == "int8":
        layer: type[Int8Linear] | type[PackedLinear] = Int8Linear
    elif can_pack(parameter.dtype, parameter.device):
        layer = PackedLinear
    else:
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear and id(child) not in kept:
                setattr(module, name, layer(child))


def prepared(model: nn.Module) -> Iterable[Tensor]:
    """The weights of a model's prepared layers, which are no parameters."""
    for module in model.modules():
        if isinstance(module, PreparedLinear):
            yield from module.weights()
