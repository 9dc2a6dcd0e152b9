"""Families with latent attention: DeepSeek V3 and MiniCPM3."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, mlp, rms
from headstart.model.recipes.latent import latent
from headstart.model.recipes.recipe import Layer, Recipe
from headstart.model.recipes.stated import Stated

_OF_EXPERTS = (
    "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group", "topk_group",
    "norm_topk_prob", "routed_scaling_factor",
)  # fmt: skip


def deepseek_v3(stated: Stated) -> Recipe:
    """Layers before `first_k_dense_replace` have an MLP."""
    layer = _layer(stated, pairs=bool(stated.rope_interleave))
    count = stated.num_hidden_layers
    if stated.first_k_dense_replace < count:
        raise stated.refused("first_k_dense_replace", stated.first_k_dense_replace)
    stated.without_effect(*_OF_EXPERTS)
    return decoder(stated, [layer] * count)


def minicpm3(stated: Stated) -> Recipe:
    """What a layer adds is less the more layers there are."""
    layer = replace(
        _layer(stated, pairs=False), residual_factor=float(stated.scale_depth) / float(stated.num_hidden_layers) ** 0.5
    )
    return replace(
        decoder(stated, [layer] * stated.num_hidden_layers),
        embedding_factor=float(stated.scale_emb),
        embedding_factor_rounded=True,
        logit_factor=stated.dim_model_base / stated.hidden_size,
    )


def _layer(stated: Stated, *, pairs: bool) -> Layer:
    return Layer(
        latent(stated, pairs=pairs),
        mlp(stated),
        rms(stated, "input_layernorm"),
        rms(stated, "post_attention_layernorm"),
    )
