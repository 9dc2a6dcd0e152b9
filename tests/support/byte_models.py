"""Models over bytes on disk, for tests of the command line and of servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from support.tiny import byte_tokenizer

CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('no system message') }}"
    "{% endif %}{{ message.role[0] + ':' + message.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)
"""One line a message, "u:Hello", and "a:" for the answer; it refuses system messages."""


def save_model(
    path: Path, *, layers: int = 2, noise: float = 0.0, context: int = 256, nan: bool = False, chat: bool = False,
    tokenizer: Any = None,
) -> Path:  # fmt: skip
    """A Llama over bytes, always the same; `noise` makes a draft that is sometimes right, `nan` breaks its "N"; `chat`
    gives it `CHAT_TEMPLATE`; `tokenizer` may have more tokens."""
    tokenizer = tokenizer or byte_tokenizer()
    if chat:
        tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        eos_token_id=256,
        pad_token_id=257,
        bos_token_id=256,
        initializer_range=0.2,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += noise * torch.randn_like(parameter)
        if nan:
            model.model.embed_tokens.weight[tokenizer.convert_tokens_to_ids("N")] = float("nan")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
