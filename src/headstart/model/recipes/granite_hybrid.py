"""Granite 4 H: Mamba-2 in most layers, attention in the rest."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.granite import granite
from headstart.model.recipes.mamba import mamba2
from headstart.model.recipes.mixtures import granite_experts, granite_shared
from headstart.model.recipes.recipe import Experts, Mlp, Recipe
from headstart.model.recipes.stated import Stated


def granite_hybrid(stated: Stated) -> Recipe:
    """Attention has rotation or none; there may be experts beside each layer's MLP."""
    whole = granite(stated)
    rope = stated.get("position_embedding_type") == "rope"
    shared = granite_shared(stated, stated.shared_intermediate_size)
    fed: Mlp | Experts = shared
    if stated.num_local_experts:
        fed = replace(granite_experts(stated), shared=shared)
    else:
        stated.without_effect("intermediate_size", "num_experts_per_tok")
    attends = replace(whole.layers[0], feed_forward=fed)
    if not rope:
        attends = attends.attending(rope=None)
    kinds = {"linear_attention": replace(attends, mixer=mamba2(stated)), "full_attention": attends}
    return replace(whole, layers=tuple(stated.kinds(kinds)), rotary=whole.rotary if rope else None)
