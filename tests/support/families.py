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
from transformers import AutoModelForCausalLM

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
_DEFAULT = {"rope_type": "default", "rope_theta": 1e4}
_ALTERNATING = ["sliding_attention", "full_attention"] * 2


def _sizes(**more: Any) -> dict[str, Any]:
    """Sizes as most configs call them. The width is 48, whose root is no whole number."""
    return {
        "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "rms_norm_eps": EPS, "tie_word_embeddings": False,
    } | more  # fmt: skip


def _gemma4(**more: Any) -> dict[str, Any]:
    """A quarter of the full layers' heads turns."""
    return _sizes(
        global_head_dim=32, sliding_window=WINDOW, vocab_size_per_layer_input=VOCAB, final_logit_softcapping=5.0,
        rms_norm_eps=4 * EPS,
    ) | more  # fmt: skip


FAMILIES: dict[str, Callable[[], Any]] = {
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


def config_of(name: str) -> Any:
    """A config of one's own."""
    return copy.deepcopy(FAMILIES[name]())


def random_model(name: str, *, seed: int = 0) -> Any:
    """A model in float32 of which no parameter is trivial: gains are not 1, biases not 0."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config_of(name), attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed + 1)
    tied = model.state_dict().keys() - dict(model.named_parameters()).keys() - dict(model.named_buffers()).keys()
    with torch.no_grad():
        for tensor_name, tensor in model.state_dict(keep_vars=True).items():  # parameters, and stored buffers
            if tensor_name in tied:
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            tensor.copy_(0.15 * noise) if tensor.dim() > 1 else tensor.add_(0.2 * noise)
            if tensor_name.endswith("q_norm.weight") and name.startswith("gemma4"):
                tensor *= 0.25  # scores that nothing scales: weights near 0 and 1 would magnify every rounding
    return model.requires_grad_(False)
