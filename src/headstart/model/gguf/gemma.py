"""Gemma 2 and 3 text models: what their files state, and what they leave to the programs that read them.

Files do not state which layers have a window, what attention scores are divided by, or how the layers with a window are
rotated: llama.cpp knows it by architecture and number of layers (src/models/gemma2.cpp and gemma3.cpp of
ggml-org/llama.cpp), and so does this. Gains of norms are stored with 1 added: see `weights`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from transformers import Gemma2Config, Gemma3TextConfig

from headstart.model.gguf.files import GgufFile
from headstart.model.gguf.metadata import Metadata

KEYS_OF_GEMMA = {
    "gemma2": frozenset({"attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window_pattern"}),
    "gemma3": frozenset({"final_logit_softcapping", "attention.sliding_window_pattern", "rope.freq_base_swa"}),
}
"""By architecture: the keys below its name that others do not have."""

_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
"""The one size of each whose scores are divided by the root of width over heads, not by that of a head's width."""


def gemma_config(architecture: str, file: GgufFile, common: dict[str, Any], stated: Metadata) -> Any:
    """The config of the model. common: what all architectures have."""
    layers, heads = common["num_hidden_layers"], common["num_attention_heads"]
    by_width = layers == _LAYERS_OF_27B[architecture]
    common["query_pre_attn_scalar"] = common["hidden_size"] // heads if by_width else common["head_dim"]
    if architecture == "gemma2":
        return Gemma2Config(
            **common,
            sliding_window=stated.whole("attention.sliding_window", 4096),
            layer_types=_kinds(file, stated, layers, 2),
            attn_logit_softcapping=_cap(stated, "attn_logit_softcapping", 50.0),
            final_logit_softcapping=_cap(stated, "final_logit_softcapping", 30.0),
        )
    window = stated.whole("attention.sliding_window", 0)
    local = {"rope_type": "default", "rope_theta": stated.positive("rope.freq_base_swa", 10000.0)}
    common["rope_parameters"] = {"full_attention": common["rope_parameters"], "sliding_attention": local}
    return Gemma3TextConfig(
        **common,
        sliding_window=window or common["max_position_embeddings"],  # transformers wants one even where no layer has it
        layer_types=_kinds(file, stated, layers, 6) if window else ["full_attention"] * layers,
        final_logit_softcapping=_cap(stated, "final_logit_softcapping", 0.0),
    )


def _cap(stated: Metadata, key: str, default: float) -> float | None:
    return stated.number(key, default) or None


def _kinds(file: GgufFile, stated: Metadata, layers: int, period: int) -> list[str]:
    """The kind of each layer's attention: every period-th is full. A file may state the period, or each layer."""
    each = stated.get("attention.sliding_window_pattern")
    if isinstance(each, np.ndarray):
        if len(each) != layers or each.dtype != bool:
            raise file.damaged(f"its sliding_window_pattern has {len(each)} entries for {layers} layers")
        return ["sliding_attention" if slides else "full_attention" for slides in each.tolist()]
    period = stated.whole("attention.sliding_window_pattern", period)
    return ["sliding_attention" if not period or (i + 1) % period else "full_attention" for i in range(layers)]
