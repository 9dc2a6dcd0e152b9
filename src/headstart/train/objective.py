"""The loss: KL(p||q), total variation, or a blend, with its gradient written out.

p is the target's distribution and q the draft's, at temperature 1. TV(p, q) = 1 - sum_v min(p_v, q_v) is the chance
that a draft token is rejected (Leviathan et al. 2023, Corollary 3.6). `divergence` computes the gradient in the forward
pass, a few rows at a time, so that a large vocabulary costs the memory of one chunk. With `head_divergence` the logits
themselves exist in chunks only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 22  # logits held in float32 at once
CACHED_ELEMENTS = 1 << 20  # the same, where they should stay in the processor's cache


def divergence(target_logits: Tensor, draft_logits: Tensor, tv_weight: float) -> Tensor:
    """Mean over rows of (1 - w) KL(p||q) + w TV(p, q), in nats; logits are [rows, V], w is `tv_weight`.

    Computed in chunks of rows. Differentiable in `draft_logits` only.
    """
    result: Tensor = _Divergence.apply(target_logits, draft_logits, tv_weight)  # type: ignore[no-untyped-call]
    return result


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, target_logits: Tensor, draft_logits: Tensor, tv_weight: float) -> Tensor:
        rows, width = draft_logits.shape
        gradient = torch.empty_like(draft_logits)
        total = draft_logits.new_zeros((), dtype=torch.float32)
        for start in range(0, rows, chunk := max(1, CHUNK_ELEMENTS // width)):
            part = slice(start, start + chunk)
            losses, slope = _rows(target_logits[part], draft_logits[part].float(), tv_weight)
            total += losses.sum()
            gradient[part] = slope.div_(rows)
        ctx.save_for_backward(gradient)
        return total / max(1, rows)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[None, Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return None, gradient * grad_output, None


def head_divergence(theirs: Tensor, states: Tensor, matrix: Tensor, weight: float, tv_weight: float) -> Tensor:
    """`divergence(theirs, states @ matrix.T, tv_weight)`, times `weight`.

    theirs [rows, V]: the target's logits; states [rows, d]; matrix [V, d]. Differentiable in states and matrix.
    """
    result: Tensor = _HeadDivergence.apply(theirs, states, matrix, weight, tv_weight)  # type: ignore[no-untyped-call]
    return result


class _HeadDivergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, theirs: Tensor, states: Tensor, matrix: Tensor, weight: float, tv_weight: float) -> Tensor:
        rows, width = theirs.shape
        state_gradient, matrix_gradient = torch.empty_like(states), torch.zeros_like(matrix, dtype=torch.float32)
        share = torch.tensor(weight, device=states.device)
        total = states.new_zeros((), dtype=torch.float32)
        elements = CACHED_ELEMENTS if states.device.type == "cpu" else CHUNK_ELEMENTS
        for start in range(0, rows, chunk := max(1, elements // width)):
            part = slice(start, start + chunk)
            losses, slope = _rows(theirs[part], (states[part] @ matrix.T).float(), tv_weight)
            total += (losses * share).sum()
            slope = slope.mul_(share / rows).to(matrix.dtype)
            state_gradient[part] = slope @ matrix
            matrix_gradient += slope.T @ states[part]
        ctx.save_for_backward(state_gradient, matrix_gradient.to(matrix.dtype))
        return total / max(1, rows)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[None, Tensor, Tensor, None, None]:
        state_gradient, matrix_gradient = ctx.saved_tensors
        return None, state_gradient * grad_output, matrix_gradient * grad_output, None, None


def _rows(theirs: Tensor, logits: Tensor, tv_weight: float) -> tuple[Tensor, Tensor]:
    """Losses [rows] and their gradient in the draft's logits z [rows, V].

    theirs [rows, V]: the target's logits. dKL/dz = q - p. With m = [q < p]: dTV/dz_j = -q_j (m_j - sum_i q_i m_i).
    """
    log_p = theirs.float().log_softmax(-1)
    p = log_p.exp()
    log_q = logits.log_softmax(-1)
    losses = (1 - tv_weight) * ((p * log_p).sum(-1) - torch.linalg.vecdot(p, log_q))
    q = log_q.exp_()
    slope = q - p
    if tv_weight:
        losses -= tv_weight * slope.clamp(max=0).sum(-1)
        below = q * (slope < 0)
        slope.mul_(1 - tv_weight).sub_(below, alpha=tv_weight)
        slope.addcmul_(q, below.sum(-1, keepdim=True), value=tv_weight)
    return losses, slope
