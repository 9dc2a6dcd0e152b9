"""Mixtures of experts: what files state of them, and what they leave to the programs that read them.

Files do not state how a router makes weights of its logits unless an architecture has several ways: llama.cpp knows it
by architecture (src/models/qwen2moe.cpp, qwen3moe.cpp, openai-moe.cpp, lfm2.cpp, glm4-moe.cpp, ernie4-5-moe.cpp,
granite.cpp, olmoe.cpp, deepseek2.cpp, mistral4.cpp and nemotron-h.cpp of ggml-org/llama.cpp), and so does this.
"""

from __future__ import annotations

from typing import Any

from headstart.base.lazy import transformers
from headstart.model.gguf.description import (
    DENSE,
    DRAFTING,
    EXPERTS_INNER,
    LENGTH_OF_SCALE,
    LOCAL_BASE,
    PATTERN,
    SCALE_BY_PLACE,
    SHARED_INNER,
    Description,
)
from headstart.model.gguf.hybrids import KEYS_OF_LFM2, KEYS_OF_QWEN35, SIZES, nemotron_h, of_lfm2, of_qwen35

_SCORES, _GROUPS, _KEPT = "expert_gating_func", "expert_group_count", "expert_group_used_count"
_SHARED, _NORMALISED, _FACTOR = "expert_shared_count", "expert_weights_norm", "expert_weights_scale"
_KDA = "kda.head_dim"
_STEP = "interleave_moe_layer_step"
_SOFTMAX, _SIGMOID = 1, 2
_VOCABULARY_OF_GLM = 154880
"""Of GLM-4.7-Flash, whose older files do not state how scores are made."""

KEYS = frozenset({EXPERTS_INNER})
KEYS_WITH_SHARED = KEYS | {SHARED_INNER}
KEYS_OF_ERNIE = frozenset({DENSE, EXPERTS_INNER, SHARED_INNER, _SHARED, _STEP})
KEYS_OF_GLM = frozenset({DENSE, DRAFTING, EXPERTS_INNER, _FACTOR, _GROUPS, _KEPT, _NORMALISED, _SCORES, _SHARED})
KEYS_OF_DEEPSEEK2 = KEYS_OF_GLM | {
    "attention.key_length_mla", "attention.kv_lora_rank", "attention.q_lora_rank", "attention.value_length_mla",
}  # fmt: skip
KEYS_OF_MISTRAL4 = KEYS_OF_DEEPSEEK2 - {DRAFTING} | {SCALE_BY_PLACE, LENGTH_OF_SCALE}
KEYS_OF_GPT_OSS = frozenset({EXPERTS_INNER, LOCAL_BASE, PATTERN})
KEYS_OF_LFM2_MOE = KEYS_OF_LFM2 | {DENSE, EXPERTS_INNER, _SCORES}
KEYS_OF_KIMI = KEYS_OF_DEEPSEEK2 - {DRAFTING} | {_KDA, "ssm.conv_kernel"}
KEYS_OF_NEMOTRON = SIZES | KEYS_OF_GLM - {DENSE} | {SHARED_INNER}
KEYS_OF_QWEN35_MOE = KEYS_OF_QWEN35 | KEYS_WITH_SHARED
KEYS_OF_QWEN3_NEXT = SIZES | KEYS_WITH_SHARED | {"attention.recurrent_layers", "full_attention_interval", DRAFTING}

DRAFTING_OF_GLM = frozenset({
    "attn_k", "attn_k_norm", "attn_norm", "attn_output", "attn_q", "attn_q_norm", "attn_v", "exp_probs_b",
    "ffn_down_exps", "ffn_down_shexp", "ffn_gate_exps", "ffn_gate_inp", "ffn_gate_shexp", "ffn_up_exps", "ffn_up_shexp",
    "nextn.eh_proj", "nextn.embed_tokens", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_head",
    "nextn.shared_head_norm", "post_attention_norm",
})  # fmt: skip
"""Tensors of a head that drafts (MTP)."""
DRAFTING_OF_DEEPSEEK2 = DRAFTING_OF_GLM - {"attn_k", "attn_k_norm", "attn_q_norm", "attn_v", "post_attention_norm"} | {
    "attn_k_b", "attn_kv_a_mqa", "attn_kv_a_norm", "attn_kv_b", "attn_q_a", "attn_q_a_norm", "attn_q_b", "attn_v_b",
    "ffn_gate_up_exps", "ffn_norm",
}  # fmt: skip
DRAFTING_OF_NEMOTRON = frozenset({
    "attn_k", "attn_norm", "attn_output", "attn_q", "attn_v", "exp_probs_b", "ffn_down_exps", "ffn_down_shexp",
    "ffn_gate_inp", "ffn_up_exps", "ffn_up_shexp", "nextn.eh_proj", "nextn.enorm", "nextn.hnorm",
    "nextn.shared_head_norm", "post_attention_norm",
})  # fmt: skip
DRAFTING_OF_QWEN = DRAFTING_OF_GLM - {"exp_probs_b"} | {"ffn_gate_inp_shexp", "ffn_gate_up_exps"}


def mixtral(described: Description) -> Any:
    mixture = described.experts
    return transformers.MixtralConfig(
        **described.rms(),
        sliding_window=described.window(),
        num_local_experts=mixture.count,
        num_experts_per_tok=mixture.chosen,
    )


def qwen2_moe(described: Description) -> Any:
    """Weights are not normalised in any model of it that llama.cpp runs."""
    _check_scores(described, _SOFTMAX)
    return transformers.Qwen2MoeConfig(
        **described.windowless(),
        **_of_qwen(described),
        use_sliding_window=False,
        qkv_bias=described.has("attn_q.bias"),
        norm_topk_prob=False,
        shared_expert_intermediate_size=_shared_width(described),
    )


def qwen3_moe(described: Description) -> Any:
    bias = described.has("attn_q.bias")
    return transformers.Qwen3MoeConfig(
        **described.windowless(),
        **_of_qwen(described),
        use_sliding_window=False,
        attention_bias=bias,
        norm_topk_prob=True,
    )


def qwen35_moe(described: Description) -> Any:
    """The text model, and how many layers of the file are a head that drafts. Files of Qwen3-Next are read as one of
    these without places in images, which computes the same."""
    common = described.windowless()
    del common["intermediate_size"]
    return transformers.Qwen3_5MoeTextConfig(
        **common | of_qwen35(described),
        **_of_qwen(described),
        shared_expert_intermediate_size=_shared_width(described),
        mtp_num_hidden_layers=described.stated.whole(DRAFTING, 0),
    )


def olmoe(described: Description) -> Any:
    mixture = described.experts
    common = described.windowless()
    del common["head_dim"]
    return transformers.OlmoeConfig(
        **common,
        attention_bias=described.has("attn_q.bias"),
        num_experts=mixture.count,
        num_experts_per_tok=mixture.chosen,
        norm_topk_prob=False,
    )


def gpt_oss(described: Description) -> Any:
    """Every second layer has no window. The range of frequencies in which its rotation changes is not rounded to whole
    numbers, as the original's config says; llama.cpp rounds it."""
    described.one_base()
    common, mixture = described.rms(), described.experts
    if mixture.width != common["intermediate_size"]:
        raise described.file.not_run(f"{EXPERTS_INNER} is {mixture.width}, not the feed_forward_length")
    if common["rope_parameters"]["rope_type"] == "yarn":
        common["rope_parameters"]["truncate"] = False
    return transformers.GptOssConfig(
        **common,
        sliding_window=described.stated.count("attention.sliding_window"),
        layer_types=described.kinds(2),
        num_local_experts=mixture.count,
        num_experts_per_tok=mixture.chosen,
        attention_bias=described.has("attn_q.bias"),
    )


def lfm2_moe(described: Description) -> Any:
    _check_scores(described, _SIGMOID)
    mixture = described.experts
    return transformers.Lfm2MoeConfig(
        **of_lfm2(described),
        **_of_qwen(described),
        num_dense_layers=mixture.dense,
        use_expert_bias=f"blk.{mixture.dense}.exp_probs_b.bias" in described.file.tensors,
        norm_topk_prob=True,
    )


def granite_moe(described: Description) -> Any:
    """With or without an expert that all tokens share."""
    mixture, stated, common = described.experts, described.stated, described.windowless()
    if not stated.flag("rope.scaling.finetuned", True):
        raise described.file.not_run("granitemoe.rope.scaling.finetuned is false: it has no positions")
    del common["head_dim"]
    shared = stated.whole(SHARED_INNER, 0)
    made = transformers.GraniteMoeSharedConfig if shared else transformers.GraniteMoeConfig
    return made(
        **common,
        **described.multipliers(),
        **({"shared_intermediate_size": shared} if shared else {}),
        attention_bias=described.has("attn_q.bias"),
        num_local_experts=mixture.count,
        num_experts_per_tok=mixture.chosen,
    )


def glm4_moe(described: Description) -> Any:
    _check_scores(described, _SIGMOID)
    stated, mixture = described.stated, described.experts
    return transformers.Glm4MoeConfig(
        **described.windowless(),
        attention_bias=described.has("attn_q.bias"),
        use_qk_norm=described.has("attn_q_norm.weight"),
        **_routed(described),
        n_shared_experts=stated.count(_SHARED),
        first_k_dense_replace=mixture.dense,
        num_mtp_layers=stated.whole(DRAFTING, 0),
    )


def deepseek2(described: Description) -> Any:
    """DeepSeek V2 where scores are softmaxes, otherwise V3, as which GLM-4.7-Flash and models without experts are read
    too: they compute the same.

    llama.cpp chooses groups of V2's experts by the sum of their two best; here they are chosen by their best one, as
    the model itself does.
    """
    stated, common, mixture = described.stated, _with_latents(described), described.mixture
    if mixture is None:
        return transformers.DeepseekV3Config(**common, first_k_dense_replace=described.layers, num_mtp_layers=0)
    routed = _routed(described)
    common |= {"first_k_dense_replace": mixture.dense, "n_shared_experts": stated.count(_SHARED)}
    scores = stated.whole(_SCORES, 0)
    if scores == _SIGMOID or (scores == 0 and common["vocab_size"] == _VOCABULARY_OF_GLM):
        return transformers.DeepseekV3Config(**common, **routed, num_mtp_layers=stated.whole(DRAFTING, 0))
    _check_scores(described, _SOFTMAX)
    if routed["norm_topk_prob"]:
        raise described.file.not_run(f"{_NORMALISED} is true, and scores are softmaxes")
    method = "greedy" if routed["n_group"] == 1 else "group_limited_greedy"
    return transformers.DeepseekV2Config(**common, **routed, topk_method=method)


def mistral4(described: Description) -> Any:
    """Mistral Small 4. Files that were made of a checkpoint of transformers do not state that queries grow with their
    position, which they do beyond the length that the rotation was trained for; they then do not, as in llama.cpp."""
    _check_scores(described, _SOFTMAX)
    stated, common, mixture = described.stated, _with_latents(described), described.experts
    rope = common["rope_parameters"]
    if rope["rope_type"] != "yarn":
        raise described.file.not_run(f"its rotation is {rope['rope_type']}, and yarn is known here")
    rope["llama_4_scaling_beta"] = stated.number(SCALE_BY_PLACE, 0.0)
    origin = rope["original_max_position_embeddings"]
    if (length := stated.whole(LENGTH_OF_SCALE, origin)) != origin:
        raise described.file.not_run(f"{LENGTH_OF_SCALE} is {length}, and its rotation was trained for {origin}")
    return transformers.Mistral4Config(
        **common,
        **_routed(described),
        first_k_dense_replace=mixture.dense,
        n_shared_experts=stated.count(_SHARED),
    )


def kimi_linear(described: Description) -> Any:
    """Layers without heads of keys have a delta rule by channel, with as many heads as attention. Weights of experts
    are normalised, whatever files state of it."""
    _check_scores(described, _SIGMOID)
    stated, common, mixture, layers = described.stated, described.windowless(), described.experts, described.layers
    for name in ("head_dim", "rope_parameters"):  # nothing turns
        del common[name]
    routed = _routed(described)
    return transformers.KimiLinearConfig(
        **common,
        **{name: routed[name] for name in ("moe_intermediate_size", "n_group", "topk_group", "routed_scaling_factor")},
        num_local_experts=mixture.count,
        num_experts_per_tok=mixture.chosen,
        norm_topk_prob=True,
        n_shared_experts=stated.count(_SHARED),
        q_lora_rank=stated.whole("attention.q_lora_rank", 0) or None,
        kv_lora_rank=stated.count("attention.kv_lora_rank"),
        qk_nope_head_dim=described.dim - described.rotary,
        qk_rope_head_dim=described.rotary,
        v_head_dim=described.value_dim,
        linear_num_heads=common["num_attention_heads"],
        linear_head_dim=stated.count(_KDA),
        linear_conv_kernel_dim=stated.count("ssm.conv_kernel"),
        layer_types=["full_attention" if part == "attention" else "linear_attention" for part in described.parts],
        mlp_layer_types=["dense"] * mixture.dense + ["sparse"] * (layers - mixture.dense),
    )


def nemotron_h_moe(described: Description) -> Any:
    """Nemotron 3."""
    _check_scores(described, _SIGMOID)
    return nemotron_h(
        described,
        **_routed(described),
        n_shared_experts=described.stated.count(_SHARED, 1),
        moe_shared_expert_intermediate_size=described.stated.count(SHARED_INNER),
        num_nextn_predict_layers=described.stated.whole(DRAFTING, 0),
    )


def ernie_moe(described: Description) -> Any:
    """Its converter does not state how wide what all tokens share is, but a number that is as large in the published
    models: the tensors say it."""
    stated, mixture, common = described.stated, described.experts, described.windowless()
    shared = described.file.tensors.get(f"blk.{mixture.dense}.ffn_down_shexp.weight")
    width = 0 if shared is None else shared.shape[-1]
    if width % mixture.width:
        raise described.file.damaged(f"its shared experts are {width} wide, and the others {mixture.width} each")
    if (step := stated.count(_STEP)) != 1:
        raise described.file.not_run(f"{_STEP} is {step}")
    del common["head_dim"]
    return transformers.Ernie4_5_MoeConfig(
        **common,
        use_bias=described.has("attn_q.bias"),
        moe_intermediate_size=mixture.width,
        moe_num_experts=mixture.count,
        moe_k=mixture.chosen,
        moe_num_shared_experts=width // mixture.width,
        moe_layer_start_index=mixture.dense,
        moe_layer_interval=step,
    )


def _with_latents(described: Description) -> dict[str, Any]:
    """Sizes and rotation of a model whose attention is latent.

    Files state a tenth of the factor by which longer rotations make scores larger, and mean the other one to be alike.
    """
    stated, common = described.stated, described.windowless()
    del common["head_dim"]
    if described.rotary >= described.dim:
        raise described.file.damaged(f"heads are {described.dim} wide, of which {described.rotary} numbers turn")
    rope = common["rope_parameters"]
    rope.pop("partial_rotary_factor", None)  # configs state what turns as a head of its own
    if rope["rope_type"] == "yarn":
        scale = 10 * stated.positive("rope.scaling.yarn_log_multiplier")
        rope |= {"mscale": scale, "mscale_all_dim": scale}
    return common | {
        "attention_bias": False,
        "q_lora_rank": stated.whole("attention.q_lora_rank", 0) or None,
        "kv_lora_rank": stated.count("attention.kv_lora_rank"),
        "qk_nope_head_dim": described.dim - described.rotary,
        "qk_rope_head_dim": described.rotary,
        "v_head_dim": described.value_dim,
    }


def _routed(described: Description) -> dict[str, Any]:
    """Experts in groups, as configs of DeepSeek's kind call them."""
    stated, mixture = described.stated, described.experts
    groups, kept = stated.whole(_GROUPS, 1) or 1, stated.whole(_KEPT, 1) or 1
    if mixture.count % groups or kept > groups:
        raise described.file.damaged(f"{mixture.count} experts in {groups} groups, of which {kept} are used")
    return {
        "moe_intermediate_size": mixture.width,
        "n_routed_experts": mixture.count,
        "num_experts_per_tok": mixture.chosen,
        "n_group": groups,
        "topk_group": kept,
        "norm_topk_prob": stated.flag(_NORMALISED, False),
        "routed_scaling_factor": stated.number(_FACTOR, 0.0) or 1.0,
    }


def _of_qwen(described: Description) -> dict[str, int]:
    """Sizes, as most configs call them."""
    mixture = described.experts
    return {
        "moe_intermediate_size": mixture.width,
        "num_experts": mixture.count,
        "num_experts_per_tok": mixture.chosen,
    }


def _shared_width(described: Description) -> int:
    """Of the expert that all tokens share; older files leave it to the tensors."""
    tensor = described.file.tensors.get("blk.0.ffn_down_shexp.weight")
    return int(described.stated.count(SHARED_INNER, tensor.shape[-1] if tensor is not None else 0))


def _check_scores(described: Description, expected: int) -> None:
    """Raise `UnsupportedModel` unless scores are made of logits as all models of the architecture make them."""
    if (found := described.stated.whole(_SCORES, 0)) not in (0, expected):
        raise described.file.not_run(f"{_SCORES} is {found}, and {expected} is known here")
