"""What llama.cpp's converter makes of models with recurrent layers: keys, and tensors that it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gguf
import numpy as np

ARCHITECTURES = {
    "falcon_h1": "falcon-h1", "granitemoehybrid": "granitehybrid", "lfm2": "lfm2", "lfm2_moe": "lfm2moe",
    "nemotron_h": "nemotron_h", "qwen3_5_moe_text": "qwen35moe", "qwen3_5_text": "qwen35", "qwen3_next": "qwen3next",
}  # fmt: skip
"""By `model_type`."""
_MAMBA2 = ("falcon_h1", "granitemoehybrid", "nemotron_h")


def metadata(config: Any) -> dict[str, Any]:
    """Below the architecture's name, instead of what it writes of other models or beside it."""
    kv_heads = [config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.layer_types]
    if config.model_type == "falcon_h1":
        return {
            "ssm.conv_kernel": config.mamba_d_conv,
            "ssm.group_count": config.mamba_n_groups,
            "ssm.inner_size": config.mamba_d_ssm,
            "ssm.state_size": config.mamba_d_state,
            "ssm.time_step_rank": config.mamba_n_heads,
            "embedding_scale": None,  # in the weights
        }
    if config.model_type == "nemotron_h":
        return {
            "attention.head_count_kv": kv_heads,
            "attention.layer_norm_epsilon": config.layer_norm_epsilon,
            "context_length": 2**20,
            "feed_forward_length": [config.intermediate_size * (kind in ("mlp", "moe")) for kind in config.layer_types],
            "rope.scaling.finetuned": False,
            "ssm.conv_kernel": config.conv_kernel,
            "ssm.group_count": config.n_groups,
            "ssm.inner_size": config.mamba_num_heads * config.mamba_head_dim,
            "ssm.state_size": config.ssm_state_size,
            "ssm.time_step_rank": config.mamba_num_heads,
        }
    if config.model_type in ("lfm2", "lfm2_moe"):
        return {
            "attention.head_count_kv": kv_heads,
            "attention.layer_norm_epsilon": None,
            "attention.layer_norm_rms_epsilon": config.norm_eps,
            "feed_forward_length": _width_of_lfm2(config),
            "shortconv.l_cache": config.conv_L_cache,
        }
    if config.model_type == "granitemoehybrid":
        rope = config.position_embedding_type == "rope"
        return {
            "attention.head_count_kv": kv_heads,
            "context_length": config.max_position_embeddings if rope else 2**20,
            "expert_count": config.num_local_experts,
            "expert_used_count": config.num_experts_per_tok,
            "expert_shared_feed_forward_length": config.shared_intermediate_size,
            "feed_forward_length": (
                config.intermediate_size if config.num_local_experts else config.shared_intermediate_size
            ),
            "logit_scale": float(config.logits_scaling),
            "rope.scaling.finetuned": rope,
            "ssm.conv_kernel": config.mamba_d_conv,
            "ssm.group_count": config.mamba_n_groups,
            "ssm.inner_size": config.mamba_expand * config.hidden_size,
            "ssm.state_size": config.mamba_d_state,
            "ssm.time_step_rank": config.mamba_n_heads,
        }
    sections = config.rope_parameters.get("mrope_section")
    return {
        "attention.recurrent_layers": [kind == "linear_attention" for kind in config.layer_types],
        "full_attention_interval": 4,
        **({"rope.dimension_sections": [*sections, 0]} if sections else {}),
        "ssm.conv_kernel": config.linear_conv_kernel_dim,
        "ssm.group_count": config.linear_num_key_heads,
        "ssm.inner_size": config.linear_value_head_dim * config.linear_num_value_heads,
        "ssm.state_size": config.linear_key_head_dim,
        "ssm.time_step_rank": config.linear_num_value_heads,
    }


_NEXTN = {
    "fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm",
}  # fmt: skip
"""What the converter calls the parts of a head, after `nextn`; the package `gguf` has it for newer versions."""


def with_head(config: Any, head: Mapping[str, np.ndarray], count: int = 1) -> dict[str, Any]:
    """What to write beside a Qwen3.5 with so many MTP layers: metadata and tensors, from the head's by their names in a
    checkpoint."""
    layers, tensors = config.num_hidden_layers, {}
    mixture = config.model_type == "qwen3_5_moe_text"
    of = gguf.MODEL_ARCH.QWEN35MOE if mixture else gguf.MODEL_ARCH.QWEN35
    table = gguf.get_tensor_name_map(of, layers + count)
    for name, values in head.items():
        inner = name.removeprefix("mtp.")
        module, _, kind = inner.rpartition(".")
        found: list[str | None] = [f"blk.{layers + i}.nextn.{_NEXTN.get(module)}.{kind}" for i in range(count)]
        if inner.startswith("layers."):
            _, number, rest = inner.split(".", 2)
            found = [table.get_name(f"model.layers.{layers + int(number)}.{rest}", try_suffixes=(".weight",))]
        for stored in found:
            assert stored is not None, name
            tensors[stored] = values + 1 if "norm" in stored else values
    recurrent = [kind == "linear_attention" for kind in config.layer_types] + [False] * count
    said = {"block_count": layers + count, "nextn_predict_layers": count, "attention.recurrent_layers": recurrent}
    return {"metadata": said, "tensors": tensors}


def _width_of_lfm2(config: Any) -> int:
    if not getattr(config, "block_auto_adjust_ff_dim", False):
        return int(config.intermediate_size)
    width = int(config.block_ffn_dim_multiplier * int(2 * config.intermediate_size / 3))
    return int(-(-width // config.block_multiple_of) * config.block_multiple_of)


def table_name(config: Any, parameter: str) -> str:
    """How the converter's table calls a parameter."""
    if config.model_type == "nemotron_h" and parameter.startswith("model."):
        parameter = f"backbone.{parameter.removeprefix('model.')}"
    return parameter.replace(".dt_bias", ".dt_proj.bias")


def bare(stored: str) -> str:
    """A stored name without the ending that parameters have which are no module's."""
    return stored.removesuffix(".weight") if stored.endswith((".ssm_a.weight", ".ssm_d.weight")) else stored


def changed(config: Any, name: str, stored: str, values: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """What the converter writes of a parameter that the table calls `stored`."""
    kind, block = config.model_type, stored.rpartition(".ffn")[0]
    if ".input_linear." in name:
        yield f"{block}.ffn_gate.weight", values[: len(values) // 2]
        yield f"{block}.ffn_up.weight", values[len(values) // 2 :]
        return
    if ".output_linear." in name:
        stored = f"{block}.ffn_down.weight"
    if values.ndim == 3:
        values = values.squeeze(1)  # of a convolution
    if name.endswith(".A_log"):
        values = -np.exp(values)
    if kind in _MAMBA2 and stored.endswith(("ssm_a", "ssm_d")):
        values = values[:, None]
    if kind in _MAMBA2 and stored.endswith("ssm_norm.weight"):
        values = values.reshape(config.n_groups if kind == "nemotron_h" else config.mamba_n_groups, -1)
    if kind == "falcon_h1":
        factor = _factor_of_falcon(config, name)
        values = values * (factor[:, None] if values.ndim == 2 else factor)
    if kind in ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"):
        if ".linear_attn." in name and not name.endswith(".norm.weight"):
            values = values if kind == "qwen3_next" else _by_rounds(config, name, values)
        elif stored.endswith("norm.weight") and "ssm_norm" not in stored:
            values = values + 1
    yield stored, values


def _factor_of_falcon(config: Any, name: str) -> Any:
    """What the converter multiplies the rows of a matrix, or a bias, by."""
    fed, (gate, down) = config.attention_in_multiplier, config.mlp_multipliers
    by_module = {
        "q_proj": fed, "k_proj": fed * config.key_multiplier, "v_proj": fed, "o_proj": config.attention_out_multiplier,
        "gate_proj": gate, "down_proj": down, "out_proj": config.ssm_out_multiplier,
        "embed_tokens": config.embedding_multiplier, "lm_head": config.lm_head_multiplier,
    }  # fmt: skip
    module = name.split(".")[-2]
    if module != "in_proj":
        return np.float32([by_module.get(module, 1.0)])
    group = config.mamba_n_groups * config.mamba_d_state
    widths = (config.mamba_d_ssm, config.mamba_d_ssm, group, group, config.mamba_n_heads)
    return np.repeat(np.float32(config.ssm_multipliers) * np.float32(config.ssm_in_multiplier), widths)


def _by_rounds(config: Any, name: str, values: np.ndarray) -> np.ndarray:
    """Value heads one of each key head after the other, where transformers has those of a key head together."""
    keys, width = config.linear_num_key_heads, config.linear_value_head_dim
    inner = width * config.linear_num_value_heads
    if ".out_proj." in name:
        return _turned(values.T, keys, width).T
    if ".in_proj_qkv." in name or ".conv1d." in name:
        return np.concatenate([values[:-inner], _turned(values[-inner:], keys, width)])
    return _turned(values, keys, width if ".in_proj_z." in name else 1)


def _turned(values: np.ndarray, keys: int, width: int) -> np.ndarray:
    by_head = values.reshape(keys, -1, width, *values.shape[1:])
    return np.ascontiguousarray(by_head.swapaxes(0, 1)).reshape(values.shape)
