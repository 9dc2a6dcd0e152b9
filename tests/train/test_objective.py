"""The fused loss equals its plain twin, in value and in gradient."""

from __future__ import annotations

import pytest
import torch
from support.divergence import plain_divergence

from headstart.train import objective
from headstart.train.objective import divergence, head_divergence


@pytest.mark.parametrize("tv_weight", [0.0, 0.3, 1.0])
def test_fused_equals_plain(tv_weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "CHUNK_ELEMENTS", 33)  # 3 rows a chunk, the last one short
    torch.manual_seed(0)
    target, draft = torch.randn(7, 11, dtype=torch.float64), torch.randn(7, 11, dtype=torch.float64)
    ours, theirs = draft.clone().requires_grad_(), draft.clone().requires_grad_()
    fused, plain = divergence(target, ours, tv_weight) * 3, plain_divergence(target, theirs, tv_weight) * 3
    fused.backward()
    plain.backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(fused, plain, check_dtype=False, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tv_weight", [0.0, 0.5, 1.0])
def test_equal_distributions_cost_nothing(tv_weight: float) -> None:
    logits = torch.randn(5, 9)
    assert abs(divergence(logits, logits + 3.0, tv_weight).item()) < 1e-6


def test_total_variation_is_the_rejection_rate() -> None:
    p, q = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.1, 0.3, 0.6]])
    assert divergence(p.log(), q.log(), 1.0).item() == pytest.approx(0.4)


@pytest.mark.parametrize("tv_weight", [0.0, 0.3, 1.0])
def test_a_head_whose_logits_exist_in_chunks_equals_the_plain_twin(
    tv_weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective, "CACHED_ELEMENTS", 35)  # 3 rows a chunk, the last one short
    torch.manual_seed(0)
    theirs, states, matrix = torch.randn(7, 11), torch.randn(7, 5), torch.randn(11, 5)
    leaves = [states.requires_grad_(), matrix.requires_grad_()]
    fused = head_divergence(theirs, states, matrix, 0.7, tv_weight)
    plain = 0.7 * plain_divergence(theirs, states @ matrix.T, tv_weight)
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)
    for ours, twin in zip(torch.autograd.grad(fused * 3, leaves), torch.autograd.grad(plain * 3, leaves), strict=True):
        torch.testing.assert_close(ours, twin, rtol=1e-5, atol=1e-6)
