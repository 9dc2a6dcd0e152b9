"""GLM-4: half of each head turns, in pairs; gate and up are one matrix; the second has norms on both sides."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, layer, rms
from headstart.model.recipes.recipe import Layer, Recipe
from headstart.model.recipes.stated import Stated


def glm(stated: Stated) -> Recipe:
    return decoder(stated, [_layer(stated)] * stated.num_hidden_layers)


def glm4(stated: Stated) -> Recipe:
    sandwich = replace(
        _layer(stated),
        attention_out=rms(stated, "post_self_attn_layernorm"),
        mlp_out=rms(stated, "post_mlp_layernorm"),
    )
    return decoder(stated, [sandwich] * stated.num_hidden_layers)


def _layer(stated: Stated) -> Layer:
    plain = layer(stated)
    assert plain.attention.rope is not None
    turning = replace(plain.attention, rope=replace(plain.attention.rope, pairs=True))
    return replace(plain, mixer=turning, feed_forward=replace(plain.mlp, gate_up=("mlp.gate_up_proj",)))
