"""Architectures of GGUF files whose norms take the mean off: StableLM, Phi-2, Command R, OLMo, GPT-NeoX, Falcon, GPT-2
and StarCoder.

Files do not state the activation: it is that of the published models, an exact GELU in GPT-NeoX and Falcon, where
llama.cpp runs an approximation.
"""

from __future__ import annotations

import math
from typing import Any

from headstart.base.lazy import transformers
from headstart.model.gguf.description import Description

PARALLEL = "use_parallel_residual"
CLAMP = "attention.clamp_kqv"
FALCON = {"ln_attn": "attn_norm_2", "ln_mlp": "attn_norm"}
"""Falcon 40B norms attention and MLP apart. In files the MLP has the norm that models with one norm have for both."""
_OLMO_EPS = 1e-5


def stablelm(described: Description) -> Any:
    if described.has("attn_q_norm.weight"):
        raise described.file.not_run("each head of its queries has a norm of its own")
    return transformers.StableLmConfig(
        **described.centred("layer_norm_eps"),
        use_qkv_bias=described.has("attn_q.bias"),
        use_parallel_residual=not described.has("ffn_norm.weight"),
    )


def phi2(described: Description) -> Any:
    return transformers.PhiConfig(**described.centred("layer_norm_eps"))


def command_r(described: Description) -> Any:
    return transformers.CohereConfig(
        **described.centred("layer_norm_eps"),
        logit_scale=described.stated.number("logit_scale"),
        attention_bias=described.has("attn_q.bias"),
        use_qk_norm=described.has("attn_q_norm.weight"),
    )


def olmo(described: Description) -> Any:
    """OLMo 1. Its norms have no weights, and the epsilon is always the same."""
    eps, clamp = described.stated.positive("attention.layer_norm_epsilon"), described.stated.number(CLAMP, 0.0)
    if not math.isclose(eps, _OLMO_EPS, rel_tol=1e-6):
        raise described.file.not_run(f"olmo.attention.layer_norm_epsilon is {eps:g}")
    if clamp:
        raise described.file.not_run(f"olmo.{CLAMP} is {clamp:g}")
    return transformers.OlmoConfig(
        **described.common, rope_parameters=described.rope(), attention_bias=described.has("attn_q.bias")
    )


def gptneox(described: Description) -> Any:
    common = _of_equal_heads(described)
    return transformers.GPTNeoXConfig(
        **common,
        layer_norm_eps=described.stated.positive("attention.layer_norm_epsilon"),
        rope_parameters=described.rope(),
        use_parallel_residual=described.stated.flag(PARALLEL),
        attention_bias=described.has("attn_qkv.bias"),
    )


def falcon(described: Description) -> Any:
    """Falcon 7B has one head of keys; 11B and 40B have several, 40B two norms in each layer."""
    layout = described.stated.text("tensor_data_layout", "jploski")
    if layout != "jploski":
        raise described.file.not_run(f"falcon.tensor_data_layout is {layout!r}")
    common = dict(described.common)
    kv_heads, inner = common.pop("num_key_value_heads"), common.pop("intermediate_size")
    del common["head_dim"]
    grouped = kv_heads > 1
    return transformers.FalconConfig(
        **common,
        ffn_hidden_size=inner,
        layer_norm_epsilon=described.stated.positive("attention.layer_norm_epsilon"),
        rope_parameters=described.rope(),
        bias=described.has("attn_qkv.bias"),
        multi_query=not grouped,
        num_kv_heads=kv_heads,
        new_decoder_architecture=grouped,
        num_ln_in_parallel_attn=2 if described.has("attn_norm_2.weight") else 1,
    )


def gpt2(described: Description) -> Any:
    return transformers.GPT2Config(**_as_gpt2(_of_equal_heads(described), described))


def starcoder(described: Description) -> Any:
    """StarCoder 1 and SantaCoder: all heads share one of keys."""
    if (kv_heads := described.common["num_key_value_heads"]) != 1:
        raise described.file.not_run(f"starcoder.attention.head_count_kv is {kv_heads}, and these models have 1")
    common = {key: value for key, value in described.common.items() if key not in ("num_key_value_heads", "head_dim")}
    return transformers.GPTBigCodeConfig(**_as_gpt2(common, described))


def _of_equal_heads(described: Description) -> dict[str, Any]:
    """What every config has, of an architecture whose heads of keys are as many as those of queries."""
    common, heads = dict(described.common), described.common["num_attention_heads"]
    if (kv_heads := common.pop("num_key_value_heads")) != heads:
        raise described.file.not_run(f"attention.head_count_kv is {kv_heads}, and it has {heads} heads")
    del common["head_dim"]
    return common


def _as_gpt2(common: dict[str, Any], described: Description) -> dict[str, Any]:
    """The same as GPT-2's configs call it."""
    called = {
        "hidden_size": "n_embd", "intermediate_size": "n_inner", "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head", "max_position_embeddings": "n_positions",
    }  # fmt: skip
    eps = described.stated.positive("attention.layer_norm_epsilon")
    return {called.get(key, key): value for key, value in common.items()} | {"layer_norm_epsilon": eps}
