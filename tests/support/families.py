"""One tiny config for each model type that has a recipe: random weights, every optional feature on.

Widths are multiples of 16, as the row kernels want them. Windows are shorter than `TOKENS`, and rotations are scaled
from an original length below it. `eps` is large, so that a recipe with another one computes something else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import transformers as tf
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig

from headstart.model.wrappers import listed
from support.hybrids import FACTORS_OF_FALCON

VOCAB = 97
TOKENS = 40
"""The length of the texts that logits are compared on."""
EPS = 0.1
WINDOW = 8
ORIGIN = 16
"""The length that a scaled rotation was trained for."""

_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": ORIGIN}
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGIN,
}  # fmt: skip
_LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
_ALPHA = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 30.0, "factor": 1.0}
_LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 8.0],
    "original_max_position_embeddings": ORIGIN,
}  # fmt: skip
_DEFAULT = {"rope_type": "default", "rope_theta": 1e4}
_ALTERNATING = ["sliding_attention", "full_attention"] * 2


def _sizes(**more: Any) -> dict[str, Any]:
    """Sizes as most configs call them. The width is 48, whose root is no whole number."""
    sizes = {
        "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "rms_norm_eps": EPS, "tie_word_embeddings": False,
    } | more  # fmt: skip
    return {name: size for name, size in sizes.items() if size is not None}


def _gemma4(**more: Any) -> dict[str, Any]:
    """A quarter of the full layers' heads turns."""
    return _sizes(
        global_head_dim=32, sliding_window=WINDOW, vocab_size_per_layer_input=VOCAB, final_logit_softcapping=5.0,
        rms_norm_eps=4 * EPS,
    ) | more  # fmt: skip


FAMILIES: dict[str, Callable[[], Any]] = {
    "apertus": lambda: tf.ApertusConfig(**_sizes(rope_parameters=_LLAMA3, attention_bias=True)),
    "arcee": lambda: tf.ArceeConfig(**_sizes(rope_parameters=_YARN, attention_bias=True, mlp_bias=True)),
    "ernie4_5": lambda: tf.Ernie4_5Config(**_sizes(use_bias=True, rope_parameters=_LINEAR)),
    "exaone4": lambda: tf.Exaone4Config(
        **_sizes(sliding_window=WINDOW, layer_types=_ALTERNATING, rope_parameters=_LLAMA3)
    ),
    "exaone4, no windows": lambda: tf.Exaone4Config(
        sliding_window=None, **_sizes(layer_types=["full_attention"] * 4, rope_parameters=_LLAMA3)
    ),
    "gemma": lambda: tf.GemmaConfig(**_sizes(attention_bias=True, tie_word_embeddings=True)),
    "granite": lambda: tf.GraniteConfig(
        **_sizes(
            rope_parameters=_YARN,
            attention_bias=True,
            mlp_bias=True,
            embedding_multiplier=3.1,
            logits_scaling=0.6,
            residual_multiplier=0.43,
            attention_multiplier=0.17,
        )
    ),
    "helium": lambda: tf.HeliumConfig(
        **_sizes(hidden_size=64, rope_parameters=_YARN, attention_bias=True, mlp_bias=True)
    ),
    "hunyuan_v1_dense": lambda: tf.HunYuanDenseV1Config(**_sizes(attention_bias=True, rope_parameters=_ALPHA)),
    "internlm3": lambda: tf.AutoConfig.for_model(
        "internlm3", **_sizes(rope_parameters=_YARN, attention_bias=True, mlp_bias=True)
    ),
    "iquestcoder": lambda: tf.AutoConfig.for_model("iquestcoder", **_sizes(rope_parameters=_LINEAR)),
    "ministral": lambda: tf.MinistralConfig(
        **_sizes(sliding_window=WINDOW, layer_types=_ALTERNATING, rope_parameters=_YARN)
    ),
    "ministral3": lambda: tf.Ministral3Config(
        **_sizes(sliding_window=WINDOW, rope_parameters=_YARN | {"llama_4_scaling_beta": 0.7})
    ),
    "phi3": lambda: tf.Phi3Config(
        **_sizes(
            hidden_size=64, sliding_window=WINDOW, original_max_position_embeddings=ORIGIN, rope_parameters=_LONGROPE
        )
    ),
    "phi3, plain": lambda: tf.Phi3Config(**_sizes(head_dim=None, hidden_size=64, hidden_act="gelu")),
    "seed_oss": lambda: tf.SeedOssConfig(**_sizes(attention_out_bias=True, mlp_bias=True, rope_parameters=_LINEAR)),
    "smollm3": lambda: tf.SmolLM3Config(
        **_sizes(
            rope_parameters=_YARN,
            no_rope_layers=[1, 0, 1, 0],
            use_sliding_window=True,
            sliding_window=WINDOW,
            attention_bias=True,
            mlp_bias=True,
        )
    ),
    "llama": lambda: tf.LlamaConfig(**_sizes(rope_parameters=_LLAMA3, attention_bias=True, mlp_bias=True)),
    "mistral": lambda: tf.MistralConfig(**_sizes(sliding_window=WINDOW)),
    "qwen2": lambda: tf.Qwen2Config(
        **_sizes(use_sliding_window=True, sliding_window=WINDOW, layer_types=_ALTERNATING, rope_parameters=_YARN)
    ),
    "qwen3": lambda: tf.Qwen3Config(**_sizes(rope_parameters=_YARN, attention_bias=True)),
    "gemma2": lambda: tf.Gemma2Config(
        **_sizes(
            sliding_window=WINDOW, query_pre_attn_scalar=24, attn_logit_softcapping=2.0, final_logit_softcapping=5.0
        )
    ),
    "gemma3_text": lambda: tf.Gemma3TextConfig(
        **_sizes(
            sliding_window=WINDOW,
            query_pre_attn_scalar=24,
            layer_types=_ALTERNATING,
            rope_parameters={"sliding_attention": _DEFAULT, "full_attention": _LINEAR},
        )
    ),
    "gemma4_text": lambda: tf.Gemma4TextConfig(
        **_gemma4(
            num_hidden_layers=8,
            layer_types=[*_ALTERNATING, *_ALTERNATING],
            hidden_size_per_layer_input=32,
            num_kv_shared_layers=4,
            use_double_wide_mlp=True,
        )
    ),
    "gemma4_unified_text": lambda: tf.Gemma4UnifiedTextConfig(
        **{name: value for name, value in _gemma4(layer_types=_ALTERNATING).items() if "per_layer_input" not in name}
    ),
    "gemma4_text, keys as values": lambda: tf.Gemma4TextConfig(
        **_gemma4(
            layer_types=_ALTERNATING,
            hidden_size_per_layer_input=0,
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
            attention_bias=True,
        )
    ),
}
"""By a name that starts with the `model_type`. Each config has at least two layers of each kind."""

PUBLISHED: dict[str, dict[str, Any]] = {
    "apertus": {"hidden_dropout": 0.0, "mlp_bias": False, "post_norm": False, "qk_norm": True},
    "exaone4": {"reorder_and_qk_norm": True, "sliding_window_pattern": "LLLG"},
    "gemma": {"hidden_activation": "gelu_pytorch_tanh"},
    "hunyuan_v1_dense": {
        "add_classification_head": False, "attention_head_dim": 16, "cla_share_factor": 2, "class_num": 0,
        "dense_list": [4096, 0], "eod_token_id": 5, "mlp_bias": False, "norm_type": "rms", "num_experts": 1,
        "org_vocab_size": 128167, "pool_type": "last", "use_cla": False, "use_qk_norm": True,
        "use_rotary_pos_emb": True,
    },
    "phi3": {
        "attention_bias": False, "embd_pdrop": 0.0, "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False,
        "mlp_bias": False, "resid_pdrop": 0.0,
    },
    "nemotron_h": {
        "hybrid_override_pattern": "M-*M*-", "mamba_proj_bias": False, "n_routed_experts": 8, "norm_topk_prob": True,
        "num_nextn_predict_layers": 1, "rescale_prenorm_residual": True, "time_step_floor": 0.001,
    },
    "qwen3_5_text": {
        "attn_output_gate": True, "full_attention_interval": 4, "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False,
    },
    "deepseek_v2": {
        "aux_loss_alpha": 0.001, "ep_size": 1, "moe_layer_freq": 1, "scoring_func": "softmax", "seq_aux": True,
    },
    "deepseek_v3, experts": {
        "ep_size": 1, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
    },
    "glm4_moe_lite": {
        "first_k_dense_replace": 2, "num_nextn_predict_layers": 1, "partial_rotary_factor": 1.0,
        "topk_method": "noaux_tc",
    },
    "kimi_linear": {
        "head_dim": 72, "mla_use_nope": True, "moe_layer_freq": 1, "moe_router_activation_func": "sigmoid",
        "num_nextn_predict_layers": 0, "use_grouped_topk": True,
        "linear_attn_config": {
            "full_attn_layers": [3], "head_dim": 32, "kda_layers": [1, 2, 4], "num_heads": 3,
            "short_conv_kernel_size": 4,
        },
    },
    "smollm3": {"max_window_layers": 28, "pretraining_tp": 2},
}  # fmt: skip
"""Fields of published files that the classes of transformers do not read, by family."""

_PARTIAL = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}


def _wide(**more: Any) -> dict[str, Any]:
    """Sizes of a family whose heads are as wide as its stream together, and whose norms call their eps otherwise."""
    sizes = _sizes(hidden_size=64, **more)
    return {name: value for name, value in sizes.items() if name not in ("head_dim", "rms_norm_eps")}


def _gpt(**more: Any) -> dict[str, Any]:
    """Sizes as GPT-2's config calls them."""
    return {
        "vocab_size": VOCAB, "n_embd": 64, "n_inner": 80, "n_layer": 4, "n_head": 4, "n_positions": 256,
        "layer_norm_epsilon": EPS, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    } | more  # fmt: skip


def _falcon(**more: Any) -> Any:
    sizes = {name: value for name, value in _wide(**more).items() if "key_value" not in name and name[:5] != "inter"}
    return tf.FalconConfig(**sizes, ffn_hidden_size=80, layer_norm_epsilon=EPS)


FAMILIES |= {
    "olmo": lambda: tf.OlmoConfig(**_wide(attention_bias=True, rope_parameters=_YARN)),
    "olmo2": lambda: tf.Olmo2Config(**_sizes(attention_bias=True, rope_parameters=_YARN)),
    "olmo3": lambda: tf.Olmo3Config(
        **_sizes(
            sliding_window=WINDOW,
            layer_types=_ALTERNATING,
            rope_parameters={"sliding_attention": _DEFAULT, "full_attention": _YARN},
        )
    ),
    "glm": lambda: tf.GlmConfig(**_sizes(rope_parameters=_PARTIAL)),
    "glm4": lambda: tf.Glm4Config(**_sizes(rope_parameters=_PARTIAL)),
    "cohere": lambda: tf.CohereConfig(**_wide(layer_norm_eps=EPS, logit_scale=0.25, attention_bias=True)),
    "cohere, qk norm": lambda: tf.CohereConfig(**_wide(layer_norm_eps=EPS, logit_scale=0.25, use_qk_norm=True)),
    "cohere2": lambda: tf.Cohere2Config(
        **_wide(layer_norm_eps=EPS, logit_scale=0.25, sliding_window=WINDOW, layer_types=_ALTERNATING)
    ),
    "starcoder2": lambda: tf.Starcoder2Config(**_wide(norm_epsilon=EPS, sliding_window=WINDOW)),
    "nemotron": lambda: tf.NemotronConfig(
        **_wide(norm_eps=EPS, attention_bias=True, mlp_bias=True, rope_parameters=_PARTIAL)
    ),
    "granite_swa": lambda: tf.GraniteSWAConfig(
        **_sizes(
            sliding_window=WINDOW,
            layer_types=_ALTERNATING,
            layer_rope_theta=[1e3, 0, 1e6, 1e3],
            embedding_multiplier=6.0,
            logits_scaling=4.0,
            residual_multiplier=0.3,
            attention_multiplier=0.125,
            attention_bias=True,
            mlp_bias=True,
        )
    ),
    "phi": lambda: tf.PhiConfig(**_wide(layer_norm_eps=EPS, rope_parameters=_PARTIAL)),
    "phi, qk norm": lambda: tf.PhiConfig(**_wide(layer_norm_eps=EPS, rope_parameters=_PARTIAL, qk_layernorm=True)),
    "stablelm": lambda: tf.StableLmConfig(**_wide(layer_norm_eps=EPS, rope_parameters=_PARTIAL, use_qkv_bias=True)),
    "stablelm, parallel": lambda: tf.StableLmConfig(
        **_wide(layer_norm_eps=EPS, rope_parameters=_PARTIAL, qk_layernorm=True, use_parallel_residual=True)
    ),
    "gpt_neox": lambda: tf.GPTNeoXConfig(
        **{**_wide(layer_norm_eps=EPS, rope_parameters=_PARTIAL), "num_key_value_heads": None}
    ),
    "gpt_neox, in turn": lambda: tf.GPTNeoXConfig(
        **{**_wide(layer_norm_eps=EPS, rope_parameters=_PARTIAL), "num_key_value_heads": None},
        use_parallel_residual=False,
    ),
    "gpt2": lambda: tf.GPT2Config(**_gpt(scale_attn_by_inverse_layer_idx=True)),
    "gpt_bigcode": lambda: tf.GPTBigCodeConfig(**_gpt()),
    "gpt_bigcode, by head": lambda: tf.GPTBigCodeConfig(**_gpt(multi_query=False)),
    "opt": lambda: tf.OPTConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        ffn_dim=80,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    ),
    "falcon": lambda: _falcon(bias=True),
    "falcon, groups": lambda: _falcon(new_decoder_architecture=True, num_kv_heads=2),
    "falcon, in turn": lambda: _falcon(multi_query=False, parallel_attn=False, bias=True),
}

_MROPE = {
    "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
}  # fmt: skip
_LINEAR_FIRST = ["linear_attention", "full_attention"] * 2


def _granite_hybrid(**more: Any) -> Any:
    sizes = _wide(rms_norm_eps=EPS, num_local_experts=0, shared_intermediate_size=80, layer_types=_LINEAR_FIRST)
    return tf.GraniteMoeHybridConfig(
        **sizes | {"rms_norm_eps": EPS} | more,
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=32,
        mamba_n_groups=2,
        mamba_d_conv=3,
        embedding_multiplier=3.1,
        logits_scaling=0.6,
        residual_multiplier=0.43,
        attention_multiplier=0.17,
        attention_bias=True,
    )


def _falcon_h1(**more: Any) -> Any:
    return tf.FalconH1Config(
        **_sizes(
            num_hidden_layers=2,
            rope_parameters=_YARN,
            mamba_d_ssm=96,
            mamba_n_heads=6,
            mamba_d_head=16,
            mamba_d_state=32,
            mamba_n_groups=2,
            mamba_d_conv=3,
        )
        | FACTORS_OF_FALCON
        | more
    )


FAMILIES |= {
    "lfm2": lambda: tf.Lfm2Config(
        **_wide(num_key_value_heads=2, norm_eps=EPS, layer_types=["conv", "full_attention"] * 2),
        conv_bias=True,
        conv_L_cache=4,
        block_multiple_of=16,
        block_ffn_dim_multiplier=1.2,
        rope_parameters=_YARN,
    ),
    "qwen3_5_text": lambda: tf.Qwen3_5TextConfig(
        **_sizes(rope_parameters=_MROPE, attention_bias=True, layer_types=_LINEAR_FIRST),
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=32,
        linear_conv_kernel_dim=3,
    ),
    "granitemoehybrid": lambda: _granite_hybrid(mamba_proj_bias=True),
    "lfm3": lambda: tf.Lfm3Config(
        **_sizes(num_hidden_layers=6, norm_eps=EPS, sliding_window=WINDOW, conv_bias=True, attention_bias=True),
        conv_L_cache=4,
        layer_types=["conv", "sliding_attention", "full_attention"] * 2,
    ),
    "lfm3, plain": lambda: tf.Lfm3Config(
        **_sizes(norm_eps=EPS, sliding_window=WINDOW, layer_types=["conv", "sliding_attention"] * 2),
        use_sandwich_norm=False,
        use_attention_gate=False,
        rope_parameters={"sliding_attention": _YARN, "full_attention": _DEFAULT},
    ),
    "olmo_hybrid": lambda: tf.OlmoHybridConfig(
        **_wide(layer_types=_LINEAR_FIRST, attention_bias=True, num_key_value_heads=2) | {"rms_norm_eps": EPS},
        rope_parameters=_YARN,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=32,
        linear_conv_kernel_dim=3,
    ),
    "olmo_hybrid, no positions": lambda: tf.OlmoHybridConfig(
        **_wide(layer_types=_LINEAR_FIRST) | {"rms_norm_eps": EPS},
        linear_key_head_dim=16,
        linear_allow_neg_eigval=False,
    ),
    "bamba": lambda: tf.BambaConfig(
        **_wide(attention_bias=True, mlp_bias=True) | {"rms_norm_eps": EPS},
        attn_layer_indices=[1, 3],
        mamba_n_heads=8,
        mamba_d_state=32,
        mamba_n_groups=2,
        mamba_d_conv=3,
        mamba_proj_bias=True,
    ),
    "nemotron_h": lambda: tf.NemotronHConfig(
        **{name: size for name, size in _sizes().items() if name not in ("num_hidden_layers", "rms_norm_eps")},
        layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention", "full_attention", "mlp"],
        layer_norm_epsilon=EPS,
        mamba_num_heads=8,
        time_step_min=1e-9,  # below which transformers raises the steps of a prompt, and not those of one token
        mamba_head_dim=16,
        ssm_state_size=32,
        n_groups=2,
        conv_kernel=3,
        use_bias=True,
        mlp_bias=True,
    ),
    "falcon_h1": lambda: _falcon_h1(mamba_rms_norm=True, projectors_bias=True),
    "falcon_h1, not normed": lambda: _falcon_h1(
        attention_bias=True, mamba_proj_bias=True, attention_in_multiplier=1.0, ssm_in_multiplier=1.0
    ),
    "granitemoehybrid, rotation": lambda: _granite_hybrid(
        mamba_conv_bias=False, position_embedding_type="rope", rope_parameters=_YARN
    ),
}
"""With a third of recurrent layers at least, and attention between them."""


_PARTIAL_HALF = _PARTIAL | {"partial_rotary_factor": 0.5}
_DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 3,
}  # fmt: skip


def _granite_moe(**more: Any) -> dict[str, Any]:
    return _wide(rope_parameters=_YARN, attention_bias=True, num_local_experts=8, num_experts_per_tok=3) | {
        "rms_norm_eps": EPS, "intermediate_size": 32, "embedding_multiplier": 3.1, "logits_scaling": 0.6,
        "residual_multiplier": 0.43, "attention_multiplier": 0.17,
    } | more  # fmt: skip


def _experts(**more: Any) -> dict[str, Any]:
    """Sizes of a mixture as most configs call them."""
    return _sizes(**{"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32} | more)


FAMILIES |= {
    "qwen3_moe": lambda: tf.Qwen3MoeConfig(
        **_experts(rope_parameters=_YARN, attention_bias=True, norm_topk_prob=True, mlp_only_layers=[1, 3])
    ),
    "qwen3_moe, every other": lambda: tf.Qwen3MoeConfig(**_experts(decoder_sparse_step=2)),
    "qwen2_moe": lambda: tf.Qwen2MoeConfig(
        **_experts(shared_expert_intermediate_size=48, use_sliding_window=True, sliding_window=WINDOW),
        layer_types=_ALTERNATING,
    ),
    "mixtral": lambda: tf.MixtralConfig(
        **_sizes(num_local_experts=8, num_experts_per_tok=3, sliding_window=WINDOW, rope_parameters=_YARN)
    ),
    "granitemoe": lambda: tf.GraniteMoeConfig(**_granite_moe()),
    "granitemoeshared": lambda: tf.GraniteMoeSharedConfig(**_granite_moe(shared_intermediate_size=48)),
    "granitemoehybrid, experts": lambda: _granite_hybrid(
        num_local_experts=8, num_experts_per_tok=3, intermediate_size=32
    ),
    "olmoe": lambda: tf.OlmoeConfig(
        **_wide(rope_parameters=_YARN, attention_bias=True, num_key_value_heads=2) | {"intermediate_size": 32},
        rms_norm_eps=EPS,
        num_experts=8,
        num_experts_per_tok=3,
        norm_topk_prob=True,
    ),
    "qwen3_5_moe_text": lambda: tf.Qwen3_5MoeTextConfig(
        **_experts(rope_parameters=_MROPE, attention_bias=True, layer_types=_LINEAR_FIRST, intermediate_size=None),
        shared_expert_intermediate_size=48,
        **_DELTA,
    ),
    "qwen3_next": lambda: tf.Qwen3NextConfig(
        **_experts(rope_parameters=_PARTIAL_HALF, attention_bias=True, layer_types=_LINEAR_FIRST, mlp_only_layers=[1]),
        shared_expert_intermediate_size=48,
        **_DELTA,
    ),
    "lfm2_moe": lambda: tf.Lfm2MoeConfig(
        **_wide(num_key_value_heads=2, norm_eps=EPS, layer_types=["conv", "full_attention"] * 3, num_hidden_layers=6),
        conv_bias=True,
        conv_L_cache=4,
        rope_parameters=_YARN,
        num_dense_layers=2,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=32,
        routed_scaling_factor=1.7,
    ),
    "glm4_moe": lambda: tf.Glm4MoeConfig(
        **_sizes(rope_parameters=_PARTIAL_HALF, attention_bias=True, use_qk_norm=True, moe_intermediate_size=32),
        n_routed_experts=12,
        num_experts_per_tok=3,
        n_shared_experts=2,
        n_group=4,
        topk_group=2,
        first_k_dense_replace=2,
        routed_scaling_factor=1.7,
    ),
    "gpt_oss": lambda: tf.GptOssConfig(
        **_sizes(
            sliding_window=WINDOW,
            layer_types=_ALTERNATING,
            rope_parameters=_YARN | {"truncate": False},
            num_local_experts=8,
            num_experts_per_tok=3,
            intermediate_size=32,
            swiglu_limit=0.3,
            swiglu_alpha=2.5,
        )
    ),
    "gemma4_text, experts": lambda: tf.Gemma4TextConfig(
        **_gemma4(
            layer_types=_ALTERNATING,
            hidden_size_per_layer_input=32,
            enable_moe_block=True,
            num_experts=8,
            top_k_experts=3,
            moe_intermediate_size=32,
        )
    ),
    "nemotron_h, experts": lambda: tf.NemotronHConfig(
        **{name: size for name, size in _sizes().items() if name not in ("num_hidden_layers", "rms_norm_eps")},
        layers_block_type=["linear_attention", "moe", "full_attention", "moe"],
        layer_norm_epsilon=EPS,
        mamba_num_heads=8,
        time_step_min=1e-9,
        mamba_head_dim=16,
        ssm_state_size=32,
        n_groups=2,
        conv_kernel=3,
        n_routed_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=32,
        moe_shared_expert_intermediate_size=48,
        routed_scaling_factor=1.7,
        n_group=2,
        topk_group=1,
    ),
    "ernie4_5_moe": lambda: tf.Ernie4_5_MoeConfig(
        **_sizes(use_bias=True, rope_parameters=_LINEAR, moe_intermediate_size=32),
        moe_num_experts=8,
        moe_k=3,
        moe_num_shared_experts=2,
        moe_layer_start_index=2,
    ),
    "minimax_m2": lambda: tf.MiniMaxM2Config(
        **_sizes(rope_parameters=_PARTIAL_HALF, num_local_experts=8, num_experts_per_tok=3, intermediate_size=32)
    ),
    "hunyuan_v1_moe": lambda: tf.HunYuanMoEV1Config(
        **_sizes(attention_bias=True, rope_parameters=_ALPHA, num_experts=8, moe_topk=3, intermediate_size=32)
    ),
}
"""With experts. Weights that are no sums of 1 would show if they were made such."""


def _latent(**more: Any) -> dict[str, Any]:
    """Sizes of latent attention, in which no two are equal."""
    sizes = {
        "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 48, "qk_rope_head_dim": 16, "v_head_dim": 64,
        "qk_nope_head_dim": 80, "attention_bias": True,
    }  # fmt: skip
    return _sizes(head_dim=None) | sizes | more


def _routed(**more: Any) -> dict[str, Any]:
    """The same with experts in the last two layers of four."""
    sizes = {
        "n_routed_experts": 16, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
        "n_group": 4, "topk_group": 2, "first_k_dense_replace": 2, "routed_scaling_factor": 1.7,
    }  # fmt: skip
    return _latent(**sizes | more)


_MSCALES = _YARN | {"mscale": 1.0, "mscale_all_dim": 0.7}

FAMILIES |= {
    "deepseek_v3": lambda: tf.DeepseekV3Config(**_latent(first_k_dense_replace=4, rope_parameters=_MSCALES)),
    "deepseek_v3, halves": lambda: tf.DeepseekV3Config(
        **_latent(first_k_dense_replace=4, q_lora_rank=None, rope_interleave=False, rope_parameters=_LINEAR)
    ),
    "minicpm3": lambda: tf.MiniCPM3Config(
        **_latent(rope_parameters=_YARN, scale_emb=3.1, scale_depth=0.9, dim_model_base=80)
    ),
    "youtu": lambda: tf.YoutuConfig(
        **_latent(
            q_lora_rank=None, v_head_dim=32, rope_parameters=_DEFAULT, tie_word_embeddings=True, pad_token_id=None
        )
    ),
    "deepseek_v2": lambda: tf.DeepseekV2Config(**_routed(rope_parameters=_MSCALES, mlp_bias=True, n_group=None)),
    "deepseek_v2, groups": lambda: tf.DeepseekV2Config(
        **_routed(topk_method="group_limited_greedy", q_lora_rank=None, rope_parameters=_DEFAULT)
    ),
    "deepseek_v3, experts": lambda: tf.DeepseekV3Config(**_routed(rope_parameters=_MSCALES)),
    "glm4_moe_lite": lambda: tf.Glm4MoeLiteConfig(
        **_routed(mlp_layer_types=["dense", "sparse"] * 2, rope_parameters=_DEFAULT)
    ),
    "kimi_linear": lambda: tf.KimiLinearConfig(
        **{name: size for name, size in _routed().items() if name not in ("n_routed_experts", "first_k_dense_replace")},
        num_local_experts=16,
        linear_head_dim=32,
        linear_num_heads=3,
        layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
        mlp_layer_types=["dense", "sparse"] * 2,
    ),
    "mistral4": lambda: tf.Mistral4Config(**_routed(rope_parameters=_MSCALES | {"llama_4_scaling_beta": 0.7})),
}


def config_of(name: str) -> Any:
    """A config of one's own."""
    return copy.deepcopy(FAMILIES[name]())


def with_tokens(config: Any, size: int, *, eos: int, pad: int | None = None) -> Any:
    """The same config, of another vocabulary."""
    tokens = {
        "vocab_size": size, "vocab_size_per_layer_input": size, "bos_token_id": None, "eos_token_id": eos,
        "pad_token_id": pad,
    }  # fmt: skip
    for name in tokens.keys() & {*dir(config)}:
        setattr(config, name, tokens[name])
    return config


def random_model(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    """A model of which no parameter is trivial: gains are not 1, biases not 0."""
    own_config = listed(copy.deepcopy(config))
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(1)  # transformers draws some of what is not replaced below
        model = AutoModelForCausalLM.from_config(own_config, attn_implementation="eager", dtype=dtype).eval()
    generator = torch.Generator().manual_seed(1)
    tied = model.state_dict().keys() - dict(model.named_parameters()).keys() - dict(model.named_buffers()).keys()
    with torch.no_grad():
        for tensor_name, tensor in model.state_dict(keep_vars=True).items():  # parameters, and stored buffers
            if tensor_name in tied or not tensor.is_floating_point():
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if tensor_name.endswith(
                ("linear_attn.A_log", "mixer.dt_bias", "forget_gate.dt_bias")
            ):  # which transformers draws
                tensor.fill_(1.0)
            tensor.copy_(0.15 * noise) if tensor.dim() > 1 else tensor.add_(0.2 * noise)
            if tensor_name.endswith("q_norm.weight") and config.model_type == "gemma4_text":
                tensor *= 0.25  # scores that nothing scales: weights near 0 and 1 would magnify every rounding
    return model.requires_grad_(False)


def own(model: Any) -> Any:
    """The same model with modules, buffers and configs of its own, on the same parameters. Decoders take modules out of
    a model and write into none of its parameters, and a deep copy takes longer than a forward."""
    made: dict[int, Any] = {}

    def config(value: Any) -> Any:
        if isinstance(value, PreTrainedConfig) and id(value) not in made:
            made[id(value)] = copy.deepcopy(value)
        return made.get(id(value), value)

    def module(old: nn.Module) -> nn.Module:
        if id(old) not in made:
            new = made[id(old)] = old.__class__.__new__(old.__class__)
            new.__dict__ = {name: config(value) for name, value in old.__dict__.items()}
            new._parameters = dict(old._parameters)
            new._buffers = {name: None if each is None else each.clone() for name, each in old._buffers.items()}
            new._modules = {name: None if each is None else module(each) for name, each in old._modules.items()}
        return made[id(old)]

    return module(model)
