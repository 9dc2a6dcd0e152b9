"""What the distribution is held against: transformers' own processors, and settings that use each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.generation import logits_process as hf

from headstart.rule.distribution import SamplingState
from headstart.types import Sampling

V = 97
PROMPT = (3, 5, 5, 7, 11, 96)
OUTPUT = (7, 20, 20, 21, 20)
STOPS = frozenset({0, 41})


def random_logits(rows: int, seed: int = 0, vocab_size: int = V, scale: float = 3.0) -> Tensor:
    return torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * scale


def state_of(sampling: Sampling, output: Sequence[int] = OUTPUT, vocab_size: int = V) -> SamplingState:
    return SamplingState(sampling, PROMPT, vocab_size, STOPS).after(output)


def transformers_logits(x: Tensor, s: Sampling, output: Sequence[int] = OUTPUT) -> Tensor:
    """The same processors, in the same order, each transformers' own class (or the OpenAI formula)."""
    ids = torch.tensor([[*PROMPT, *output]]).expand(len(x), -1)
    chain: list[Callable[[Tensor, Tensor], Tensor]] = []
    if s.logit_bias:
        chain.append(hf.SequenceBiasLogitsProcessor({(t,): float(b) for t, b in s.logit_bias.items()}))
    if s.repetition_penalty != 1:
        chain.append(hf.RepetitionPenaltyLogitsProcessor(float(s.repetition_penalty)))
    if s.presence_penalty or s.frequency_penalty:
        chain.append(lambda ids, x: openai_penalties(x, s, ids[0, len(PROMPT) :].tolist()))
    if s.min_tokens:
        chain.append(hf.MinNewTokensLengthLogitsProcessor(len(PROMPT), s.min_tokens, sorted(STOPS)))
    if s.temperature not in (0, 1):
        chain.append(hf.TemperatureLogitsWarper(float(s.temperature)))
    if s.top_k:
        chain.append(hf.TopKLogitsWarper(s.top_k))
    if s.top_p < 1:
        chain.append(hf.TopPLogitsWarper(s.top_p))
    if s.min_p:
        chain.append(hf.MinPLogitsWarper(s.min_p))
    for step in chain:
        x = step(ids, x)
    return x


def openai_penalties(x: Tensor, s: Sampling, output: Sequence[int]) -> Tensor:
    """mu[j] -> mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence, as the OpenAI reference has it."""
    mu = x.clone()
    for j in range(x.shape[1]):
        c = output.count(j)
        mu[:, j] = mu[:, j] - c * s.frequency_penalty - float(c > 0) * s.presence_penalty
    return mu


ALONE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "bias": {"logit_bias": {1: 2.5, 20: -100.0, 41: 4.0}},
    "repetition": {"repetition_penalty": 1.3},
    "repetition below 1": {"repetition_penalty": 0.8},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.7},
    "negative penalties": {"presence_penalty": -0.5, "frequency_penalty": -1.25},
    "min_tokens": {"min_tokens": 6},
    "min_tokens met": {"min_tokens": 5},
    "temperature": {"temperature": 0.7},
    "hot": {"temperature": 1.9},
    "top_k": {"top_k": 5},
    "top_k of all": {"top_k": 1000},
    "top_p": {"top_p": 0.8},
    "top_p tiny": {"top_p": 1e-6},
    "min_p": {"min_p": 0.1},
    "min_p one": {"min_p": 1.0},
}
COMBINED: dict[str, dict[str, Any]] = {
    "filters": {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    "edits": {"logit_bias": {0: 5.0, 7: 1.0}, "repetition_penalty": 1.2, "presence_penalty": 0.5, "min_tokens": 9},
    "all": {
        "logit_bias": {0: 5.0, 30: 3.0},
        "repetition_penalty": 1.1,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "min_tokens": 9,
        "temperature": 1.3,
        "top_k": 30,
        "top_p": 0.95,
        "min_p": 0.01,
    },
}
SAMPLED = {name: Sampling(**{"temperature": 1.0, **options}) for name, options in (ALONE | COMBINED).items()}
GREEDY = {name: Sampling(**{**options, "temperature": 0}) for name, options in (ALONE | COMBINED).items()}
