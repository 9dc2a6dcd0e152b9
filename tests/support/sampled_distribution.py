"""A model of 8 tokens, the joint distribution of its next three, and a chi-square test of samples against it."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM, LogitsProcessorList
from transformers.generation.logits_process import TemperatureLogitsWarper, TopPLogitsWarper

VOCAB, TOKENS, SAMPLES = 8, 3, 1000
"""With 800 samples, rules wrong in the four ways of `support.planted_bugs` that are wrong at temperature 1 are found
at p < 1e-6, where tests alarm at 1e-3."""
PROMPT = [1, 3, 2, 3, 2, 1, 3]  # it repeats itself, so that the n-gram drafter has something to say


@cache
def model(root: Path, seed: int, layers: int, noise: float = 0.0) -> str:
    torch.manual_seed(seed)
    config = tf.LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=layers, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    made = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.35)
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter += noise * torch.randn_like(parameter)
    path = root / f"sampled-{seed}-{layers}-{noise}"
    made.save_pretrained(path)
    return str(path)


@cache
def joint(path: str, temperature: float, top_p: float) -> dict[tuple[int, ...], float]:
    """The distribution of the next three tokens: transformers' logits and transformers' warpers."""
    target = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    warp = LogitsProcessorList([TemperatureLogitsWarper(temperature), TopPLogitsWarper(top_p)])
    distribution: dict[tuple[int, ...], float] = {}
    texts = torch.tensor([[*PROMPT, *rest] for rest in product(range(VOCAB), repeat=TOKENS)])
    with torch.no_grad():
        logits = target(texts).logits.double()
    start = len(PROMPT) - 1
    distributions = [warp(texts, logits[:, start + i]).softmax(-1) for i in range(TOKENS)]
    for row, text in enumerate(texts[:, len(PROMPT) :].tolist()):
        chance = 1.0
        for i, token in enumerate(text):
            chance *= float(distributions[i][row, token])
        distribution[tuple(text)] = chance
    assert sum(distribution.values()) == pytest.approx(1)
    return distribution


def p_value(counts: Counter[Any], distribution: dict[Any, float]) -> float:
    """Chi-square with cells of small expectation merged into one."""
    total = sum(counts.values())
    assert all(distribution.get(text, 0) > 0 for text in counts), "a text of probability 0 was emitted"
    large = [text for text, chance in distribution.items() if chance * total >= 5]
    observed = [float(counts[text]) for text in large]
    expected = [float(distribution[text]) * total for text in large]
    rest = total - sum(expected)
    if rest > 1e-6 * total:
        observed.append(total - sum(observed))
        expected.append(rest)
    if len(expected) == 1:
        return 1.0
    return float(chisquare(observed, [e * sum(observed) / sum(expected) for e in expected]).pvalue)
