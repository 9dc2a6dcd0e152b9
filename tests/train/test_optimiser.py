"""Muon and AdamW: orthogonal updates, masters that keep small steps, state that comes back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headstart.train.optimiser import Optimiser, orthogonalise
from headstart.train.schedule import Budget, rate


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 32), (2, 32, 8)])
def test_orthogonalise_brings_singular_values_near_one(shape: tuple[int, ...]) -> None:
    stack = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(stack).float())
    assert values.min() > 0.4
    assert values.max() < 1.4


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"embed": nn.Embedding(8, 4), "layer": nn.Linear(4, 4), "norm": nn.LayerNorm(4)})


def descend(model: nn.Module, optimiser: Optimiser, steps: int) -> float:
    """Fit the outputs of eight inputs to a fixed table; returns the last loss."""
    goal = torch.randn(8, 4, generator=torch.Generator().manual_seed(5))
    loss = torch.tensor(0.0)
    for _ in range(steps):
        hidden = model["norm"](model["layer"](model["embed"](torch.arange(8))))  # type: ignore[index]
        loss = (hidden.float() - goal).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step(1.0)
    return loss.item()


def test_matrices_go_to_muon_and_the_rest_to_adamw() -> None:
    optimiser = Optimiser(small().named_parameters())
    assert set(optimiser.second) == {"embed.weight", "layer.bias", "norm.weight", "norm.bias"}


def test_loss_goes_down_in_bfloat16() -> None:
    model = small().bfloat16()
    optimiser = Optimiser(model.named_parameters(), other_rate=0.02)
    assert descend(model, optimiser, 150) < 0.5 * descend(small(), Optimiser(small().named_parameters()), 1)


def test_masters_keep_steps_too_small_for_the_weights() -> None:
    model = small().bfloat16()
    optimiser = Optimiser(model.named_parameters(), other_rate=1e-5)
    before = model["norm"].weight.clone()  # type: ignore[index]
    for _ in range(100):
        model["norm"].weight.grad = torch.ones(4, dtype=torch.bfloat16)  # type: ignore[index]
        optimiser.step(1.0)
    assert optimiser.masters["norm.weight"].mean().item() == pytest.approx(1 - 1e-3, rel=1e-3)
    # all hundred together are less than half of bfloat16's spacing below 1
    assert torch.equal(model["norm"].weight, before)  # type: ignore[index]


def test_inputs_of_other_lengths_learn_as_if_they_were_alike() -> None:
    """A matrix whose inputs are a thousandfold apart, with their lengths known, is one whose inputs were divided."""
    lengths = torch.tensor([1.0, 1000.0, 0.5, 20.0, 3.0, 1.0])
    generator = torch.Generator().manual_seed(0)
    x, goal = torch.randn(32, 6, generator=generator), torch.randn(32, 4, generator=generator)
    uneven, even = nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False)
    with torch.no_grad():
        uneven.weight.copy_(even.weight / lengths)
    ours = Optimiser(uneven.named_parameters(), lengths={"weight": lengths})
    for model, optimiser, inputs in ((uneven, ours, x * lengths), (even, Optimiser(even.named_parameters()), x)):
        for _ in range(20):
            (model(inputs) - goal).square().mean().backward()
            optimiser.step(1.0)
    torch.testing.assert_close(uneven.weight * lengths, even.weight, atol=1e-4, rtol=1e-4)


def test_state_comes_back_bit_for_bit() -> None:
    model, other = small(), small()
    first, second = Optimiser(model.named_parameters()), Optimiser(other.named_parameters())
    descend(model, first, 5)
    second.load({name: tensor.clone() for name, tensor in first.tensors().items()})
    assert descend(model, first, 5) == descend(other, second, 5)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_rate_warms_up_stays_and_ends_at_zero() -> None:
    assert rate(0.0, 0, warmup=10) == pytest.approx(0.1)
    assert rate(0.2, 100) == 1.0
    assert rate(0.7, 100, plateau=0.4) == pytest.approx(0.5)
    assert rate(1.0, 100) == 0.0


def test_budget_in_steps_and_in_minutes() -> None:
    assert Budget(steps=10).progress(5, 1e9) == 0.5
    assert Budget(minutes=2).progress(10**9, 30) == 0.25
    assert Budget(minutes=2).progress(0, 500) == 1.0
