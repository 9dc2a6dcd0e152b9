"""A tiny random checkpoint of each kind that wraps a text model, as its own class saves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as tf
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

VOCAB = 120
IMAGE, VIDEO, AUDIO = 110, 111, 112
"""Tokens that stand for media."""
_WINDOWS = ["sliding_attention", "full_attention"]

_TEXT: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 3,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "layer_types": None,
}  # fmt: skip
_TOWER: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 16,
    "depth": 1, "embed_dim": 32, "num_heads": 2, "out_hidden_size": 48, "image_size": 28, "patch_size": 14,
    "num_position_embeddings": 16, "deepstack_visual_indexes": [0], "fullatt_block_indexes": [0], "output_channels": 16,
    "global_attn_indexes": [0], "position_embedding_size": 16, "encoder_layers": 1, "encoder_attention_heads": 2,
    "d_model": 32, "encoder_ffn_dim": 48, "mlp_dim": 48, "num_key_value_heads": 2, "output_proj_dims": 48,
    "subsampling_conv_channels": [8, 8], "num_mel_bins": 16, "max_source_positions": 16, "pooling_kernel_size": 1,
    "vocab_size": 64, "mm_embed_dim": 48, "mm_posemb_size": 16, "layer_types": None,
}  # fmt: skip
_MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}

OF_TEXT: dict[str, dict[str, Any]] = {
    "exaone4_5": {"sliding_window": 8, "layer_types": _WINDOWS},
    "gemma3": {"sliding_window": 8, "layer_types": _WINDOWS},
    "gemma4": {
        "sliding_window": 8, "layer_types": [*_WINDOWS, *_WINDOWS], "num_hidden_layers": 4, "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": VOCAB, "hidden_size_per_layer_input": 16,
        "per_layer_config": {1: {"head_dim": 32}, 3: {"head_dim": 32}},
        "use_double_wide_mlp": True, "final_logit_softcapping": 20.0,
    },
    "gemma4_unified": {
        "sliding_window": 8, "layer_types": _WINDOWS, "attention_k_eq_v": True,
        "per_layer_config": {1: {"head_dim": 32}},
    },
    "glm46v": {"rope_parameters": {**_MROPE, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 2]}},
    "glm4v": {"rope_parameters": {**_MROPE, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 2]}},
    "lfm2_vl": {"layer_types": ["conv", "full_attention"]},
    "lfm3_vl": {"layer_types": ["conv", "sliding_attention"], "sliding_window": 8},
    "mistral3": {"sliding_window": 8},
    "qwen2_5_vl": {"rope_parameters": _MROPE},
    "qwen2_vl": {"rope_parameters": _MROPE, "use_sliding_window": True, "sliding_window": 8, "layer_types": _WINDOWS},
    "qwen3_5": {
        "rope_parameters": {**_MROPE, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
        "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 1, "linear_num_value_heads": 2,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    },
    "qwen3_vl": {"rope_parameters": {**_MROPE, "mrope_interleaved": True}},
}  # fmt: skip
"""What their text models state beside sizes."""


OPTIONAL: dict[str, dict[str, Any]] = {
    "gemma4": {"vision_config": tf.Gemma4VisionConfig(), "audio_config": tf.Gemma4AudioConfig()},
    "gemma4_unified": {"vision_config": tf.Gemma4UnifiedVisionConfig()},
}
"""Towers that they have only if they are asked for."""


ANOTHER: dict[str, dict[str, Any]] = {
    "mistral3, mistral4": {
        "model_type": "mistral4", **{name: size for name, size in _TEXT.items() if name != "head_dim"},
        "num_key_value_heads": 3, "kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 16, "v_head_dim": 16,
        "qk_nope_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    },
}  # fmt: skip
"""Text models that a wrapper may have beside its usual one."""


def config_of(kind: str) -> Any:
    """A config of one's own, with few tokens and small towers."""
    usual = AutoConfig.for_model(kind.partition(",")[0])
    parts: dict[str, Any] = {}
    for name in ("vision_config", "audio_config", "high_res_vision_config"):
        tower = getattr(usual, name, None) or OPTIONAL.get(kind, {}).get(name)
        if tower is not None:
            parts[name] = _small(tower, _TOWER)
    parts["text_config"] = ANOTHER.get(kind) or _small(usual.text_config, _TEXT) | OF_TEXT.get(kind, {})
    own = {
        "image_token_id": IMAGE, "image_token_index": IMAGE, "video_token_id": VIDEO, "video_token_index": VIDEO,
        "audio_token_id": AUDIO, "audio_token_index": AUDIO, "vision_feature_layer": -1,
    }  # fmt: skip
    return type(usual)(**parts, **{name: value for name, value in own.items() if hasattr(usual, name)})


def _small(config: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    said = config.to_dict()
    return said | {name: value for name, value in sizes.items() if name in said}


def random_wrapper(kind: str, *, seed: int = 0) -> Any:
    """The whole model in float32; weights that are large enough for texts that differ."""
    torch.manual_seed(seed)
    config = config_of(kind)
    auto = AutoModelForImageTextToText if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING else None
    model = auto.from_config(config) if auto else getattr(tf, AUDIO_CLASSES.get(kind, ""))(config)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.2 * noise) if parameter.dim() > 1 else parameter.add_(0.1 * noise)
    return model.eval()


AUDIO_CLASSES = {"qwen2_audio": "Qwen2AudioForConditionalGeneration", "voxtral": "VoxtralForConditionalGeneration"}


def save_wrapper(kind: str, folder: Path) -> Any:
    """Its checkpoint; returns the model."""
    model = random_wrapper(kind)
    model.save_pretrained(folder)
    return model
