"""What the decoders of Llama-shaped models share: which models these are, their norm, rotation and windows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
FAMILIES_IN_WORDS = f"{', '.join(_FAMILIES[:-1])} and {_FAMILIES[-1]}"
FIXED_ROPE = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotation that depend on the position alone."""


def is_llama_shaped(model: Any) -> bool:
    """Whether the Llama forward computes this model: its family, SiLU, and rotation that depends on position alone."""
    return is_llama_config(model.config, type(model).__name__)


def is_llama_config(config: Any, name: str) -> bool:
    """The same of a model still to be made. name: of its class."""
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return name.removesuffix("ForCausalLM") in _FAMILIES and config.hidden_act == "silu" and rope in FIXED_ROPE


def rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm as transformers computes it: in float32, rounded before the gain."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return gain * (wide * scale).to(gain.dtype)


def rotation(rotary: Any, length: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Cosine and sine [length, dim / 2] in float32, of a rotary module of transformers. Both halves of a head turn
    alike."""
    cos, sin = rotary(torch.empty(1, device=device), torch.arange(length, device=device)[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()


def signed(cos: Tensor, sin: Tensor, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tables [length, 1, dim] of these for `rotate`. The sign of the half rotation is folded into the sine."""
    tables = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    return tables[0].to(device, dtype)[:, None], tables[1].to(device, dtype)[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [M, heads, dim], turned by the rows [M, 1, dim] of the tables of `signed`: three operations."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def window_of(config: Any, index: int) -> int | None:
    """The layer's sliding window, or None."""
    kinds = getattr(config, "layer_types", None)
    window: int | None = getattr(config, "sliding_window", None)
    if kinds is not None:
        return window if kinds[index] == "sliding_attention" else None
    return window


def release(layer: Any) -> None:
    """Drop a decoder layer's linear layers: their joined copies live elsewhere now, and two would not fit."""
    for owner, names in (
        (layer.self_attn, ("q_proj", "k_proj", "v_proj", "o_proj")),
        (layer.mlp, ("gate_proj", "up_proj", "down_proj")),
    ):
        for name in names:
            setattr(owner, name, nn.Identity())
