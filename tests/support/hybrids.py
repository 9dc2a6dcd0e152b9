"""Tiny random models with recurrent layers: one of each recurrence, with every part that its family has."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
import transformers as tf
from transformers import AutoModelForCausalLM

VOCAB = 97
_ALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
HYBRIDS: dict[str, Any] = {
    "lfm2": lambda **more: tf.Lfm2Config(
        **{
            **_ALL,
            "num_hidden_layers": 5,
            "norm_eps": 0.1,
            "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"],
            "block_multiple_of": 32,
            "conv_bias": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            **more,
        }
    ),
    "qwen3_5": lambda **more: tf.Qwen3_5TextConfig(
        **{
            **_ALL,
            "num_hidden_layers": 5,  # the last one is recurrent
            "rms_norm_eps": 0.1,
            "head_dim": 32,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
            **more,
        }
    ),
    "granite4h": lambda **more: tf.GraniteMoeHybridConfig(
        **{
            **_ALL,
            "num_hidden_layers": 4,
            "rms_norm_eps": 0.1,
            "num_local_experts": 0,
            "shared_intermediate_size": 96,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
            "mamba_n_heads": 8,
            "mamba_d_head": 16,
            "mamba_d_state": 32,
            "mamba_n_groups": 2,
            "mamba_expand": 2,
            "mamba_proj_bias": True,
            "embedding_multiplier": 3.0,
            "logits_scaling": 2.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            **more,
        }
    ),
    "nemotron_h": lambda **more: tf.NemotronHConfig(  # layers of one part
        **{
            **_ALL,
            "layer_norm_epsilon": 0.1,
            "head_dim": 16,
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention", "mlp"],
            "time_step_min": 1e-9,  # below which transformers raises the steps of a prompt, and not those of one token
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 32,
            "n_groups": 2,
            "use_bias": True,
            "mlp_bias": True,
            "num_nextn_predict_layers": 0,
            **more,
        }
    ),
}  # fmt: skip


def hybrid(name: str, dtype: torch.dtype = torch.float32, **more: Any) -> Any:
    """A model by the key of `HYBRIDS`, of its own: a runner takes a model's weights. more: fields of its config."""
    return copy.deepcopy(_made(name, tuple(more.items()))).to(dtype)


@cache
def _made(name: str, more: tuple[tuple[str, Any], ...]) -> Any:
    """Its parameters are spread enough for all parts to matter."""
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = AutoModelForCausalLM.from_config(HYBRIDS[name](**dict(more))).float().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.15)
    return model
