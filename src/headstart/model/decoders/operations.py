"""The operations of the decoders that run in tensors: norm, rotation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm as transformers computes it: in float32, rounded before the gain."""
    if (found := _rms_on_gpu(x, gain, eps)) is not None:
        return found
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return gain * (wide * scale).to(gain.dtype)


def normed(x: Tensor, gain: Tensor | None, bias: Tensor | None, eps: float, *, centred: bool) -> Tensor:
    """A norm of the rows of x, in float32. A gain in float32 is applied before the row is rounded to x's dtype, any
    other after it. centred: whether the mean is taken off first (LayerNorm)."""
    if not centred and bias is None and (found := _rms_on_gpu(x, gain, eps)) is not None:
        return found
    wide = x.float()
    if centred:
        wide = wide - wide.mean(-1, keepdim=True)
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    if gain is not None and gain.dtype != torch.float32:
        return gain * wide.to(gain.dtype)
    wide = wide if gain is None else wide * gain
    return (wide if bias is None else wide + bias).to(x.dtype)


def _rms_on_gpu(x: Tensor, gain: Tensor | None, eps: float) -> Tensor | None:
    """In one kernel instead of seven, which rounds once, after the gain; None where there is none."""
    if not x.is_cuda or (gain is not None and gain.dtype != x.dtype):
        return None
    return F.rms_norm(x, x.shape[-1:], gain, eps)


def activated(x: Tensor, activation: str, numbers: Sequence[float] | None = None) -> Tensor:
    """An activation of a recipe. numbers: those of "xielu", see `parts.xielu_numbers`."""
    if activation == "xielu":
        assert numbers is not None, "xielu has learnt numbers"
        positive, negative, both, most = numbers
        low = (torch.expm1(x.clamp(max=most)) - x) * negative
        return torch.where(x > 0, positive * x * x, low) + both * x
    return _ACTIVATIONS[activation](x)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}


def signed(cos: Tensor, sin: Tensor, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tables [length, 1, dim] of these for `rotate`. The sign of the half rotation is folded into the sine."""
    tables = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    return tables[0].to(device, dtype)[:, None], tables[1].to(device, dtype)[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [M, heads, dim], turned by the rows [M, 1, dim] of the tables of `signed`: three operations."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
