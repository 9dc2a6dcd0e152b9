"""A tiny random Llama with a tokenizer of bytes, for tests of training."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END = "<|endoftext|>"


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte, and the end of text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={END: 0, **{c: i + 1 for i, c in enumerate(letters)}}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)


def tiny_llama(*, hidden: int = 64, layers: int = 2, seed: int = 0) -> LlamaForCausalLM:
    """A random Llama whose distributions are far from flat, so that there is something to learn."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config).eval()
