"""Tiny random models of many architectures, written to disk as a user's checkpoints would be."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

VOCAB = 97
CONTEXT = 128
_LLAMA = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GPT = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_ALTERNATING = ["sliding_attention", "full_attention"] * 2

ARCHITECTURES: dict[str, Any] = {
    "llama": lambda: tf.LlamaConfig(**_LLAMA, head_dim=16),
    "mistral": lambda: tf.MistralConfig(**_LLAMA, sliding_window=7, head_dim=16),
    "qwen2": lambda: tf.Qwen2Config(
        **_LLAMA, head_dim=16, use_sliding_window=True, sliding_window=7, max_window_layers=2
    ),
    "qwen3": lambda: tf.Qwen3Config(**_LLAMA, head_dim=16),
    "gemma2": lambda: tf.Gemma2Config(
        **_LLAMA,
        head_dim=8,
        sliding_window=7,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=8.0,
        query_pre_attn_scalar=8,
    ),
    "gemma3": lambda: tf.Gemma3TextConfig(
        **_LLAMA, head_dim=8, sliding_window=7, query_pre_attn_scalar=8, layer_types=_ALTERNATING
    ),
    "phi3": lambda: tf.Phi3Config(**_LLAMA, sliding_window=7),
    "mixtral": lambda: tf.MixtralConfig(**_LLAMA, num_local_experts=4, num_experts_per_tok=2),
    "gpt_oss": lambda: tf.GptOssConfig(
        **_LLAMA, head_dim=8, num_local_experts=4, sliding_window=7, layer_types=_ALTERNATING, rope_scaling=None
    ),
    "persimmon": lambda: tf.PersimmonConfig(**{**_LLAMA, "num_key_value_heads": 4}),
    "gpt2": lambda: tf.GPT2Config(**_GPT, n_embd=32, n_layer=3, n_head=4, n_positions=CONTEXT),
    "gpt_neox": lambda: tf.GPTNeoXConfig(
        **_GPT,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        rotary_pct=0.5,
    ),
    "opt": lambda: tf.OPTConfig(
        **_GPT,
        hidden_size=32,
        ffn_dim=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        word_embed_proj_dim=32,
    ),
}


def random_model(name: str, *, seed: int = 0, scale: float = 0.2, noise: float = 0.0) -> Any:
    """A float32 model with weights N(0, scale^2). `noise` perturbs them: the same model, slightly off, is a draft
    whose guesses are sometimes right."""
    return drawn(ARCHITECTURES[name](), seed=seed, scale=scale, noise=noise)


def drawn(config: Any, *, seed: int = 0, scale: float = 0.2, noise: float = 0.0) -> Any:
    """The same of any config."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, scale, generator=generator)
        for parameter in model.parameters():
            if parameter.dim() > 1 and noise:
                parameter += noise * torch.randn(parameter.shape, generator=generator)
    return model


@cache
def checkpoint(root: Path, name: str, *, seed: int = 0, noise: float = 0.0) -> str:
    """Directory of such a model, saved once per test run."""
    path = root / f"{name}-{seed}-{noise}"
    random_model(name, seed=seed, noise=noise).save_pretrained(path)
    return str(path)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Every byte is a token, ids 0-255; <eos> is 256 and <pad> 257."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>")
