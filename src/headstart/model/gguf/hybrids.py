"""Hybrids: what files state of models with recurrent layers, and which layers these are.

Files of LFM2, Granite 4 H and Nemotron-H say it by the heads of keys that a layer has, none where it is recurrent (or,
in Nemotron-H, where it is an MLP); those of Qwen3.5 by layer or by a period. Sizes of states are called after Mamba's
(`ssm`), whatever the recurrence (src/models/lfm2.cpp, qwen35.cpp, granite-hybrid.cpp, nemotron-h.cpp and falcon-h1.cpp
of ggml-org/llama.cpp).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.base.lazy import transformers
from headstart.model.gguf.description import DRAFTING, INNER, KV, SHARED_INNER, Description, Part, by_layer
from headstart.model.gguf.metadata import Metadata

_BY_LAYER, _PERIOD = "attention.recurrent_layers", "full_attention_interval"
_SECTIONS, _TAPS = "rope.dimension_sections", "shortconv.l_cache"
SIZES = frozenset({
    "ssm.conv_kernel", "ssm.group_count", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank",
})  # fmt: skip

KEYS_OF_LFM2 = frozenset({_TAPS})
KEYS_OF_QWEN35 = frozenset({*SIZES, _BY_LAYER, _PERIOD, _SECTIONS, DRAFTING})
KEYS_OF_GRANITE = frozenset({*SIZES, SHARED_INNER})

DRAFTING_OF_QWEN35 = frozenset({
    "attn_k", "attn_k_norm", "attn_norm", "attn_output", "attn_q", "attn_q_norm", "attn_v", "ffn_down", "ffn_gate",
    "ffn_up", "nextn.eh_proj", "nextn.embed_tokens", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_head",
    "nextn.shared_head_norm", "post_attention_norm",
})  # fmt: skip
"""Tensors of a head that drafts (MTP)."""


def without_keys(stated: Metadata, layers: int) -> tuple[Part, ...]:
    """Layers without heads of keys are recurrent."""
    return tuple("attention" if heads else "recurrence" for heads in by_layer(stated, KV, layers))


def without_keys_or_mlp(stated: Metadata, layers: int) -> tuple[Part, ...]:
    """Layers are one thing: those with an MLP are that, and of the others those without heads of keys are recurrent."""
    parts = zip(without_keys(stated, layers), by_layer(stated, INNER, layers), strict=True)
    return tuple("mlp" if width else part for part, width in parts)


def by_period(stated: Metadata, layers: int) -> tuple[Part, ...]:
    """As the file says of each layer; otherwise all but every fourth, or other, one are recurrent."""
    each = stated.get(_BY_LAYER)
    if each is None:
        period = stated.count(_PERIOD, 4)
        return tuple("recurrence" if (index + 1) % period else "attention" for index in range(layers))
    if not isinstance(each, np.ndarray) or each.dtype != bool or len(each) < layers:
        raise stated.wrong(_BY_LAYER, f"true or false for each of {layers} layers")
    return tuple("recurrence" if recurs else "attention" for recurs in each[:layers])


def lfm2(described: Description) -> Any:
    """Its files state the width of the MLP as it comes out of the original's config."""
    return transformers.Lfm2Config(**of_lfm2(described), block_auto_adjust_ff_dim=False)


def of_lfm2(described: Description) -> dict[str, Any]:
    """What configs of LFM2 say beside the width of its MLP."""
    common = described.windowless()
    common["norm_eps"] = common.pop("rms_norm_eps")
    return {
        **common,
        "conv_L_cache": described.stated.count(_TAPS),
        "conv_bias": described.has_in("recurrence", "shortconv.in_proj.bias"),
        "layer_types": _kinds(described, "conv"),
    }


def qwen35(described: Description) -> Any:
    """The text model, and how many layers of the file are a head that drafts: see `drafting`."""
    drafting = described.stated.whole(DRAFTING, 0)
    return transformers.Qwen3_5TextConfig(
        **described.windowless() | of_qwen35(described), mtp_num_hidden_layers=drafting
    )


def of_qwen35(described: Description) -> dict[str, Any]:
    """What a config of Qwen3.5 says of its attention, rotation and recurrence."""
    stated, rope = described.stated, described.rope()
    if _SECTIONS in stated:
        rope |= {"mrope_section": stated.wholes(_SECTIONS, 4)[:3], "mrope_interleaved": True}
    heads, inner = stated.count("ssm.time_step_rank"), stated.count("ssm.inner_size")
    key_heads = stated.count("ssm.group_count")
    if inner % heads or heads % key_heads:
        raise described.file.damaged(f"{heads} heads of {inner} numbers cannot share {key_heads} heads of keys")
    return {
        "rope_parameters": rope,
        "attention_bias": described.has("attn_q.bias"),
        "linear_conv_kernel_dim": stated.count("ssm.conv_kernel"),
        "linear_key_head_dim": stated.count("ssm.state_size"),
        "linear_value_head_dim": inner // heads,
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": heads,
        "layer_types": _kinds(described, "linear_attention"),
    }


def granite(described: Description) -> Any:
    """Without experts the width of its MLP is that of the expert that all tokens share."""
    stated, common, mixture = described.stated, described.windowless(), described.mixture
    inner, heads = stated.count("ssm.inner_size"), stated.count("ssm.time_step_rank")
    width = common["intermediate_size"]
    shared = stated.whole(SHARED_INNER, 0 if mixture else width)
    if mixture is None and shared != width:
        raise described.file.not_run(f"{SHARED_INNER} is {shared}, and feed_forward_length {width}")
    if inner % heads or inner % common["hidden_size"]:
        raise described.file.damaged(f"ssm.inner_size is {inner} for {heads} heads and rows of {common['hidden_size']}")
    return transformers.GraniteMoeHybridConfig(
        **common,
        **described.multipliers(),
        attention_bias=described.has("attn_q.bias"),
        num_local_experts=0 if mixture is None else mixture.count,
        **({} if mixture is None else {"num_experts_per_tok": mixture.chosen}),
        shared_intermediate_size=shared,
        position_embedding_type="rope" if stated.flag("rope.scaling.finetuned", True) else "nope",
        layer_types=_kinds(described, "linear_attention"),
        mamba_n_heads=heads,
        mamba_d_head=inner // heads,
        mamba_d_state=stated.count("ssm.state_size"),
        mamba_n_groups=stated.count("ssm.group_count"),
        mamba_d_conv=stated.count("ssm.conv_kernel"),
        mamba_expand=inner // common["hidden_size"],
        mamba_conv_bias=described.has_in("recurrence", "ssm_conv1d.bias"),
        mamba_proj_bias=described.has_in("recurrence", "ssm_in.bias"),
    )


def falcon_h1(described: Description) -> Any:
    """Its converter multiplies the factors into the weights. The norm of its recurrence comes after the gate, if there
    is one: llama.cpp knows no other way."""
    stated = described.stated
    inner, heads = stated.count("ssm.inner_size"), _heads(described)
    return transformers.FalconH1Config(
        **described.windowless(),
        attention_bias=described.has("attn_q.bias"),
        mlp_bias=described.has("ffn_gate.bias"),
        mamba_d_ssm=inner,
        mamba_n_heads=heads,
        mamba_d_head=inner // heads,
        mamba_d_state=stated.count("ssm.state_size"),
        mamba_n_groups=stated.count("ssm.group_count"),
        mamba_d_conv=stated.count("ssm.conv_kernel"),
        mamba_conv_bias=described.has("ssm_conv1d.bias"),
        mamba_proj_bias=described.has("ssm_in.bias"),
        mamba_rms_norm=described.has("ssm_norm.weight"),
        mamba_norm_before_gate=False,
        projectors_bias=described.has("ssm_out.bias"),
    )


def nemotron_h(described: Description, **of_experts: Any) -> Any:
    """Without positions; all layers that are no mixers have experts, or none has. Some files give its RMS norms'
    epsilon the name that others have for that of layer norms."""
    stated, common = described.stated, dict(described.common)
    name = "attention.layer_norm_rms_epsilon"
    eps = stated.positive(name if name in stated else "attention.layer_norm_epsilon")
    if (window := described.window()) is not None:
        raise described.file.not_run(f"attention.sliding_window is {window}, which does not say in which layers")
    del common["num_hidden_layers"]  # which the kinds of the layers say
    fed = "mlp" if described.mixture is None else "moe"
    kinds = {"attention": "full_attention", "recurrence": "linear_attention", "mlp": fed}
    heads = _heads(described)
    return transformers.NemotronHConfig(
        **common,
        **of_experts,
        layer_norm_epsilon=eps,
        layers_block_type=[kinds[part] for part in described.parts],
        attention_bias=described.has("attn_q.bias"),
        mlp_bias=described.has_in("mlp", "ffn_up.bias"),
        mamba_num_heads=heads,
        mamba_head_dim=stated.count("ssm.inner_size") // heads,
        ssm_state_size=stated.count("ssm.state_size"),
        n_groups=stated.count("ssm.group_count"),
        conv_kernel=stated.count("ssm.conv_kernel"),
        use_conv_bias=described.has_in("recurrence", "ssm_conv1d.bias"),
        use_bias=described.has_in("recurrence", "ssm_in.bias"),
        time_step_min=1e-9,  # below which transformers raises the steps of a prompt, and not those of one token
    )


def _heads(described: Description) -> int:
    """Of a recurrence."""
    inner, heads = described.stated.count("ssm.inner_size"), described.stated.count("ssm.time_step_rank")
    if inner % heads:
        raise described.file.damaged(f"ssm.inner_size is {inner} for {heads} heads")
    return int(heads)


def _kinds(described: Description, recurrent: str) -> list[str]:
    return [recurrent if part == "recurrence" else "full_attention" for part in described.parts]
