"""Prompts for tiny models, and the texts that transformers' own `generate` gives after them."""

from __future__ import annotations

from functools import cache

import torch
from transformers import AutoModelForCausalLM

from support.tiny import VOCAB

NEW = 32
LENGTHS = (3, 21, 9, 1, 14)


@cache
def prompts() -> tuple[tuple[int, ...], ...]:
    generator = torch.Generator().manual_seed(5)
    return tuple(tuple(torch.randint(3, VOCAB, (n,), generator=generator).tolist()) for n in LENGTHS)


@cache
def reference(path: str, new: int = NEW) -> tuple[tuple[int, ...], ...]:
    """What transformers generates, prompt by prompt, EOS included where it comes."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    texts = []
    for prompt in prompts():
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False)
        texts.append(tuple(out[0, len(prompt) :].tolist()))
    return tuple(texts)
