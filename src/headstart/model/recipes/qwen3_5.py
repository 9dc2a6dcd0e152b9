"""Qwen3.5 and what follows it: the gated delta rule in most layers, gated attention in the rest."""

from __future__ import annotations

from dataclasses import replace

from headstart.model.recipes.common import decoder, layer
from headstart.model.recipes.mixers import DeltaRule
from headstart.model.recipes.norms import Norm
from headstart.model.recipes.recipe import Recipe
from headstart.model.recipes.stated import Stated


def qwen3_5(stated: Stated) -> Recipe:
    """Gains are stored as their difference from 1, but those of the recurrence. Positions of a text are the same in all
    three of the rotation's directions, which images alone tell apart."""
    eps = stated.rms_norm_eps

    def norm(name: str) -> Norm:
        return Norm(name, eps, offset=1.0, wide_gain=True)

    plain = layer(stated, "mrope_section", "mrope_interleaved", "mrope")
    plain = replace(plain, attention_in=norm("input_layernorm"), mlp_in=norm("post_attention_layernorm"))
    attends = plain.attending(gated=True, q_norm=norm("self_attn.q_norm"), k_norm=norm("self_attn.k_norm"))
    recurs = replace(
        plain,
        mixer=DeltaRule(
            heads=stated.linear_num_value_heads,
            key_heads=stated.linear_num_key_heads,
            key_dim=stated.linear_key_head_dim,
            value_dim=stated.linear_value_head_dim,
            taps=stated.linear_conv_kernel_dim,
            norm=Norm("linear_attn.norm", eps),
        ),
    )
    kinds = {"full_attention": attends, "linear_attention": recurs}
    stated.without_effect("full_attention_interval")  # `layer_types` says what comes of it
    stated.without_effect("mtp_use_dedicated_embeddings")  # of the head beside the model
    stated.must_be("attn_output_gate", True)
    stated.must_be("mamba_ssm_dtype", "float32")
    return decoder(stated, stated.kinds(kinds), norm("model.norm"))
