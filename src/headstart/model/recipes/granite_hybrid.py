"""Granite 4 H without experts: Mamba-2 in most layers, attention in the rest."""

from __future__ import annotations

import math
from dataclasses import replace

from headstart.model.recipes.common import activation
from headstart.model.recipes.granite import granite
from headstart.model.recipes.mixers import Mamba2
from headstart.model.recipes.norms import Norm
from headstart.model.recipes.recipe import Mlp, Recipe
from headstart.model.recipes.stated import Stated


def granite_hybrid(stated: Stated) -> Recipe:
    """Attention has rotation or none."""
    stated.must_be("num_local_experts", 0)
    stated.must_be("hidden_act", "silu")  # of the convolution too
    stated.must_be("time_step_limit", (0.0, math.inf), [0.0, math.inf])
    stated.without_effect("intermediate_size", "num_experts_per_tok", "mamba_chunk_size")
    whole = granite(stated)
    rope = stated.get("position_embedding_type") == "rope"
    for name in ("mamba_conv_bias", "mamba_proj_bias"):
        stated.get(name)
    mlp = Mlp(
        stated.shared_intermediate_size, activation(stated), ("shared_mlp.input_linear",), "shared_mlp.output_linear"
    )
    attends = replace(whole.layers[0], mlp=mlp)
    if not rope:
        attends = attends.attending(rope=None)
    mixer = Mamba2(
        heads=stated.mamba_n_heads,
        dim=stated.mamba_d_head,
        state=stated.mamba_d_state,
        groups=stated.mamba_n_groups,
        taps=stated.mamba_d_conv,
        norm=Norm("mamba.norm", stated.rms_norm_eps),
    )
    stated.must_be("mamba_expand", mixer.width / stated.hidden_size)
    kinds = {"linear_attention": replace(attends, mixer=mixer), "full_attention": attends}
    return replace(whole, layers=tuple(stated.kinds(kinds)), rotary=whole.rotary if rope else None)
