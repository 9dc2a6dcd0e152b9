"""Granite with windows and attention sinks, whose layers turn by angles of their own or not at all."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import attention, decoder, layer, whole, windows
from headstart.model.recipes.recipe import Recipe, Rope
from headstart.model.recipes.stated import Stated


def granite_swa(stated: Stated) -> Recipe:
    """A base of 0 (`layer_rope_theta`) is a layer without positions."""
    whole(stated)
    thetas = stated.layer_rope_theta
    if len(thetas) != stated.num_hidden_layers:
        raise stated.refused("layer_rope_theta", thetas)
    modules = {theta: f"model.rotary_embs.{i}" for i, theta in enumerate(sorted({each for each in thetas if each}))}
    plain = replace(layer(stated), residual_factor=float(stated.residual_multiplier))
    made = attention(stated)
    layers = [
        replace(
            plain,
            attention=replace(
                made,
                scaling=float(stated.attention_multiplier),
                rope=Rope(made.dim, module=modules[theta]) if theta else None,
                window=window,
                sinks="self_attn.sinks",
            ),
        )
        for theta, window in zip(thetas, windows(stated), strict=True)
    ]
    return replace(
        decoder(stated, layers),
        embedding_factor=float(stated.embedding_multiplier),
        logit_factor=1 / stated.logits_scaling,
    )
