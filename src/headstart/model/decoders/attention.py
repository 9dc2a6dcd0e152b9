"""Attention of a packed ragged batch, registered with transformers so that its modules run unmodified.

Transformers hands every attention layer's queries, keys and values (positions already applied) to the function
named in the config. Ours stores keys and values in the slots, and attends each segment of the batch to its own slot.
The batch is the one that the forward was begun with (`attending`): some layers pass no keyword arguments on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.base.lazy import transformers
from headstart.model.cache import KVCache
from headstart.model.packed import Packed

IMPLEMENTATION = "headstart"

_BATCH: ContextVar[Packed] = ContextVar("batch")


@contextmanager
def attending(packed: Packed) -> Iterator[None]:
    """Within, this thread's forwards of transformers' modules attend to this batch."""
    token = _BATCH.set(packed)
    try:
        yield
    finally:
        _BATCH.reset(token)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend a packed batch, that of `attending`.

    Args:
        query: [1, heads, M, dim]; key, value: [1, kv_heads, M, dim] of the new tokens.
        attention_mask: ignored; the packed batch knows who sees whom.
        scaling: factor on the scores; sliding_window: how many positions back a row sees, itself included;
        softcap: scores become softcap * tanh(scores / softcap) (Gemma 2); s_aux: [heads] sink logits (GPT-OSS).

    Returns: [1, M, heads, dim], and None in place of the weights.
    """
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    scores = Scores(scaling, sliding_window, softcap, s_aux)
    # contiguous, as transformers' own functions return it: some modules view it in another shape
    return attend_packed(_BATCH.get(), layer, query, (key, value), scores).contiguous(), None


@dataclass(frozen=True, slots=True)
class Scores:
    """How a layer turns queries and keys into weights; see `attend`."""

    scaling: float | None
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    values: int | None = None
    """So many of a key's first numbers are its value, in latent attention; None: there are values beside keys."""


def attend_packed(
    packed: Packed, layer: int, query: Tensor, new: tuple[Tensor, Tensor] | None, scores: Scores
) -> Tensor:
    """Store the new keys and values, then attend each segment to its own slot. Shapes as in `attend`.

    new: keys and values; None where those of this layer are stored already.
    """
    if packed.attends is not None:
        return packed.attends(layer, query, new, scores)
    cache = packed.cache
    outputs = []
    for index, (segment, (begin, end)) in enumerate(zip(packed.segments, packed.bounds, strict=True)):
        if new is None:
            keys, values = packed.stored(index, layer, scores.window)
        else:
            assert isinstance(cache, KVCache), "tensor operations write to the plain cache"
            start = packed.starts[index] + segment.held
            key, value = (part[0, :, begin:end] for part in new)
            keys, values = cache.write(layer, segment.slot, start, key, value)
        if scores.values is not None:
            values = keys[..., : scores.values]
        mask = packed.mask(index, query.shape[1] // keys.shape[1], scores.window)
        outputs.append(_attend(query[:, :, begin:end], keys, values, mask, scores))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scores: Scores) -> Tensor:
    """One segment: query [1, heads, n, dim] against keys, values [1, kv_heads, S, dim]; returns [1, n, heads, dim]."""
    _, heads, n, dim = query.shape
    # Query heads that share a KV head become rows of it: no copy of K and V for grouped-query attention.
    folded = query.reshape(1, keys.shape[1], -1, dim)
    if scores.softcap is None and scores.sinks is None:
        out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scores.scaling)
    else:
        out = _capped(folded, keys, values, mask, scores)
    return out.reshape(1, heads, n, values.shape[-1]).transpose(1, 2)


def _capped(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, how: Scores) -> Tensor:
    """Attention with capped scores or sinks, which the fused kernel does not have."""
    scores = query @ keys.transpose(-1, -2) * (query.shape[-1] ** -0.5 if how.scaling is None else how.scaling)
    if how.softcap is not None:
        scores = torch.tanh(scores / how.softcap) * how.softcap
    if mask is not None:
        scores = scores + mask
    if how.sinks is None:
        return scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype) @ values
    # a sink is one more column, seen by every row, whose value is nothing
    rows = query.shape[2] * query.shape[1] // how.sinks.numel()
    column = how.sinks.reshape(1, query.shape[1], -1, 1, 1).expand(-1, -1, -1, rows, 1).reshape(*scores.shape[:-1], 1)
    weights = torch.cat((scores, column.to(scores.dtype)), dim=-1).softmax(dim=-1, dtype=torch.float32)
    return weights[..., :-1].to(query.dtype) @ values


def take_any_length(device: torch.device) -> None:
    """Let attention on a GPU do without cuDNN, in the whole process: it plans each length of a text anew, for tens of
    milliseconds, where the attention itself takes some microseconds."""
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


def attend_in(model: Any) -> None:
    """Let a model of transformers attend by `attend`, which it asks for by the name `IMPLEMENTATION`."""
    transformers.AttentionInterface.register(IMPLEMENTATION, attend)
    model.set_attn_implementation(IMPLEMENTATION)
