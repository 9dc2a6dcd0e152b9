"""Models with Mamba-2 layers: Bamba, and Nemotron-H without experts."""

from __future__ import annotations

import math
from dataclasses import replace

from headstart.model.recipes.common import activation, attention, decoder, heads, mlp, rms
from headstart.model.recipes.mixers import Mamba2
from headstart.model.recipes.norms import Norm
from headstart.model.recipes.recipe import Attention, Layer, Mlp, Recipe
from headstart.model.recipes.stated import Stated


def mamba2(stated: Stated) -> Mamba2:
    """A Mamba-2 layer as configs of Bamba and Granite 4 H state it."""
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
    stated.must_be("mamba_expand", found.width / stated.hidden_size)
    return found


def unlimited(stated: Stated) -> None:
    """Raise `UnsupportedModel` for limits of time steps, which transformers applies to prompts alone."""
    stated.must_be("time_step_limit", (0.0, math.inf), [0.0, math.inf])


def bamba(stated: Stated) -> Recipe:
    """Half of a head turns."""
    stated.without_effect("num_logits_to_keep", "z_loss_coefficient", "attn_layer_indices")  # said by `layer_types`
    names = ("feed_forward.gate_proj", "feed_forward.up_proj")
    attends = Layer(
        attention(stated),
        replace(mlp(stated), gate_up=names, down="feed_forward.down_proj"),
        rms(stated, "input_layernorm"),
        rms(stated, "pre_ff_layernorm"),
    )
    kinds = {"full_attention": attends, "linear_attention": replace(attends, mixer=mamba2(stated))}
    return decoder(stated, stated.kinds(kinds), rms(stated, "model.final_layernorm"))


def nemotron_h(stated: Stated) -> Recipe:
    """Each layer is one mixer or one MLP; attention has no positions.

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
    layers = stated.kinds(kinds)
    stated.without_effect(  # of layers of experts, which are refused above
        "n_routed_experts", "n_shared_experts", "moe_intermediate_size", "moe_shared_expert_intermediate_size",
        "moe_latent_size", "moe_shared_expert_overlap", "num_experts_per_tok", "routed_scaling_factor", "n_group",
        "topk_group", "norm_topk_prob",
    )  # fmt: skip
    made = decoder(stated, layers, Norm("model.norm_f", eps, wide_gain=True))
    return replace(made, embedding="model.embeddings", rotary=None)
