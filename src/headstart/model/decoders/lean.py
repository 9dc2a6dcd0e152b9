"""A lean forward for Llama-shaped decoders: the same weights, a third of the operations.

Small models are bound by the number of calls, not by arithmetic. Here q, k and v (and gate and up) are one matrix
each, rotation is three operations on q and k together, residuals are added inside the matrix kernel, and only
judged rows reach the final norm and the head. transformers' modules are the plain twin: the probe at load compares
the two on the model's own weights, and where they differ the modules run instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.model.decoders.attention import Scores, attend_packed
from headstart.model.decoders.linears import PackedLinear, PlainLinear, can_pack, joined
from headstart.model.packed import Forward, Packed

_FAMILIES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
_FIXED_ROPE = {"default", "linear", "llama3", "yarn"}


def is_llama_shaped(model: Any) -> bool:
    """Whether the lean forward computes this model: its family, SiLU, and rotation that depends on position alone."""
    config = model.config
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return type(model).__name__ in _FAMILIES and config.hidden_act == "silu" and rope in _FIXED_ROPE


class LeanDecoder:
    """Takes the weights out of a transformers model (whose linear layers are gone afterwards) and runs them."""

    def __init__(self, model: Any, max_length: int) -> None:
        base = model.model
        pack = can_pack(model.dtype, model.device)
        self._embedding = base.embed_tokens.weight.detach()
        self._layers = [_Layer(layer, index, model.config, pack) for index, layer in enumerate(base.layers)]
        self._norm, self._eps = base.norm.weight.detach(), float(base.norm.variance_epsilon)
        self._head = (PackedLinear if pack else PlainLinear)(model.lm_head)
        cos, sin = _rotation(base.rotary_emb, max_length, model.dtype, model.device)
        self._cos, self._sin = cos, sin

    def run(self, packed: Packed, taps: Sequence[int], layers: int | None = None) -> Forward:
        """One forward over a packed batch; see `ModelRunner.forward`."""
        positions = packed.positions[0]
        x = F.embedding(packed.ids[0], self._embedding)
        cos, sin = self._cos[positions], self._sin[positions]
        hidden: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers[:layers]):
            if index in taps:
                hidden[index] = x
            x = layer.run(x, cos, sin, packed)
        last = len(self._layers) if layers is None else layers
        if last in taps:
            hidden[last] = _rms(x, self._norm, self._eps)
        judged = _rms(x[packed.judged], self._norm, self._eps)
        return Forward(self._head(judged), hidden)


class _Layer:
    """One decoder layer."""

    def __init__(self, layer: Any, index: int, config: Any, pack: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        linear = PackedLinear if pack else PlainLinear
        self._index = index
        self._dim = int(attention.head_dim)
        self._heads = attention.q_proj.out_features // self._dim
        self._kv_heads = attention.k_proj.out_features // self._dim
        self._scores = Scores(float(attention.scaling), window_of(config, index))
        self._qkv = linear(joined([attention.q_proj, attention.k_proj, attention.v_proj]))
        self._out = linear(attention.o_proj)
        self._gate_up = linear(joined([mlp.gate_proj, mlp.up_proj]))
        self._down = linear(mlp.down_proj)
        self._before = layer.input_layernorm.weight.detach()
        self._after = layer.post_attention_layernorm.weight.detach()
        self._eps = float(layer.input_layernorm.variance_epsilon)
        # Qwen3 normalises each head's query and key; one gain for each of the joined heads
        self._head_gain: Tensor | None = None
        if hasattr(attention, "q_norm"):
            gains = [attention.q_norm.weight] * self._heads + [attention.k_norm.weight] * self._kv_heads
            self._head_gain = torch.stack(gains).detach()
        release(layer)

    def run(self, x: Tensor, cos: Tensor, sin: Tensor, packed: Packed) -> Tensor:
        """x [M, d]; cos, sin [M, 1, dim]; returns [M, d]."""
        rotated = self._heads + self._kv_heads
        qkv = self._qkv(_rms(x, self._before, self._eps)).view(len(x), -1, self._dim)
        qk, value = qkv[:, :rotated], qkv[:, rotated:]
        if self._head_gain is not None:
            qk = _rms(qk, self._head_gain, self._eps)
        qk = torch.addcmul(qk * cos, qk.roll(self._dim // 2, -1), sin)
        by_head = qk.transpose(0, 1)[None]
        query, key = by_head[:, : self._heads], by_head[:, self._heads :]
        out = attend_packed(packed, self._index, query, key, value.transpose(0, 1)[None], self._scores)
        x = self._out.add(out.reshape(len(x), -1), x)
        gate, up = self._gate_up(_rms(x, self._after, self._eps)).chunk(2, -1)
        return self._down.add(F.silu(gate) * up, x)


def _rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm as transformers computes it: in float32, rounded before the gain."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return gain * (wide * scale).to(x.dtype)


def _rotation(rotary: Any, length: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tables [length, 1, dim] of the model's own rotary module. The sign of the half rotation is folded into sin,
    so that rotating is x * cos + roll(x, dim / 2) * sin."""
    positions = torch.arange(length, device=device)[None]
    cos, sin = rotary(torch.empty(1, dtype=dtype, device=device), positions)
    half = sin.shape[-1] // 2
    signed = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
    return cos[0].unsqueeze(1), signed[0].unsqueeze(1)


def release(layer: Any) -> None:
    """Drop a decoder layer's linear layers: their joined copies live elsewhere now, and two would not fit."""
    for owner, names in (
        (layer.self_attn, ("q_proj", "k_proj", "v_proj", "o_proj")),
        (layer.mlp, ("gate_proj", "up_proj", "down_proj")),
    ):
        for name in names:
            setattr(owner, name, nn.Identity())


def window_of(config: Any, index: int) -> int | None:
    """The layer's sliding window, or None."""
    kinds = getattr(config, "layer_types", None)
    window: int | None = getattr(config, "sliding_window", None)
    if kinds is not None:
        return window if kinds[index] == "sliding_attention" else None
    return window
