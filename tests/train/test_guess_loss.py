"""The loss of kept guesses equals its plain twin, in value and in gradient, and its weights their expectation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from headstart.train import guess_loss as fused
from headstart.train.guess_loss import Blend, guess_loss
from headstart.train.output_matrix import StateDistributions
from headstart.train.unrolled import nested

WINDOWS, ROWS, WIDTH, WHOLE, DRAFT = 2, 12, 5, 17, 11
SHARES = (1.0, 0.7, 0.5)


@dataclass(frozen=True)
class Case:
    states: list[Tensor]
    kept: list[Tensor]
    distributions: StateDistributions
    matrix: Tensor
    true: Tensor
    """The target's probabilities of the draft vocabulary [B, T, draft V]."""


def case() -> Case:
    torch.manual_seed(0)
    kept = nested(ROWS, SHARES, torch.Generator().manual_seed(3))
    last, output = torch.randn(WINDOWS, ROWS + 3, WIDTH), torch.randn(WHOLE, WIDTH)
    logits = last @ output.T
    states = [torch.randn(WINDOWS, len(rows), WIDTH).requires_grad_() for rows in kept]
    distributions = StateDistributions(last, logits.logsumexp(-1), lambda x: x @ output[:DRAFT].T)
    return Case(
        states, kept, distributions, torch.randn(DRAFT, WIDTH).requires_grad_(), logits.softmax(-1)[..., :DRAFT]
    )


def plain(each: Case, blend: Blend) -> tuple[Tensor, list[Tensor]]:
    """The loss by its definition, and the chances of acceptance at each depth [B, n_d]."""
    losses, chances = [], []
    for depth, (state, rows) in enumerate(zip(each.states, each.kept, strict=True)):
        p = each.true[:, rows + 1 + depth]
        q = (state @ each.matrix.T).softmax(-1)
        covered, accepted = p.sum(-1), torch.minimum(p, q).sum(-1)
        share = blend.tv_weight * (1 - (-blend.ramp * accepted.detach()).exp() if blend.ramp else 1)
        kl = (p * (p / covered[..., None] / q).log()).sum(-1)
        losses.append((1 - share) * kl + share * (1 - accepted))
        chances.append(accepted.detach())
    if blend.depths is not None:
        return sum(w * loss.mean() for w, loss in zip(blend.depths, losses, strict=True)) / sum(blend.depths), chances  # type: ignore[return-value]
    total = losses[0].new_zeros(())
    for window in range(WINDOWS):
        for row in range(ROWS):
            at = [rows.tolist().index(row) for rows in each.kept if row in rows]
            reached = torch.tensor([0.5 * chances[d][window, i] + 0.5 for d, i in enumerate(at)]).cumprod(0)
            for d, i in enumerate(at):
                weight = sum(reached[j] * len(each.kept[0]) / len(each.kept[j]) for j in range(d, len(at)))
                total = total + weight * losses[d][window, i]
    return total / (WINDOWS * ROWS * 6), chances


@pytest.mark.parametrize(
    "blend",
    [
        Blend(0.0, 0.0, (0.5, 0.3, 0.2)),
        Blend(0.4, 0.0, (1.0, 1.0, 1.0)),
        Blend(1.0, 0.0, (0.5, 0.3, 0.2)),
        Blend(0.9, 3.0, (0.5, 0.3, 0.2)),
        Blend(0.4, 0.0, None),
        Blend(0.9, 2.0, None),
    ],
)
def test_fused_equals_plain(blend: Blend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "CHUNK_ELEMENTS", 9 * DRAFT)  # some rows a chunk, the last one short
    monkeypatch.setattr(fused, "CACHED_ELEMENTS", 2 * DRAFT)
    each = case()
    leaves = [*each.states, each.matrix]
    ours, chances = guess_loss(each.states, each.kept, each.distributions, each.matrix, blend)
    theirs, accepted = plain(each, blend)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(chances, torch.stack([part.mean() for part in accepted]), rtol=1e-5, atol=1e-6)
    for one, twin in zip(torch.autograd.grad(ours * 3, leaves), torch.autograd.grad(theirs * 3, leaves), strict=True):
        torch.testing.assert_close(one, twin, rtol=1e-4, atol=1e-6)


def test_in_bfloat16_the_gradients_are_those_of_float32_but_for_rounding() -> None:
    each, blend = case(), Blend(0.5, 0.0, (1.0, 1.0, 1.0))
    leaves = [*each.states, each.matrix]
    exact = torch.autograd.grad(plain(each, blend)[0], leaves)
    rounded = [leaf.detach().bfloat16().requires_grad_() for leaf in leaves]
    loss, _ = guess_loss(rounded[:-1], each.kept, each.distributions, rounded[-1], blend)
    for one, twin in zip(torch.autograd.grad(loss, rounded), exact, strict=True):
        assert one.dtype == torch.bfloat16
        assert (one.float() - twin).norm() < 0.03 * twin.norm()


def test_a_frozen_matrix_costs_the_states_nothing() -> None:
    each = case()
    blend = Blend(0.5, 0.0, (1.0, 1.0, 1.0))
    learning = torch.autograd.grad(
        guess_loss(each.states, each.kept, each.distributions, each.matrix, blend)[0], each.states
    )
    frozen = each.matrix.detach()
    still = torch.autograd.grad(guess_loss(each.states, each.kept, each.distributions, frozen, blend)[0], each.states)
    for one, other in zip(learning, still, strict=True):
        torch.testing.assert_close(one, other)


def test_the_target_s_own_distribution_is_accepted_as_far_as_it_is_covered() -> None:
    each = case()
    states = [each.distributions.last[:, rows + 1 + depth] for depth, rows in enumerate(each.kept)]
    matrix, blend = each.distributions.output(torch.eye(WIDTH)).T, Blend(0.0, 0.0, (1.0, 1.0, 1.0))
    loss, chances = guess_loss(states, each.kept, each.distributions, matrix, blend)
    covered = [each.true[:, rows + 1 + depth].sum(-1).mean() for depth, rows in enumerate(each.kept)]
    # the head cannot know what its vocabulary lacks: its distribution is the target's scaled up, and covers all of it
    torch.testing.assert_close(chances, torch.stack(covered))
    assert abs(loss.item()) < 1e-5


def expected(blend: Blend, draws: Sequence[int]) -> float:
    losses = []
    for seed in draws:
        each = case()
        kept = nested(ROWS, SHARES, torch.Generator().manual_seed(seed))
        states = [torch.linspace(-1, 1, WINDOWS * ROWS * WIDTH).view(WINDOWS, ROWS, WIDTH)[:, rows] for rows in kept]
        losses.append(guess_loss(states, kept, each.distributions, each.matrix.detach(), blend)[0].item())
    return sum(losses) / len(losses)


def test_what_was_dropped_is_made_up_for() -> None:
    blend = Blend(0.5, 0.0, None)
    each = case()
    every = [torch.arange(ROWS)] * 3
    state = torch.linspace(-1, 1, WINDOWS * ROWS * WIDTH).view(WINDOWS, ROWS, WIDTH)
    whole = guess_loss([state] * 3, every, each.distributions, each.matrix.detach(), blend)[0].item()
    assert expected(blend, range(40)) == pytest.approx(whole, rel=0.05)
