"""The draft's shape and its first weights."""

from __future__ import annotations

import pytest
import torch
from support.training_models import tiny_llama
from transformers import LlamaConfig

from headstart.base.errors import InvalidOption
from headstart.train import Shape
from headstart.train.draft_start import build, full_shape, reduced


@pytest.mark.parametrize(
    ("hidden", "layers", "wanted"),
    [(384, 8, (192, 1)), (2048, 16, (1024, 2)), (4096, 32, (2048, 4)), (8192, 80, (2048, 4)), (64, 1, (64, 1))],
)
def test_defaults_follow_the_target(hidden: int, layers: int, wanted: tuple[int, int]) -> None:
    config = LlamaConfig(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64)
    shape = full_shape(Shape(), config)
    assert (shape.hidden, shape.layers) == wanted
    assert shape.hidden % shape.heads == 0
    assert shape.heads % shape.kv_heads == 0


def test_what_is_asked_is_kept() -> None:
    shape = full_shape(Shape(hidden=96, layers=3, intermediate=100, heads=6, kv_heads=3), LlamaConfig())
    assert (shape.hidden, shape.layers, shape.intermediate, shape.heads, shape.kv_heads) == (96, 3, 100, 6, 3)


def test_heads_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidOption):
        full_shape(Shape(hidden=33, heads=11), LlamaConfig())


def test_same_shape_starts_as_the_target_itself() -> None:
    target = tiny_llama()
    shape = full_shape(Shape(hidden=64, layers=2, intermediate=128, heads=4, kv_heads=2), target.config)
    draft = build(shape, target, init="target", seed=0)
    name = "model.layers.1.mlp.down_proj.weight"
    assert torch.equal(draft.state_dict()[name], target.state_dict()[name])


def test_reduced_embedding_keeps_inner_products() -> None:
    matrix = torch.randn(50, 3) @ torch.randn(3, 16)  # rank 3: three columns say it all
    small = reduced(matrix, 3)
    gram, full = small @ small.T, matrix @ matrix.T
    torch.testing.assert_close(gram / gram.norm(), full / full.norm(), rtol=1e-3, atol=1e-5)
    assert small.std().item() == pytest.approx(0.02, rel=1e-3)


def test_wider_draft_is_padded() -> None:
    assert reduced(torch.randn(10, 4), 6).shape == (10, 6)
