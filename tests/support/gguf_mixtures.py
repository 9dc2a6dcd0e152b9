"""Mixtures of experts: a tiny model of each family that GGUF files have, and what llama.cpp's converter makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gguf
import numpy as np
import transformers as tf

ARCHITECTURES = {
    "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "ernie4_5_moe": "ernie4_5-moe", "glm4_moe": "glm4moe",
    "glm4_moe_lite": "deepseek2", "gpt_oss": "gpt-oss", "granitemoeshared": "granitemoe",
    "kimi_linear": "kimi-linear",
    "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "youtu": "deepseek2",
}  # fmt: skip
"""By `model_type`; the others are called as their models, or are hybrids."""

VOCAB = 97
_ROPE = {"rope_type": "default", "rope_theta": 1e4}
_YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 64, "truncate": False,
}  # fmt: skip


def _sizes(**more: Any) -> dict[str, Any]:
    sizes = {
        "vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 0, "rms_norm_eps": 0.1, "tie_word_embeddings": False,
        "rope_parameters": _ROPE,
    } | more  # fmt: skip
    return {name: size for name, size in sizes.items() if size is not None}


_GRANITE = {
    "head_dim": None, "intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 3,
    "embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2,
}  # fmt: skip
_QWEN = {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 3}
_DELTA = {
    "head_dim": 32, "shared_expert_intermediate_size": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 32, "linear_value_head_dim": 32, "rms_norm_eps": 1e-6,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}  # fmt: skip
_LATENT = {
    "head_dim": None, "num_key_value_heads": 4, "kv_lora_rank": 96, "q_lora_rank": 64, "qk_rope_head_dim": 16,
    "v_head_dim": 64, "qk_nope_head_dim": 32, "intermediate_size": 96,
}  # fmt: skip
_ROUTED = {
    "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
    "routed_scaling_factor": 1.7,
}  # fmt: skip
_SCALED = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 16, "mscale": 0.7,
    "mscale_all_dim": 0.7,
}  # fmt: skip
_PART = {**_ROPE, "partial_rotary_factor": 0.5}
_SECTIONS = {**_PART, "mrope_section": [4, 2, 2], "mrope_interleaved": True}

MIXTURES: dict[str, Callable[[], Any]] = {
    "mixtral": lambda: tf.MixtralConfig(**_sizes(intermediate_size=32, num_local_experts=8)),
    "qwen2_moe": lambda: tf.Qwen2MoeConfig(
        **_sizes(**_QWEN, head_dim=None, intermediate_size=96, shared_expert_intermediate_size=64)
    ),
    "qwen3_moe": lambda: tf.Qwen3MoeConfig(**_sizes(**_QWEN, intermediate_size=96, norm_topk_prob=True)),
    "olmoe": lambda: tf.OlmoeConfig(
        **_sizes(head_dim=None, num_key_value_heads=4, intermediate_size=32, num_experts=8, num_experts_per_tok=3)
    ),
    "gpt_oss": lambda: tf.GptOssConfig(
        **_sizes(intermediate_size=32, num_local_experts=8, num_experts_per_tok=3, sliding_window=8)
    ),
    "gpt_oss, yarn": lambda: tf.GptOssConfig(
        **_sizes(
            intermediate_size=32, num_local_experts=8, num_experts_per_tok=3, sliding_window=8, rope_parameters=_YARN
        )
    ),
    "lfm2_moe": lambda: tf.Lfm2MoeConfig(
        **_sizes(
            **_QWEN, head_dim=None, rms_norm_eps=None, norm_eps=0.1, intermediate_size=96, num_dense_layers=1,
            layer_types=["conv", "full_attention", "conv"],
        )
    ),
    "granitemoe": lambda: tf.GraniteMoeConfig(**_sizes(**_GRANITE)),
    "granitemoe, shared": lambda: tf.GraniteMoeSharedConfig(**_sizes(**_GRANITE, shared_intermediate_size=64)),
    "granite4h, experts": lambda: tf.GraniteMoeHybridConfig(
        **_sizes(
            **_GRANITE, shared_intermediate_size=64, mamba_n_heads=8, mamba_d_head=16, mamba_d_state=32,
            mamba_n_groups=2, mamba_expand=2, position_embedding_type="nope",
            layer_types=["linear_attention", "full_attention", "linear_attention"],
        )
    ),
    "glm4_moe": lambda: tf.Glm4MoeConfig(
        **_sizes(
            moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2,
            intermediate_size=96, first_k_dense_replace=1, n_group=4, topk_group=2, routed_scaling_factor=1.5,
            use_qk_norm=True, attention_bias=True, rope_parameters=_PART,
        )
    ),
    "ernie4_5_moe": lambda: tf.Ernie4_5_MoeConfig(
        **_sizes(
            head_dim=None, intermediate_size=128, moe_intermediate_size=32, moe_num_experts=8, moe_k=3,
            moe_num_shared_experts=2, moe_layer_start_index=1,
        )
    ),
    "gemma4, experts": lambda: tf.Gemma4TextConfig(
        **_sizes(
            intermediate_size=96, moe_intermediate_size=32, num_experts=8, top_k_experts=3, enable_moe_block=True,
            global_head_dim=32, sliding_window=8, hidden_size_per_layer_input=0, final_logit_softcapping=5.0,
            num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, rope_parameters=None,
        )
    ),
    "qwen3_5_moe": lambda: tf.Qwen3_5MoeTextConfig(**_sizes(**_QWEN, **{**_DELTA, "rope_parameters": _SECTIONS})),
    "qwen3_next": lambda: tf.Qwen3NextConfig(
        **_sizes(**_QWEN, **{**_DELTA, "rope_parameters": _PART}, intermediate_size=96, norm_topk_prob=True)
    ),
    "deepseek_v2": lambda: tf.DeepseekV2Config(
        **_sizes(
            **{**_LATENT, "q_lora_rank": 0}, **_ROUTED, first_k_dense_replace=1, n_group=1, topk_group=1,
            rope_parameters=_SCALED,
        )
        | {"q_lora_rank": None}
    ),
    "deepseek_v2, groups": lambda: tf.DeepseekV2Config(
        **_sizes(
            **_LATENT, **_ROUTED, first_k_dense_replace=1, n_group=4, topk_group=2,
            topk_method="group_limited_greedy",
        )
    ),
    "deepseek_v3": lambda: tf.DeepseekV3Config(
        **_sizes(
            **_LATENT, **_ROUTED, first_k_dense_replace=1, n_group=4, topk_group=2, num_mtp_layers=0,
            rope_parameters={**_SCALED, "mscale": 1.0, "mscale_all_dim": 1.0},
        )
    ),
    "glm4_moe_lite": lambda: tf.Glm4MoeLiteConfig(**_sizes(**_LATENT, **_ROUTED)),
    "mistral4": lambda: tf.Mistral4Config(
        **_sizes(
            **_LATENT, **_ROUTED, first_k_dense_replace=1, n_group=4, topk_group=2,
            rope_parameters={**_SCALED, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.7},
        )
    ),
    "youtu": lambda: tf.YoutuConfig(**_sizes(**_LATENT)),
    "kimi_linear": lambda: tf.KimiLinearConfig(
        **_sizes(
            **{**_LATENT, "q_lora_rank": None}, rope_parameters=None, num_experts=8, num_experts_per_token=3,
            moe_intermediate_size=32, num_shared_experts=2, routed_scaling_factor=1.7, linear_num_heads=4,
            linear_head_dim=32, layer_types=["linear_attention", "full_attention", "linear_attention"],
        )
    ),
    "nemotron_h, experts": lambda: tf.NemotronHConfig(
        **_sizes(num_hidden_layers=None, rms_norm_eps=None, rope_parameters=None), **_ROUTED,
        layers_block_type=["linear_attention", "moe", "full_attention", "moe"], layer_norm_epsilon=0.1,
        mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=32, n_groups=2, time_step_min=1e-9,
        moe_shared_expert_intermediate_size=64, n_group=4, topk_group=2, intermediate_size=32,
    ),
}  # fmt: skip
"""With what files cannot say set to what they imply."""


def metadata(config: Any) -> dict[str, Any]:
    """Below the architecture's name, beside what it writes of other models or, where None, instead of it."""
    kind = config.model_type
    without = kind == "nemotron_h" and "moe" not in config.layer_types
    if without or kind not in {each().model_type for each in MIXTURES.values()}:
        return {}
    experts = next(
        (
            getattr(config, name)
            for name in ("num_local_experts", "n_routed_experts", "num_experts")
            if getattr(config, name, None) is not None
        ),
        None,
    )
    used = "top_k_experts" if kind == "gemma4_text" else "num_experts_per_tok"
    found = {"expert_count": experts, "expert_used_count": getattr(config, used, None)}
    if kind in ("qwen2_moe", "qwen3_moe", "qwen3_5_moe_text", "qwen3_next", "gemma4_text"):
        found["expert_feed_forward_length"] = config.moe_intermediate_size
    if kind in ("qwen2_moe", "qwen3_5_moe_text", "qwen3_next"):
        found["expert_shared_feed_forward_length"] = config.shared_expert_intermediate_size
    if kind == "gpt_oss":
        found |= {"expert_feed_forward_length": config.intermediate_size}
        found |= {"attention.sliding_window": config.sliding_window}
    if kind == "lfm2_moe":
        found |= {
            "expert_feed_forward_length": config.moe_intermediate_size,
            "expert_gating_func": int(gguf.ExpertGatingFuncType.SIGMOID),
            "leading_dense_block_count": config.num_dense_layers,
        }
    if kind == "granitemoeshared":
        found["expert_shared_feed_forward_length"] = config.shared_intermediate_size
    if kind in ("granitemoe", "granitemoeshared"):
        found["logit_scale"] = float(config.logits_scaling)
    if kind == "glm4_moe":
        found |= {
            "expert_feed_forward_length": config.moe_intermediate_size,
            "expert_gating_func": int(gguf.ExpertGatingFuncType.SIGMOID),
            "expert_group_count": config.n_group,
            "expert_group_used_count": config.topk_group,
            "expert_shared_count": config.n_shared_experts,
            "expert_weights_norm": config.norm_topk_prob,
            "expert_weights_scale": float(config.routed_scaling_factor),
            "leading_dense_block_count": config.first_k_dense_replace,
        }
    if kind in _OF_DEEPSEEK:
        found |= _of_latent(config)
    if kind in (*_OF_DEEPSEEK[1:], "nemotron_h"):
        found |= {
            "expert_feed_forward_length": config.moe_intermediate_size,
            "expert_group_count": config.n_group,
            "expert_group_used_count": config.topk_group,
            "expert_shared_count": config.n_shared_experts,
            "expert_weights_norm": config.norm_topk_prob or None,
            "expert_weights_scale": float(config.routed_scaling_factor),
        }
    if kind == "kimi_linear":
        full = [each == "full_attention" for each in config.layer_types]
        found |= {
            **_of_latent(config),
            "attention.head_count_kv": [int(each) for each in full],
            "expert_feed_forward_length": config.moe_intermediate_size,
            "expert_gating_func": int(gguf.ExpertGatingFuncType.SIGMOID),
            "expert_shared_count": config.n_shared_experts,
            "expert_weights_scale": float(config.routed_scaling_factor),
            "kda.head_dim": config.linear_head_dim,
            "ssm.conv_kernel": config.linear_conv_kernel_dim,
        }
    if kind in ("deepseek_v3", "glm4_moe_lite"):
        found["expert_gating_func"] = int(gguf.ExpertGatingFuncType.SIGMOID)
    if kind == "mistral4":
        found["attention.temperature_length"] = config.rope_parameters["original_max_position_embeddings"]
    if kind == "nemotron_h":
        found["expert_shared_feed_forward_length"] = config.moe_shared_expert_intermediate_size
    if kind == "ernie4_5_moe":
        found |= {
            "expert_count": config.moe_num_experts,
            "expert_used_count": config.moe_k,
            "expert_feed_forward_length": config.moe_intermediate_size,
            "expert_shared_count": config.moe_num_shared_experts,
            "expert_shared_feed_forward_length": config.intermediate_size // config.num_key_value_heads,
            "interleave_moe_layer_step": config.moe_layer_interval,
            "leading_dense_block_count": config.moe_layer_start_index,
        }
    return found


_OF_DEEPSEEK = ("youtu", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "mistral4")


def _of_latent(config: Any) -> dict[str, Any]:
    dense = getattr(config, "mlp_layer_types", ["dense"] * config.num_hidden_layers).count("dense")
    mscale = (getattr(config, "rope_parameters", None) or {}).get("mscale_all_dim")
    return {
        "attention.head_count_kv": 1,
        "attention.key_length": config.kv_lora_rank + config.qk_rope_head_dim,
        "attention.key_length_mla": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "attention.value_length": config.kv_lora_rank,
        "attention.value_length_mla": config.v_head_dim,
        "attention.kv_lora_rank": config.kv_lora_rank,
        "attention.q_lora_rank": config.q_lora_rank,
        "expert_feed_forward_length": config.intermediate_size,
        "expert_shared_count": 0,
        "leading_dense_block_count": getattr(config, "first_k_dense_replace", dense),
        "rope.dimension_count": config.qk_rope_head_dim,
        "rope.scaling.yarn_log_multiplier": None if mscale is None else 0.1 * mscale,
    }


def whole_latent(model: Any) -> dict[str, Any]:
    """What to write of a model with latent attention as older converters did: its keys and values by one matrix."""
    config = model.config
    width = config.qk_nope_head_dim + config.qk_rope_head_dim
    layers = range(config.num_hidden_layers)
    return {
        "metadata": {
            "attention.head_count_kv": config.num_attention_heads, "attention.key_length": width,
            "attention.value_length": config.v_head_dim, "attention.key_length_mla": None,
            "attention.value_length_mla": None,
        },
        "leave_out": tuple(f"blk.{index}.attn_{part}_b.weight" for index in layers for part in "kv"),
        "tensors": {
            f"blk.{index}.attn_kv_b.weight": model.model.layers[index].self_attn.kv_b_proj.weight.detach().numpy()
            for index in layers
        },
    }  # fmt: skip


def by_head(config: Any, values: Any) -> tuple[Any, Any]:
    """What makes keys and values of a latent, apart [heads, outputs, rank]."""
    heads = values.reshape(config.num_attention_heads, -1, config.kv_lora_rank)
    return heads[:, : config.qk_nope_head_dim], heads[:, config.qk_nope_head_dim :]


_SPELLED = (
    (".block_sparse_moe.router.weight", ".block_sparse_moe.router.layer.weight"),
    (".gate.e_score_correction_bias", ".gate.e_score_correction.bias"),
    (".gate.moe_statics.e_score_correction_bias", ".moe_statics.e_score_correction.bias"),
    (".feed_forward.expert_bias", ".feed_forward.expert_bias.bias"),
    (".forget_gate.dt_bias", ".dt_proj.bias"),
    (".forget_gate.dt_proj.bias", ".dt_proj.bias"),
    (".forget_gate.A_log", ".A_log"),
    (".forget_gate.f_a_proj.weight", ".f_a_proj.weight"),
    (".forget_gate.f_b_proj.weight", ".f_b_proj.weight"),
)


def table_name(parameter: str) -> str:
    """How the converter's table calls a parameter."""
    for ours, theirs in reversed(_SPELLED):
        if parameter.endswith(ours):
            return parameter.removesuffix(ours) + theirs
    return parameter


def stored_name(parameter: str) -> str | None:
    """What files call a parameter of experts, or the one that the converter makes several of; None of others."""
    if ".layers." not in parameter:
        return None
    index, _, inner = parameter.partition(".layers.")[2].partition(".")
    if inner == "self_attn.conv1d.weight":
        return f"blk.{index}.ssm_conv1d.weight"
    if ".in_proj_qkvz." in inner:
        return f"blk.{index}.attn_qkv.weight"
    if inner in ("router.scale", "router.per_expert_scale"):
        return f"blk.{index}.{'ffn_gate_inp' if inner == 'router.scale' else 'ffn_down_exps'}.scale"
    if ".experts." not in f".{inner}":
        return None
    name = inner.rpartition(".")[2]
    kind = "bias" if name.endswith("_bias") else "weight"
    part = name.partition("_proj")[0]
    return f"blk.{index}.ffn_{part}_exps.{kind}"


def changed(config: Any, name: str, stored: str, values: np.ndarray) -> Iterator[tuple[str, np.ndarray]] | None:
    """What the converter writes of a parameter that it does not write as it is; None of others."""
    kind, block = config.model_type, ".".join(stored.split(".")[:2])
    if kind == "kimi_linear" and name.endswith(".conv1d.weight"):
        third = values.shape[0] // 3
        return (
            (f"{block}.ssm_conv1d_{part}.weight", values[place * third : (place + 1) * third].reshape(1, third, 1, -1))
            for place, part in enumerate("qkv")
        )
    if kind == "kimi_linear" and name.endswith(".A_log"):
        return iter([(stored, -np.exp(values))])
    if kind == "gpt_oss" and ".experts." in name and values.ndim == 3:
        values = np.ascontiguousarray(values.swapaxes(1, 2))
    if name.endswith(".kv_b_proj.weight"):
        keys, of_values = by_head(config, values)
        pairs = (("k", np.ascontiguousarray(keys.swapaxes(1, 2))), ("v", of_values))
        return ((f"{block}.attn_{part}_b.weight", each) for part, each in pairs)
    if "_gate_up_exps." in stored and kind != "gemma4_text":
        ending = stored.rpartition(".")[2]
        half = values.shape[1] // 2
        parts = (values[:, ::2], values[:, 1::2]) if kind == "gpt_oss" else (values[:, :half], values[:, half:])
        pairs = zip(("gate", "up"), parts, strict=True)
        return ((f"{block}.ffn_{part}_exps.{ending}", np.ascontiguousarray(each)) for part, each in pairs)
    if "shared_mlp" in name and getattr(config, "num_local_experts", 0):
        if ".output_linear." in name:
            return iter([(f"{block}.ffn_down_shexp.weight", values)])
        half = len(values) // 2
        return iter(
            [(f"{block}.ffn_gate_shexp.weight", values[:half]), (f"{block}.ffn_up_shexp.weight", values[half:])]
        )
    if "_exps." in stored or stored.endswith((".scale", "ffn_gate_inp.weight", "exp_probs_b.bias")):
        return iter([(stored, values.reshape(-1) if stored.endswith("exp_probs_b.bias") else values)])
    if ".in_proj_qkvz." in name:
        return _apart(config, stored, values)
    return None


def _apart(config: Any, stored: str, values: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Queries, keys and values, and gates, which Qwen3-Next has together by key head."""
    keys, key, value = config.linear_num_key_heads, config.linear_key_head_dim, config.linear_value_head_dim
    inner = config.linear_num_value_heads // keys * value
    each = np.split(values.reshape(keys, -1, values.shape[1]), np.cumsum([key, key, inner]), axis=1)
    q, k, v, z = (part.reshape(-1, values.shape[1]) for part in each)
    yield stored, np.concatenate([q, k, v])
    yield stored.replace("attn_qkv", "attn_gate"), z
