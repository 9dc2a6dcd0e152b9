"""Families with mixtures of experts whose attention is another family's."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import activation, decoder
from headstart.model.recipes.experts import Experts, Router
from headstart.model.recipes.llama import qwen3
from headstart.model.recipes.recipe import Layer, Recipe
from headstart.model.recipes.stated import Stated


def qwen3_moe(stated: Stated) -> Recipe:
    """Qwen 3 with experts in all layers but those that the config names."""
    router = Router(stated.num_experts_per_tok, normalised=stated.norm_topk_prob)
    experts = Experts(stated.num_experts, stated.moe_intermediate_size, activation(stated), router)
    return decoder(stated, by_step(stated, list(qwen3(stated).layers), experts))


def by_step(stated: Stated, layers: list[Layer], experts: Experts) -> list[Layer]:
    """The same layers with experts in every so many of them, but not in those that the config names."""
    step, plain = stated.decoder_sparse_step, stated.get("mlp_only_layers", [])
    return [
        layer if i in plain or (i + 1) % step else replace(layer, feed_forward=experts)
        for i, layer in enumerate(layers)
    ]
