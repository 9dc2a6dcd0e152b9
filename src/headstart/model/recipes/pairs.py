"""Helium and ERNIE 4.5: neighbouring numbers of a head turn together."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, layer
from headstart.model.recipes.recipe import Layer, Norm, Recipe
from headstart.model.recipes.stated import Stated


def helium(stated: Stated) -> Recipe:
    """Norms apply their gain before they round."""

    def norm(name: str) -> Norm:
        return Norm(name, stated.rms_norm_eps, wide_gain=True)

    plain = replace(
        _turning_in_pairs(layer(stated)),
        attention_in=norm("input_layernorm"),
        mlp_in=norm("post_attention_layernorm"),
    )
    return replace(decoder(stated, [plain] * stated.num_hidden_layers), final_norm=norm("model.norm"))


def ernie4_5(stated: Stated) -> Recipe:
    stated.get("use_bias")
    return decoder(stated, [_turning_in_pairs(layer(stated))] * stated.num_hidden_layers)


def _turning_in_pairs(layer: Layer) -> Layer:
    rope = layer.attention.rope
    assert rope is not None, "a layer as Llama's turns"
    return layer.attending(rope=replace(rope, pairs=True))
