"""Attention of a packed ragged batch, registered with transformers so that its modules run unmodified.

Transformers hands every attention layer's queries, keys and values (positions already applied) to the function
named in the config, with the keyword arguments given to the model's forward. Ours receives the `Packed` batch that
way, stores keys and values in the slots, and attends each segment to its own slot.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from headstart.model.packed import Packed

IMPLEMENTATION = "headstart"


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001
    *,
    packed: Packed,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend a packed batch.

    Args:
        query: [1, heads, M, dim]; key, value: [1, kv_heads, M, dim] of the new tokens.
        attention_mask: ignored; the packed batch knows who sees whom.
        scaling: factor on the scores; sliding_window: how many positions back a row sees, itself included;
        softcap: scores become softcap * tanh(scores / softcap) (Gemma 2); s_aux: [heads] sink logits (GPT-OSS).

    Returns: [1, M, heads, dim], and None in place of the weights.
    """
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    outputs = []
    for index, (segment, (begin, end), start) in enumerate(
        zip(packed.segments, packed.bounds, packed.starts, strict=True)
    ):
        keys, values = packed.cache.write(layer, segment.slot, start, key[0, :, begin:end], value[0, :, begin:end])
        outputs.append(
            attend_segment(query[:, :, begin:end], keys, values, packed, index, scaling, sliding_window, softcap, s_aux)
        )
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)), None


def attend_segment(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    packed: Packed,
    index: int,
    scaling: float | None,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """One segment: query [1, heads, n, dim] against keys, values [1, kv_heads, S, dim]; returns [1, n, heads, dim]."""
    _, heads, n, dim = query.shape
    kv_heads = keys.shape[1]
    groups = heads // kv_heads
    mask = packed.mask(index, groups, window)
    # Query heads that share a KV head become rows of it: no copy of K and V for grouped-query attention.
    folded = query.reshape(1, kv_heads, groups * n, dim)
    if softcap is None and sinks is None:
        out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scaling)
    else:
        out = _capped(folded, keys, values, mask, scaling, softcap, sinks)
    return out.reshape(1, heads, n, values.shape[-1]).transpose(1, 2)


def _capped(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Attention with capped scores or sinks, which the fused kernel does not have."""
    scores = query @ keys.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        rows = query.shape[2] // (sinks.numel() // query.shape[1])
        # a sink is one more column, seen by every row, whose value is nothing
        column = sinks.reshape(1, query.shape[1], -1, 1, 1).expand(-1, -1, -1, rows, 1).reshape(*scores.shape[:-1], 1)
        scores = torch.cat((scores, column.to(scores.dtype)), dim=-1)
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    if sinks is not None:
        weights = weights[..., :-1]
    return weights @ values


AttentionInterface.register(IMPLEMENTATION, attend)
