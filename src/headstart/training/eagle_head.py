"""An EAGLE-3 head as a plain module for training: its shape, and its training-time test.

The head reads three of the target's hidden states at position t, g = fc([h_lo; h_mid; h_hi]), and the embedding of the
token after t; one decoder layer over both gives a state `a` whose norm times `lm_head` is the law of the token after
that. To guess further it is fed its own `a` in place of g. The training-time test does the same while it learns
(`unroll`): tokens come from the text, states from the head itself.

Parameters are named as the field's checkpoints name them. Source: EAGLE-3, arXiv:2503.01840.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.errors import UnsupportedModel
from headstart.training.unrolled import attend


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of a head: those of one layer of the target, and of the vocabulary it may propose from."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    draft_vocab: int
    rope_theta: float
    eps: float
    norm_before_residual: bool = False

    @classmethod
    def of(cls, config: Any, draft_vocab: int, *, norm_before_residual: bool = False) -> HeadShape:
        """From the target's config; what it leaves out is taken as Llama's."""
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
            norm_before_residual=norm_before_residual,
        )
        if shape.head_dim % 2 or heads % shape.kv_heads:
            raise UnsupportedModel(
                f"{text.model_type} has attention heads of width {shape.head_dim}, {heads} over {shape.kv_heads}",
                hint="an EAGLE-3 head needs an even width, and query heads that are a multiple of the others",
            )
        return shape


class EagleHead(nn.Module):
    """`fc`, one decoder layer, a norm, and the matrix of the draft vocabulary."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(3 * shape.hidden, shape.hidden, bias=False)
        self.midlayer = _Layer(shape)
        self.norm = RMSNorm(shape.hidden, shape.eps)
        self.lm_head = nn.Linear(shape.hidden, shape.draft_vocab, bias=False)

    def unroll(self, aux: Tensor, embedded: Tensor, steps: int, kept: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The head's states at each pass of the training-time test, before the final norm.

        aux [B, T, 3d]: the target's states at positions 0..T-1. embedded [B, E, d]: embeddings of the tokens at 1..E.
        Pass i gives [B, n_i, d]: row t has read the token at t + 1 + i and predicts the one after it. Without `kept`
        a pass has all rows whose token is there, at most T; with it those rows [n_i], each of which the pass before
        has too, and E >= T + steps - 1.
        """
        longest, tokens = aux.shape[1], embedded.shape[1]
        cos, sin = rotation(max(tokens, longest) + 1, self.shape, aux.device, aux.dtype)
        state: Tensor = self.fc(aux)
        past: list[tuple[Tensor, Tensor]] = []
        state = self.midlayer(embedded[:, :longest], state, (cos[:longest], sin[:longest]), past)
        states = [state if kept is None else state[:, kept[0]]]
        rows = torch.arange(longest, device=aux.device)
        for i in range(1, steps):
            if kept is None:
                rows = rows[: tokens - i]
                inside = rows
            else:
                inside = torch.searchsorted(rows, kept[i])
                rows = kept[i]
            past[1:] = [(key[:, :, inside], value[:, :, inside]) for key, value in past[1:]]
            turn = cos[rows + i], sin[rows + i]
            state = self.midlayer(embedded[:, rows + i], state[:, inside], turn, past, None if kept is None else rows)
            states.append(state)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """[..., d] to [..., draft vocabulary]."""
        result: Tensor = self.lm_head(self.norm(states))
        return result


class _Layer(nn.Module):
    """The decoder layer: attention over [embedding; state], both normed, then the MLP."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.hidden_norm = RMSNorm(shape.hidden, shape.eps)
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.self_attn = _Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.mlp = _Mlp(shape)
        self._norm_before_residual = shape.norm_before_residual

    def forward(
        self,
        embedded: Tensor,
        state: Tensor,
        turn: tuple[Tensor, Tensor],
        past: list[tuple[Tensor, Tensor]],
        rows: Tensor | None = None,
    ) -> Tensor:
        """embedded, state [B, T, d]; this pass's keys and values are appended to `past`. rows as `attend` has them."""
        normed = self.hidden_norm(state)
        both = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        x = (normed if self._norm_before_residual else state) + self.self_attn(both, turn, past, rows)
        result: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


class _Attention(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self._dim = shape.head_dim
        width = 2 * shape.hidden
        self.q_proj = nn.Linear(width, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], past: list[tuple[Tensor, Tensor]], rows: Tensor | None
    ) -> Tensor:
        query, key, value = (self._by_head(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        query, key = rotate(query, *turn), rotate(key, *turn)
        past.append((key, value))
        out = attend(query, past, rows)
        result: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return result

    def _by_head(self, x: Tensor) -> Tensor:
        """[B, T, heads * dim] to [B, heads, T, dim]."""
        return x.view(*x.shape[:2], -1, self._dim).transpose(1, 2)


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
    """cos and sin [length, head_dim] of every position, in the convention of Llama (halves, not pairs)."""
    speeds = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2, device=device).float() / shape.head_dim)
    angles = torch.arange(length, device=device).float()[:, None] * speeds
    both = torch.cat([angles, angles], dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., T, dim]."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


def _whole(config: Any, name: str, default: int) -> int:
    value = getattr(config, name, None)
    return value if isinstance(value, int) and value > 0 else default
