"""Phi 3, 3.5 and 4."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, layer, windowed
from headstart.model.recipes.recipe import Recipe
from headstart.model.recipes.stated import Stated


def phi3(stated: Stated) -> Recipe:
    """Phi 3, 3.5 and 4: queries, keys and values are one matrix, and so are gate and up; one window for all layers."""
    for name in ("attention_bias", "mlp_bias", "lm_head_bias"):
        stated.must_be(name, False)
    stated.must_be("full_attn_mod", 1)
    stated.must_be("interpolate_factor", 1)
    stated.get("original_max_position_embeddings")  # it is in `rope_parameters` too
    plain = windowed(layer(stated), stated.get("sliding_window"))
    plain = replace(
        plain,
        mixer=replace(plain.attention, qkv=("self_attn.qkv_proj",)),
        feed_forward=replace(plain.mlp, gate_up=("mlp.gate_up_proj",)),
    )
    return decoder(stated, [plain] * stated.num_hidden_layers)
