"""Models with Mamba-2 layers: Bamba, Falcon-H1, and Nemotron-H."""

from __future__ import annotations

import math
from dataclasses import replace

from headstart.model.recipes.common import activation, attention, decoder, heads, mlp, rms
from headstart.model.recipes.experts import Experts
from headstart.model.recipes.mixers import Mamba2
from headstart.model.recipes.mixtures import grouped_router
from headstart.model.recipes.norms import Norm
from headstart.model.recipes.recipe import Attention, Layer, Mlp, Recipe
from headstart.model.recipes.stated import Stated


def mamba2(stated: Stated) -> Mamba2:
    """A Mamba-2 layer as configs of Bamba, Falcon-H1 and Granite 4 H state it."""
    stated.must_be("hidden_act", "silu")  # of the convolution too
    unlimited(stated)
    stated.without_effect("mamba_chunk_size")
    for name in ("mamba_conv_bias", "mamba_proj_bias"):
        stated.get(name)
    found = Mamba2(
        heads=stated.mamba_n_heads,
        dim=stated.mamba_d_head,
        state=stated.mamba_d_state,
        groups=stated.mamba_n_groups,
        taps=stated.mamba_d_conv,
        norm=Norm("mamba.norm", stated.rms_norm_eps),
    )
    if stated.get("mamba_d_ssm") is None:
        stated.must_be("mamba_expand", found.width / stated.hidden_size)
    else:  # Falcon-H1, whose class checks it against the heads
        stated.without_effect("mamba_expand")
    return found


def unlimited(stated: Stated) -> None:
    """Raise `UnsupportedModel` for limits of time steps, which transformers applies to prompts alone."""
    stated.must_be("time_step_limit", (0.0, math.inf), [0.0, math.inf])


def bamba(stated: Stated) -> Recipe:
    """Half of a head turns."""
    stated.without_effect("num_logits_to_keep", "z_loss_coefficient", "attn_layer_indices")  # said by `layer_types`
    attends = _layer(stated)
    kinds = {"full_attention": attends, "linear_attention": replace(attends, mixer=mamba2(stated))}
    return decoder(stated, stated.kinds(kinds), rms(stated, "model.final_layernorm"))


def falcon_h1(stated: Stated) -> Recipe:
    """Attention and Mamba-2 side by side in every layer, and a factor for nearly everything that is multiplied (muP).

    Those of inputs stand at the outputs here, where they are the same, so no layer with one may have a bias. Those of
    queries and keys are in the scaling of their scores.
    """
    attends, recurs = _layer(stated), mamba2(stated)
    fed, ssm_fed = float(stated.attention_in_multiplier), float(stated.ssm_in_multiplier)
    for name, factor in (("attention_bias", fed), ("mamba_proj_bias", ssm_fed)):
        if factor != 1.0:
            stated.must_be(name, False)
    z, x, b, c, dt = (ssm_fed * float(each) for each in stated.ssm_multipliers)
    gate, down = (float(each) for each in stated.mlp_multipliers)
    stated.get("projectors_bias")
    stated.without_effect("num_logits_to_keep")
    norm_first = bool(stated.mamba_norm_before_gate)
    attention = attends.attention
    whole = replace(
        attends,
        mixer=replace(
            attention,
            scaling=attention.scaling * float(stated.key_multiplier) * fed**2,
            factor=fed * float(stated.attention_out_multiplier),
        ),
        beside=replace(
            recurs,
            norm=recurs.norm if stated.mamba_rms_norm else None,
            norm_first=norm_first and bool(stated.mamba_rms_norm),
            factors=(z, x, b, c, dt),
            factor=float(stated.ssm_out_multiplier),
        ),
        feed_forward=replace(attends.mlp, gate_factor=gate, factor=down),
    )
    return replace(
        decoder(stated, [whole] * stated.num_hidden_layers, rms(stated, "model.final_layernorm")),
        embedding_factor=float(stated.embedding_multiplier),
        logit_factor=float(stated.lm_head_multiplier),
    )


def _layer(stated: Stated) -> Layer:
    """A layer with attention, of Bamba and Falcon-H1."""
    return Layer(
        attention(stated),
        replace(mlp(stated), gate_up=("feed_forward.gate_proj", "feed_forward.up_proj"), down="feed_forward.down_proj"),
        rms(stated, "input_layernorm"),
        rms(stated, "pre_ff_layernorm"),
    )


def _experts(stated: Stated, ungated: Mlp) -> Experts:
    """Of Nemotron-H, without a gate."""
    stated.must_be("moe_latent_size")
    at = "mixer.shared_experts"
    return Experts(
        stated.n_routed_experts,
        stated.moe_intermediate_size,
        ungated.activation,
        grouped_router(stated, "mixer.gate"),
        ("mixer.experts.up_proj",),
        "mixer.experts.down_proj",
        gated=False,
        shared=Mlp(
            stated.moe_shared_expert_intermediate_size, ungated.activation, (f"{at}.up_proj",), f"{at}.down_proj",
            gated=False,
        ),
    )  # fmt: skip


def nemotron_h(stated: Stated) -> Recipe:
    """Each layer is one mixer, one MLP, or experts; attention has no positions.

    transformers raises time steps to `time_step_min` in prompts, which is a number of training; here as in its steps of
    one token they are what they are.
    """
    eps = stated.layer_norm_epsilon
    unlimited(stated)
    stated.must_be("mamba_hidden_act", "silu")
    stated.without_effect(
        "expand", "chunk_size", "mamba_ssm_cache_dtype", "num_logits_to_keep", "time_step_min", "time_step_max",
        "time_step_floor", "rescale_prenorm_residual", "mamba_proj_bias", "mtp_layers_block_type",
    )  # fmt: skip
    for name in ("use_bias", "use_conv_bias", "mlp_bias"):
        stated.get(name)
    norm = Norm("norm", eps, wide_gain=True)
    count, kv_heads, dim = heads(stated)
    attends = Attention(
        count, kv_heads, dim, dim**-0.5, None, qkv=("mixer.q_proj", "mixer.k_proj", "mixer.v_proj"), out="mixer.o_proj"
    )
    recurs = Mamba2(
        heads=stated.mamba_num_heads,
        dim=stated.mamba_head_dim,
        state=stated.ssm_state_size,
        groups=stated.n_groups,
        taps=stated.conv_kernel,
        norm=Norm("mixer.norm", eps),
        inputs=("mixer.in_proj",),
        conv="mixer.conv1d",
        decay="mixer.A_log",
        bias="mixer.dt_bias",
        skip="mixer.D",
        out="mixer.out_proj",
    )
    ungated = Mlp(
        stated.intermediate_size, activation(stated, "mlp_hidden_act"), ("mixer.up_proj",), "mixer.down_proj",
        gated=False,
    )  # fmt: skip
    kinds = {
        "full_attention": Layer(attends, None, norm, None),
        "linear_attention": Layer(recurs, None, norm, None),
        "mlp": Layer(None, ungated, None, norm),
    }
    if "moe" in stated.layer_types:
        kinds["moe"] = Layer(None, _experts(stated, ungated), None, norm)
    else:
        stated.without_effect(
            "n_routed_experts", "moe_intermediate_size", "moe_shared_expert_intermediate_size", "moe_latent_size",
            "num_experts_per_tok", "routed_scaling_factor", "n_group", "topk_group", "norm_topk_prob",
        )  # fmt: skip
    stated.without_effect("n_shared_experts", "moe_shared_expert_overlap")  # their width alone is read
    layers = stated.kinds(kinds)
    made = decoder(stated, layers, Norm("model.norm_f", eps, wide_gain=True))
    return replace(made, embedding="model.embeddings", rotary=None)
