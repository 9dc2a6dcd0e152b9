"""Granite with windows and attention sinks, whose layers turn by angles of their own or not at all."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import shared, whole, windows
from headstart.model.recipes.granite import granite
from headstart.model.recipes.recipe import Recipe, Rope
from headstart.model.recipes.stated import Stated


def granite_swa(stated: Stated) -> Recipe:
    """A base of 0 (`layer_rope_theta`) is a layer without positions."""
    whole(stated)
    thetas = stated.layer_rope_theta
    if len(thetas) != stated.num_hidden_layers:
        raise stated.refused("layer_rope_theta", thetas)
    modules = {theta: f"model.rotary_embs.{i}" for i, theta in enumerate(sorted({each for each in thetas if each}))}
    made = granite(stated)
    layers = []
    for layer, theta, window in zip(made.layers, thetas, windows(stated), strict=True):
        rope = Rope(layer.attention.dim, module=modules[theta]) if theta else None
        attention = replace(layer.attention, rope=rope, window=window, sinks="self_attn.sinks")
        layers.append(replace(layer, mixer=attention))
    return replace(made, layers=shared(layers), rotary=None)
