"""Attention of the training-time test (EAGLE-3, arXiv:2503.01840, section 3.2), for all rows of a pass at once.

In pass i, row t has been fed the head's own states i times. It sees what a chain that began at t would have in its
cache: the keys of pass 0 up to t, and of each pass from 1 to i the key of row t itself. A pass may keep some of its
rows only, each of which the pass before it kept too (`nested`): training deep guesses on fewer rows costs little
(conditional drop, PARD, arXiv:2504.18583).

`plain_attend` writes that down. On a CPU `attend` lets the flash kernel do the block of pass 0 and adds the own keys
by their log-sum-exp. The kernel's backward needs no more than the final output and the final log-sum-exp in place of
its own: its gradient of a score is P (dP - <dO, O>), where both are those of the whole distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Past = Sequence[tuple[Tensor, Tensor]]


def nested(count: int, shares: Sequence[float], chance: torch.Generator) -> list[Tensor]:
    """Rows out of `count` for each pass, rising: this share of them, and each within those of the pass before."""
    order = torch.randperm(count, generator=chance)
    sizes = [max(1, round(share * count)) for share in shares]
    return [order[: min(sizes[: i + 1])].sort().values for i in range(len(sizes))]


def attend(query: Tensor, past: Past, rows: Tensor | None = None) -> Tensor:
    """query [B, H, T, D] of pass i; past: keys and values [B, H', T_j, D] of passes 0..i.

    rows [T]: which rows of pass 0 those of the query are; the keys of pass 0 are then there for all rows up to the last
    of them, and those of later passes for the query's rows. Without it they are the first T rows, of every pass.
    Returns [B, H, T, D]. H is a multiple of H'.
    """
    if len(past) == 1 and rows is None:
        whole: Tensor = F.scaled_dot_product_attention(query, *past[0], is_causal=True, enable_gqa=True)
        return whole
    if query.device.type != "cpu":
        return plain_attend(query, past, rows)
    count = query.shape[2]
    cut = [tensor if rows is not None and not j else tensor[:, :, :count] for j, p in enumerate(past) for tensor in p]
    result: Tensor = _Attend.apply(query, _mask(past, rows, query.dtype), *cut)  # type: ignore[no-untyped-call]
    return result


def plain_attend(query: Tensor, past: Past, rows: Tensor | None = None) -> Tensor:
    """`attend` with every score in memory."""
    (key, value), own = past[0], past[1:]
    batch, heads, count, dim = query.shape
    seen = count if rows is None else key.shape[2]
    at = torch.arange(count, device=query.device) if rows is None else rows
    grouped = (query * dim**-0.5).unflatten(1, (key.shape[1], -1))
    scores = (grouped @ key[:, :, None, :seen].mT).float()
    later = torch.arange(seen, device=query.device) > at[:, None]
    columns = [(grouped * k[:, :, None, :count]).sum(-1, keepdim=True, dtype=torch.float32) for k, _ in own]
    distribution = torch.cat([scores.masked_fill(later, float("-inf")), *columns], dim=-1).softmax(-1).to(query.dtype)
    out = distribution[..., :seen] @ value[:, :, None, :seen]
    for j, (_, v) in enumerate(own):
        out = out + distribution[..., seen + j, None] * v[:, :, None, :count]
    return out.reshape(batch, heads, count, dim)


def _mask(past: Past, rows: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores over pass 0 [T, T_0]; None where the kernel's own causal mask is the same."""
    if rows is None:
        return None
    later = torch.arange(past[0][0].shape[2], device=rows.device) > rows[:, None]
    return torch.zeros(later.shape, dtype=dtype).masked_fill_(later, float("-inf"))


class _Attend(torch.autograd.Function):
    """query [B, H, T, D], the mask, then key and value [B, H', T_j, D] of each pass."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, mask: Tensor | None, *past: Tensor) -> Tensor:
        keys, values = past[0::2], past[1::2]
        block, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, keys[0], values[0], 0.0, is_causal=mask is None, attn_mask=mask
        )
        shared, scale = keys[0].shape[1], query.shape[-1] ** -0.5
        grouped = _grouped(query, shared)
        scores = [_dot(grouped, key[:, :, None]).flatten(1, 2) * scale for key in keys[1:]]
        total = torch.stack([lse, *scores]).logsumexp(0) if scores else lse
        out: Tensor = block * (lse - total).exp().to(query.dtype)[..., None]
        weights = [(score - total).exp() for score in scores]
        for weight, value in zip(weights, values[1:], strict=True):
            _grouped(out, shared).addcmul_(_grouped(weight.to(query.dtype)[..., None], shared), value[:, :, None])
        ctx.save_for_backward(query, mask, out, torch.empty_like(lse).copy_(total), *weights, *past)
        ctx.own = len(weights)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, mask, out, total, *rest = ctx.saved_tensors
        weights, past = rest[: ctx.own], rest[ctx.own :]
        keys, values = past[0::2], past[1::2]
        to_query, to_key, to_value = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, query, keys[0], values[0], out, total, 0.0, is_causal=mask is None, attn_mask=mask
        )
        shared, scale = keys[0].shape[1], query.shape[-1] ** -0.5
        grouped, upstream = _grouped(query, shared), _grouped(grad, shared)
        mean = _grouped(_dot(grad, out), shared)
        gradients = [to_key, to_value]
        for weight, key, value in zip(weights, keys[1:], values[1:], strict=True):
            each = _grouped(weight, shared)
            slope = (each * (_dot(upstream, value[:, :, None]) - mean) * scale).to(query.dtype)[..., None]
            to_query = to_query.addcmul(slope.expand_as(grouped).flatten(1, 2), _each(key, grouped))
            gradients += [(slope * grouped).sum(2), (each.to(query.dtype)[..., None] * upstream).sum(2)]
        return to_query, None, *gradients


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """[..., D] and [..., D] to [...], summed in float32."""
    return (a * b).sum(-1, dtype=torch.float32)


def _grouped(x: Tensor, shared: int) -> Tensor:
    """[B, H, T, ...] to [B, H', group, T, ...], without a copy."""
    result: Tensor = x.unflatten(1, (shared, -1))  # type: ignore[no-untyped-call]
    return result


def _each(shared: Tensor, grouped: Tensor) -> Tensor:
    """[B, H', T, D] to [B, H, T, D]: a shared head is repeated for each query head of its group."""
    return shared[:, :, None].expand_as(grouped).flatten(1, 2)
