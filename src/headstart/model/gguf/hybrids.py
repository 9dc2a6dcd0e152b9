"""Hybrids: what files state of models with recurrent layers, and which layers these are.

Files of LFM2 and Granite 4 H say it by the heads of keys that a layer has, none where it is recurrent; those of Qwen3.5
by layer or by a period. Sizes of states are called after Mamba's (`ssm`), whatever the recurrence (src/models/lfm2.cpp,
qwen35.cpp and granite-hybrid.cpp of ggml-org/llama.cpp).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from transformers import GraniteMoeHybridConfig, Lfm2Config, Qwen3_5TextConfig

from headstart.model.gguf.description import DRAFTING, KV, Description
from headstart.model.gguf.metadata import Metadata

_BY_LAYER, _PERIOD = "attention.recurrent_layers", "full_attention_interval"
_SECTIONS, _TAPS = "rope.dimension_sections", "shortconv.l_cache"
_SHARED = "expert_shared_feed_forward_length"
_SIZES = {"ssm.conv_kernel", "ssm.group_count", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank"}

KEYS_OF_LFM2 = frozenset({_TAPS})
KEYS_OF_QWEN35 = frozenset({*_SIZES, _BY_LAYER, _PERIOD, _SECTIONS, DRAFTING})
KEYS_OF_GRANITE = frozenset({*_SIZES, _SHARED})

DRAFTING_OF_QWEN35 = frozenset({
    "attn_k", "attn_k_norm", "attn_norm", "attn_output", "attn_q", "attn_q_norm", "attn_v", "ffn_down", "ffn_gate",
    "ffn_up", "nextn.eh_proj", "nextn.embed_tokens", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_head",
    "nextn.shared_head_norm", "post_attention_norm",
})  # fmt: skip
"""Tensors of a head that drafts (MTP)."""


def without_keys(stated: Metadata, layers: int) -> tuple[bool, ...]:
    """Which layers are recurrent: those without heads of keys."""
    return tuple(not heads for heads in stated.wholes(KV, layers))


def by_period(stated: Metadata, layers: int) -> tuple[bool, ...]:
    """Which layers are recurrent: as the file says of each, otherwise all but every fourth, or other, one."""
    each = stated.get(_BY_LAYER)
    if each is None:
        period = stated.count(_PERIOD, 4)
        return tuple((index + 1) % period != 0 for index in range(layers))
    if not isinstance(each, np.ndarray) or each.dtype != bool or len(each) < layers:
        raise stated.wrong(_BY_LAYER, f"true or false for each of {layers} layers")
    return tuple(each[:layers].tolist())


def lfm2(described: Description) -> Any:
    """Its files state the width of the MLP as it comes out of the original's config."""
    common = described.windowless()
    common["norm_eps"] = common.pop("rms_norm_eps")
    return Lfm2Config(
        **common,
        block_auto_adjust_ff_dim=False,
        conv_L_cache=described.stated.count(_TAPS),
        conv_bias=described.recurs("shortconv.in_proj.bias"),
        layer_types=_kinds(described, "conv"),
    )


def qwen35(described: Description) -> Any:
    """The text model, and how many layers of the file are a head that drafts: see `drafting`."""
    stated, common = described.stated, described.windowless()
    sections = stated.wholes(_SECTIONS, 4)
    common["rope_parameters"] |= {"mrope_section": sections[:3], "mrope_interleaved": True}
    heads, inner = stated.count("ssm.time_step_rank"), stated.count("ssm.inner_size")
    key_heads = stated.count("ssm.group_count")
    if inner % heads or heads % key_heads:
        raise described.file.damaged(f"{heads} heads of {inner} numbers cannot share {key_heads} heads of keys")
    return Qwen3_5TextConfig(
        **common,
        attention_bias=described.has("attn_q.bias"),
        linear_conv_kernel_dim=stated.count("ssm.conv_kernel"),
        linear_key_head_dim=stated.count("ssm.state_size"),
        linear_value_head_dim=inner // heads,
        linear_num_key_heads=key_heads,
        linear_num_value_heads=heads,
        layer_types=_kinds(described, "linear_attention"),
        mtp_num_hidden_layers=stated.whole(DRAFTING, 0),
    )


def granite(described: Description) -> Any:
    """Without experts: the width of its MLP is that of the expert that all tokens share."""
    stated, common = described.stated, described.windowless()
    inner, heads = stated.count("ssm.inner_size"), stated.count("ssm.time_step_rank")
    width = common["intermediate_size"]
    if (shared := stated.whole(_SHARED, width)) != width:
        raise described.file.not_run(f"{_SHARED} is {shared}, and feed_forward_length {width}")
    if inner % heads or inner % common["hidden_size"]:
        raise described.file.damaged(f"ssm.inner_size is {inner} for {heads} heads and rows of {common['hidden_size']}")
    return GraniteMoeHybridConfig(
        **common,
        **described.multipliers(),
        attention_bias=described.has("attn_q.bias"),
        num_local_experts=0,
        shared_intermediate_size=width,
        position_embedding_type="rope" if stated.flag("rope.scaling.finetuned", True) else "nope",
        layer_types=_kinds(described, "linear_attention"),
        mamba_n_heads=heads,
        mamba_d_head=inner // heads,
        mamba_d_state=stated.count("ssm.state_size"),
        mamba_n_groups=stated.count("ssm.group_count"),
        mamba_d_conv=stated.count("ssm.conv_kernel"),
        mamba_expand=inner // common["hidden_size"],
        mamba_conv_bias=described.recurs("ssm_conv1d.bias"),
        mamba_proj_bias=described.recurs("ssm_in.bias"),
    )


def _kinds(described: Description, recurrent: str) -> list[str]:
    return [recurrent if each else "full_attention" for each in described.recurrent]
