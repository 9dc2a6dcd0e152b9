"""Granite 4 H without experts: Mamba-2 in most layers, attention in the rest."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import activation
from headstart.model.recipes.granite import granite
from headstart.model.recipes.mamba import mamba2
from headstart.model.recipes.recipe import Mlp, Recipe
from headstart.model.recipes.stated import Stated


def granite_hybrid(stated: Stated) -> Recipe:
    """Attention has rotation or none."""
    stated.must_be("num_local_experts", 0)
    stated.without_effect("intermediate_size", "num_experts_per_tok")
    whole = granite(stated)
    rope = stated.get("position_embedding_type") == "rope"
    mlp = Mlp(
        stated.shared_intermediate_size, activation(stated), ("shared_mlp.input_linear",), "shared_mlp.output_linear"
    )
    attends = replace(whole.layers[0], feed_forward=mlp)
    if not rope:
        attends = attends.attending(rope=None)
    kinds = {"linear_attention": replace(attends, mixer=mamba2(stated)), "full_attention": attends}
    return replace(whole, layers=tuple(stated.kinds(kinds)), rotary=whole.rotary if rope else None)
