"""Gemma 1 to 3, text models: what their files state, and what they leave to the programs that read them.

Files do not state which layers have a window, what attention scores are divided by, or how the layers with a window are
rotated: llama.cpp knows it by architecture and number of layers (src/models/gemma2.cpp and gemma3.cpp of
ggml-org/llama.cpp), and so does this. Gains of norms are stored with 1 added: see `names`.
"""

from __future__ import annotations

from typing import Any

from transformers import Gemma2Config, Gemma3TextConfig, GemmaConfig

from headstart.model.gguf.description import Description

_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
"""The one size of each whose scores are divided by the root of width over heads, not by that of a head's width."""


def gemma(described: Description) -> Any:
    return GemmaConfig(**described.rms())


def gemma2(described: Description) -> Any:
    return Gemma2Config(
        **described.rms(),
        query_pre_attn_scalar=_divisor(described, "gemma2"),
        sliding_window=described.stated.whole("attention.sliding_window", 4096),
        layer_types=described.kinds(2),
        attn_logit_softcapping=_cap(described, "attn_logit_softcapping", 50.0),
        final_logit_softcapping=_cap(described, "final_logit_softcapping", 30.0),
    )


def gemma3(described: Description) -> Any:
    common, window = described.rms(), described.window()
    local = {"rope_type": "default", "rope_theta": described.local_base(10000.0)}
    common["rope_parameters"] = {"full_attention": common["rope_parameters"], "sliding_attention": local}
    return Gemma3TextConfig(
        **common,
        query_pre_attn_scalar=_divisor(described, "gemma3"),
        sliding_window=window or common["max_position_embeddings"],  # transformers wants one even where no layer has it
        layer_types=described.kinds(6) if window else ["full_attention"] * described.layers,
        final_logit_softcapping=_cap(described, "final_logit_softcapping", 0.0),
    )


def _divisor(described: Description, architecture: str) -> int:
    by_width = described.layers == _LAYERS_OF_27B[architecture]
    return (
        int(described.common["hidden_size"] // described.common["num_attention_heads"]) if by_width else described.dim
    )


def _cap(described: Description, key: str, default: float) -> float | None:
    return described.stated.number(key, default) or None
