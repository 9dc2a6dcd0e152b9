"""Bytes of weights, as they lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.tiny import random_model
from transformers import AutoModelForCausalLM

from headstart.model.heads.medusa import HeadWeights, MedusaHeads
from headstart.model.loading import adopt
from headstart.model.memory import bytes_of
from headstart.model.runner import ModelRunner


def test_shared_memory_counts_once() -> None:
    one = torch.zeros(6, 4)
    assert bytes_of([one, one, one[2:], one.T]) == 96
    assert bytes_of([one, one.clone(), torch.zeros(3, dtype=torch.int8)]) == 195


@pytest.mark.parametrize("decoder", ["fused", "lean", "modules"])
def test_a_runner_counts_every_matrix_once(decoder: Any, tiny: Callable[..., str]) -> None:
    """All decoders hold the same numbers, but for padding and tables."""
    model = random_model("llama")
    numbers = sum(parameter.numel() for parameter in model.parameters())
    runner = ModelRunner(
        adopt(AutoModelForCausalLM.from_pretrained(tiny("llama"), dtype=torch.float32)), decoder=decoder
    )
    assert 4 * numbers <= runner.memory() < 6 * numbers


@pytest.mark.parametrize("quantize", [None, "auto"])
def test_medusa_heads(quantize: str | None) -> None:
    heads = [HeadWeights(((torch.randn(32, 32), torch.randn(32)),), torch.randn(64, 32)) for _ in range(3)]
    made = MedusaHeads(heads, dtype=torch.float32, device=torch.device("cpu"), quantize=quantize)
    least = 3 * (32 * 32 + 64 * 32) * (1 if made.kind.startswith("int8") else 4)
    assert least <= made.memory() < 3 * least
