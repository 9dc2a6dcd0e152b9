"""Tiny random models with recurrent layers: one of each recurrence, with every part that its family has; and smaller
ones, as checkpoints, for whole engines."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from transformers import AutoModelForCausalLM

from support import tiny
from support.byte_models import CHAT_TEMPLATE

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
FACTORS_OF_FALCON: dict[str, Any] = {
    "embedding_multiplier": 1.7, "lm_head_multiplier": 0.6, "key_multiplier": 0.7, "attention_in_multiplier": 1.1,
    "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.3, "ssm_out_multiplier": 0.9,
    "mlp_multipliers": [1.2, 0.75], "ssm_multipliers": [1.4, 0.7, 0.85, 1.15, 0.55],
}  # fmt: skip
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
    "falcon_h1": lambda **more: tf.FalconH1Config(  # attention and a recurrence in every layer
        **{
            **_ALL,
            "num_hidden_layers": 3,
            "head_dim": 16,
            "rms_norm_eps": 0.1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            "mamba_d_ssm": 96,
            "mamba_n_heads": 6,
            "mamba_d_head": 16,
            "mamba_d_state": 32,
            "mamba_n_groups": 2,
            "mamba_rms_norm": True,
            "projectors_bias": True,
            "mlp_bias": True,
            **FACTORS_OF_FALCON,
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


_LAYERS = ["linear_attention", "full_attention", "linear_attention"]
_SMALL: dict[str, dict[str, Any]] = {
    "falcon_h1": {
        "rms_norm_eps": 1e-6, "mamba_d_ssm": 32, "mamba_n_heads": 2, "mamba_d_state": 16, "mamba_n_groups": 1,
        "mlp_bias": False, "projectors_bias": False,
    },
    "lfm2": {"norm_eps": 1e-5, "layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 16},
    "qwen3_5": {
        "rms_norm_eps": 1e-6, "head_dim": 16, "layer_types": _LAYERS, "linear_key_head_dim": 8,
        "linear_value_head_dim": 16, "linear_num_key_heads": 1, "linear_num_value_heads": 2,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    },
    "granite4h": {
        "rms_norm_eps": 1e-6, "layer_types": _LAYERS, "shared_intermediate_size": 32, "mamba_n_heads": 4,
        "mamba_d_head": "auto", "mamba_d_state": 16, "mamba_proj_bias": False, "embedding_multiplier": 1.0,
        "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
    },
}  # fmt: skip
"""Of what the smaller ones differ in."""
SMALLER = tuple(_SMALL)
"""Those of `HYBRIDS` that have a smaller one."""


def small(
    kind: str, *, vocab: int = tiny.VOCAB, width: int = 32, context: int = 256, bos: int | None = 1, eos: int | None = 2
) -> Any:
    """The config of a smaller one, of three layers."""
    sizes = {
        "vocab_size": vocab, "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 3,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": context, "bos_token_id": bos,
        "eos_token_id": eos, "pad_token_id": None,
    }  # fmt: skip
    return HYBRIDS[kind](**sizes, **_SMALL[kind])


@cache
def checkpoint(root: Path, kind: str, *, noise: float = 0.0, chat: bool = False) -> str:
    """The directory of a smaller one, over bytes if it is for chats."""
    path = root / f"{kind}-{noise}-{chat}"
    config = small(kind, vocab=258, context=2048, bos=256, eos=256) if chat else small(kind)
    tiny.drawn(config, noise=noise).save_pretrained(path)
    if chat:
        tokenizer = tiny.byte_tokenizer()
        tokenizer.chat_template = CHAT_TEMPLATE
        tokenizer.save_pretrained(path)
    return str(path)
