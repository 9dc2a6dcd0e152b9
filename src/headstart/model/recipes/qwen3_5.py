"""Qwen3.5 and what follows it: the gated delta rule in most layers, gated attention in the rest."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, layer, shared
from headstart.model.recipes.mixers import DeltaRule
from headstart.model.recipes.mixtures import by_step, qwen_experts, with_shared
from headstart.model.recipes.norms import Norm
from headstart.model.recipes.recipe import Layer, Recipe
from headstart.model.recipes.stated import Stated

_MROPE = ("mrope_section", "mrope_interleaved", "mrope")
"""How positions of images turn."""


def qwen3_5(stated: Stated) -> Recipe:
    return _decoder(stated, layer(stated, *_MROPE), _delta_rule(stated))


def qwen3_5_moe(stated: Stated) -> Recipe:
    """Experts in all layers, and a shared one with a gate."""
    experts = with_shared(stated, qwen_experts(stated, normalised=True))
    return _decoder(stated, layer(stated, *_MROPE, feed_forward=experts), _delta_rule(stated))


def qwen3_next(stated: Stated) -> Recipe:
    """The same, but for experts in some layers only, and for how the inputs of the delta rule are stored."""
    at = "linear_attn"
    recurs = replace(_delta_rule(stated), inputs=(f"{at}.in_proj_qkvz", f"{at}.in_proj_ba"), by_key_head=True)
    made = _decoder(stated, layer(stated), recurs)
    experts, fed = with_shared(stated, qwen_experts(stated)), by_step(stated)
    layers = [replace(each, feed_forward=experts) if fed(i) else each for i, each in enumerate(made.layers)]
    return replace(made, layers=shared(layers))


def _delta_rule(stated: Stated) -> DeltaRule:
    return DeltaRule(
        heads=stated.linear_num_value_heads,
        key_heads=stated.linear_num_key_heads,
        key_dim=stated.linear_key_head_dim,
        value_dim=stated.linear_value_head_dim,
        taps=stated.linear_conv_kernel_dim,
        norm=Norm("linear_attn.norm", stated.rms_norm_eps),
    )


def _decoder(stated: Stated, plain: Layer, recurrence: DeltaRule) -> Recipe:
    """Gains are stored as their difference from 1, but those of the recurrence. Positions of a text are the same in all
    three of the rotation's directions, which images alone tell apart."""
    eps = stated.rms_norm_eps

    def norm(name: str) -> Norm:
        return Norm(name, eps, offset=1.0, wide_gain=True)

    plain = replace(plain, attention_in=norm("input_layernorm"), mlp_in=norm("post_attention_layernorm"))
    attends = plain.attending(gated=True, q_norm=norm("self_attn.q_norm"), k_norm=norm("self_attn.k_norm"))
    kinds = {"full_attention": attends, "linear_attention": replace(plain, mixer=recurrence)}
    stated.without_effect("full_attention_interval")  # `layer_types` says what comes of it
    stated.without_effect("mtp_use_dedicated_embeddings")  # of the head beside the model
    stated.must_be("attn_output_gate", True)
    stated.must_be("mamba_ssm_dtype", "float32")
    return decoder(stated, stated.kinds(kinds), norm("model.norm"))
