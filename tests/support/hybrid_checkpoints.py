"""Tiny models of which some layers are recurrent: a short convolution, the gated delta rule, Mamba-2."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import transformers as tf

from support.byte_models import CHAT_TEMPLATE
from support.tiny import VOCAB, byte_tokenizer, drawn

_ROPE = {"rope_type": "default", "rope_theta": 1e4}
_PARTIAL = _ROPE | {"partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
_LAYERS = ["linear_attention", "full_attention", "linear_attention"]
KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "lfm2": lambda sizes: tf.Lfm2Config(
        **sizes, norm_eps=1e-5, layer_types=["conv", "full_attention", "conv"], block_multiple_of=16, conv_bias=True,
        rope_parameters=_ROPE,
    ),
    "qwen3_5": lambda sizes: tf.Qwen3_5TextConfig(
        **sizes, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=16, linear_num_key_heads=1,
        linear_num_value_heads=2, layer_types=_LAYERS, rope_parameters=_PARTIAL,
    ),
    "granitemoehybrid": lambda sizes: tf.GraniteMoeHybridConfig(
        **sizes, num_local_experts=0, shared_intermediate_size=32, layer_types=_LAYERS, mamba_n_heads=4,
        mamba_d_head=sizes["hidden_size"] // 2, mamba_d_state=16, mamba_n_groups=2, mamba_expand=2,
    ),
}  # fmt: skip


def config(
    kind: str, *, vocab: int = VOCAB, width: int = 32, context: int = 256, bos: int | None = 1, eos: int | None = 2
) -> Any:
    return KINDS[kind](
        {
            "vocab_size": vocab, "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 3,
            "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": context,
            "tie_word_embeddings": False, "bos_token_id": bos, "eos_token_id": eos, "pad_token_id": None,
        }
    )  # fmt: skip


@cache
def checkpoint(root: Path, kind: str, *, noise: float = 0.0, chat: bool = False) -> str:
    """The directory of such a model, over bytes if it is for chats."""
    path = root / f"{kind}-{noise}-{chat}"
    made = config(kind, vocab=258, context=2048, bos=256, eos=256) if chat else config(kind)
    drawn(made, noise=noise).save_pretrained(path)
    if chat:
        tokenizer = byte_tokenizer()
        tokenizer.chat_template = CHAT_TEMPLATE
        tokenizer.save_pretrained(path)
    return str(path)
