"""The decoder layer of a head that is trained: attention over every pass of the training-time test, then an MLP.

Parameters are named as the field's checkpoints name them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.base.errors import UnsupportedModel
from headstart.model.layer_configs import values_of
from headstart.train.unrolled import attend


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of a head: those of one layer of the target, and of the vocabulary it may propose from.

    parallel: it guesses further with masked rows instead of its own states. selector_rank: 0 for a head without one.
    rotary: how much of a head of attention turns; 0 for all. head_norms: queries and keys are normed by head. gated:
    each head's queries are followed by as many numbers of a gate. These three are of MTP heads.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    draft_vocab: int
    rope_theta: float
    eps: float
    norm_before_residual: bool = False
    layers: int = 1
    parallel: bool = False
    selector_rank: int = 0
    selector_top_k: int = 0
    vocab: int = 0
    """Of the target; only a selector needs it."""
    rotary: int = 0
    head_norms: bool = False
    gated: bool = False

    @classmethod
    def of(cls, config: Any, draft_vocab: int, **more: Any) -> HeadShape:
        """From the target's config; what it leaves out is taken as Llama's. `more` are other fields."""
        text = config.get_text_config()
        hidden, heads = int(text.hidden_size), int(text.num_attention_heads)
        rope = getattr(text, "rope_parameters", None) or {}
        theta = rope.get("rope_theta")
        shape = cls(
            hidden=hidden,
            intermediate=_whole(text, "intermediate_size", 8 * hidden // 3),
            heads=heads,
            kv_heads=_whole(text, "num_key_value_heads", heads),
            head_dim=_whole(text, "head_dim", hidden // heads),
            draft_vocab=draft_vocab,
            rope_theta=float(theta) if isinstance(theta, float | int) else 10000.0,
            eps=float(getattr(text, "rms_norm_eps", None) or 1e-5),
            vocab=int(text.vocab_size),
            **more,
        )
        if shape.head_dim % 2 or heads % shape.kv_heads:
            problem = f"{text.model_type} has attention heads of width {shape.head_dim}, {heads} over {shape.kv_heads}"
            hint = "an EAGLE-3 head needs an even width, and query heads that are a multiple of the others"
            raise UnsupportedModel(problem, hint=hint)
        return shape


def _whole(config: Any, name: str, default: int) -> int:
    value = values_of(config, name)[0]
    return value if isinstance(value, int) and value > 0 else default


Past = list[tuple[Tensor, Tensor]]
"""Keys and values [B, H', T, dim] of each pass so far."""


class Layer(nn.Module):
    """A decoder layer: attention, then the MLP. The first attends over [embedding; state], both normed."""

    def __init__(self, shape: HeadShape, *, first: bool) -> None:
        super().__init__()
        if first:
            self.hidden_norm = RMSNorm(shape.hidden, shape.eps)
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.self_attn = _Attention(shape, (2 if first else 1) * shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.mlp = _Mlp(shape)
        self._norm_before_residual = first and shape.norm_before_residual

    def forward(
        self,
        embedded: Tensor | None,
        state: Tensor,
        turn: tuple[Tensor, Tensor],
        past: Past,
        rows: Tensor | None,
    ) -> Tensor:
        """embedded (None but in the first layer), state [B, T, d], or [1, 1, d] where all rows are alike; turn [T, dim]
        each; this pass's keys and values are appended to `past`; rows as `attend` has them. Returns [B, T, d]."""
        if embedded is None:
            x = state + self.self_attn(self.input_layernorm(state), turn, past, rows)
        else:
            normed = self.hidden_norm(state)
            both = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
            x = (normed if self._norm_before_residual else state) + self.self_attn(both, turn, past, rows)
        result: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


class _Attention(nn.Module):
    def __init__(self, shape: HeadShape, width: int) -> None:
        super().__init__()
        self._dim, self._gated = shape.head_dim, shape.gated
        self.q_proj = nn.Linear(width, (2 if shape.gated else 1) * shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)
        if shape.head_norms:
            self.q_norm = RMSNorm(shape.head_dim, shape.eps)
            self.k_norm = RMSNorm(shape.head_dim, shape.eps)
        self._normed = shape.head_norms

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], past: Past, rows: Tensor | None) -> Tensor:
        asked, gate = self.q_proj(x), None
        if self._gated:
            asked, gate = asked.unflatten(-1, (-1, 2, self._dim)).unbind(-2)
        query, key, value = (self._by_head(each) for each in (asked, self.k_proj(x), self.v_proj(x)))
        if self._normed:
            query, key = self.q_norm(query), self.k_norm(key)
        query, key = rotate(query, *turn), rotate(key, *turn)
        batch, count = past[0][0].shape[0] if past else len(x), len(turn[0])
        query, key, value = (each.expand(batch, -1, count, -1) for each in (query, key, value))
        past.append((key, value))
        out = attend(query, past, rows).transpose(1, 2)
        result: Tensor = self.o_proj((out if gate is None else out * gate.sigmoid()).flatten(2))
        return result

    def _by_head(self, x: Tensor) -> Tensor:
        """[B, T, heads * dim] to [B, heads, T, dim]."""
        return x.reshape(*x.shape[:2], -1, self._dim).transpose(1, 2)


class _Mlp(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return result


class RMSNorm(nn.Module):
    """Root-mean-square norm as transformers computes it: in float32, rounded before the gain."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * F.rms_norm(x.float(), x.shape[-1:], eps=self.eps).to(x.dtype)


def rotation(length: int, shape: HeadShape, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin [length, rotary] of every position, in the convention of Llama (halves, not pairs)."""
    turning = shape.rotary or shape.head_dim
    speeds = shape.rope_theta ** (-torch.arange(0, turning, 2, device=device).float() / turning)
    angles = torch.arange(length, device=device).float()[:, None] * speeds
    both = torch.cat([angles, angles], dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., T, dim], of which as many numbers turn as cos and sin have."""
    width = cos.shape[-1]
    x, rest = x[..., :width], x[..., width:]
    turned = torch.cat([-x[..., width // 2 :], x[..., : width // 2]], dim=-1)
    return torch.cat([x * cos + turned * sin, rest], dim=-1) if rest.shape[-1] else x * cos + turned * sin
