"""Attention of the training-time test (EAGLE-3, arXiv:2503.01840, section 3.2), for all rows of a pass at once.

In pass i, row t has been fed the head's own states i times. It sees what a chain that began at t would have in its
cache: the keys of pass 0 up to t, and of each pass from 1 to i the key of row t itself.

`plain_attend` writes that down. On a CPU `attend` lets the flash kernel do the block of pass 0 and adds the own keys
by their log-sum-exp. The kernel's backward needs no more than the final output and the final log-sum-exp in place of
its own: its gradient of a score is P (dP - <dO, O>), where both are those of the whole law.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Past = Sequence[tuple[Tensor, Tensor]]


def attend(query: Tensor, past: Past) -> Tensor:
    """query [B, H, T, D] of pass i; past: keys and values [B, H', T_j, D] of passes 0..i, T_0 >= T_1 >= ... >= T.

    Returns [B, H, T, D]. H is a multiple of H'.
    """
    if len(past) == 1:
        whole: Tensor = F.scaled_dot_product_attention(query, *past[0], is_causal=True, enable_gqa=True)
        return whole
    if query.device.type != "cpu":
        return plain_attend(query, past)
    rows = query.shape[2]
    cut = [tensor[:, :, :rows] for pair in past for tensor in pair]
    result: Tensor = _Attend.apply(query, *cut)  # type: ignore[no-untyped-call]
    return result


def plain_attend(query: Tensor, past: Past) -> Tensor:
    """`attend` with every score in memory."""
    (key, value), own = past[0], past[1:]
    batch, heads, rows, dim = query.shape
    shared = key.shape[1]
    grouped = (query * dim**-0.5).unflatten(1, (shared, -1))
    scores = (grouped @ key[:, :, None, :rows].mT).float()
    later = torch.ones(rows, rows, dtype=torch.bool, device=query.device).triu(1)
    columns = [(grouped * k[:, :, None, :rows]).sum(-1, keepdim=True, dtype=torch.float32) for k, _ in own]
    law = torch.cat([scores.masked_fill(later, float("-inf")), *columns], dim=-1).softmax(-1).to(query.dtype)
    out = law[..., :rows] @ value[:, :, None, :rows]
    for j, (_, v) in enumerate(own):
        out = out + law[..., rows + j, None] * v[:, :, None, :rows]
    return out.reshape(batch, heads, rows, dim)


class _Attend(torch.autograd.Function):
    """query [B, H, T, D], then key and value [B, H', T, D] of each pass."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, *past: Tensor) -> Tensor:
        keys, values = past[0::2], past[1::2]
        out: Tensor
        block, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, keys[0], values[0], 0.0, is_causal=True
        )
        group = query.shape[1] // keys[0].shape[1]
        scale = query.shape[-1] ** -0.5
        scores = [_dot(query, _each(key, group)) * scale for key in keys[1:]]
        total = torch.stack([lse, *scores]).logsumexp(0)
        out = block * (lse - total).exp().to(query.dtype)[..., None]
        weights = [(score - total).exp() for score in scores]
        for weight, value in zip(weights, values[1:], strict=True):
            out.addcmul_(weight.to(query.dtype)[..., None], _each(value, group))
        ctx.save_for_backward(query, out, torch.empty_like(lse).copy_(total), *weights, *past)
        ctx.own = len(weights)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        query, out, total, *rest = ctx.saved_tensors
        weights, past = rest[: ctx.own], rest[ctx.own :]
        keys, values = past[0::2], past[1::2]
        to_query, to_key, to_value = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, query, keys[0], values[0], out, total, 0.0, is_causal=True
        )
        shared = keys[0].shape[1]
        group, scale = query.shape[1] // shared, query.shape[-1] ** -0.5
        mean = _dot(grad, out)
        gradients = [to_key, to_value]
        for weight, key, value in zip(weights, keys[1:], values[1:], strict=True):
            slope = (weight * (_dot(grad, _each(value, group)) - mean) * scale).to(query.dtype)[..., None]
            to_query = to_query.addcmul(slope, _each(key, group))
            own_key, own_value = slope * query, weight.to(query.dtype)[..., None] * grad
            gradients += [part.unflatten(1, (shared, group)).sum(2) for part in (own_key, own_value)]
        return to_query, *gradients


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """[..., D] and [..., D] to [...], summed in float32."""
    return (a * b).sum(-1, dtype=torch.float32)


def _each(shared: Tensor, group: int) -> Tensor:
    """[B, H', T, D] to [B, H, T, D]: a shared head stands before each query head of its group."""
    result: Tensor = shared.repeat_interleave(group, dim=1) if group > 1 else shared
    return result
