"""The loss: KL(p||q), total variation, or a blend, with its gradient written out.

p is the target's law and q the draft's, at temperature 1. TV(p, q) = 1 - sum_v min(p_v, q_v) is the chance that a
draft token is rejected (Leviathan et al. 2023, Corollary 3.6). `divergence` computes the gradient in the forward
pass, a few rows at a time, so that a large vocabulary costs the memory of one chunk; `plain_divergence` is its twin by
autograd.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 22  # logits held in float32 at once


def plain_divergence(target_logits: Tensor, draft_logits: Tensor, tv_weight: float) -> Tensor:
    """Mean over rows of (1 - w) KL(p||q) + w TV(p, q), in nats; logits are [rows, V]."""
    log_p = target_logits.float().log_softmax(-1)
    log_q = draft_logits.float().log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    kl = (p * (log_p - log_q)).sum(-1)
    tv = 1 - torch.minimum(p, q).sum(-1)
    return ((1 - tv_weight) * kl + tv_weight * tv).mean()


def divergence(target_logits: Tensor, draft_logits: Tensor, tv_weight: float) -> Tensor:
    """`plain_divergence`, in chunks of rows. Differentiable in `draft_logits` only."""
    result: Tensor = _Divergence.apply(target_logits, draft_logits, tv_weight)  # type: ignore[no-untyped-call]
    return result


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, target_logits: Tensor, draft_logits: Tensor, tv_weight: float) -> Tensor:
        rows, width = draft_logits.shape
        gradient = torch.empty_like(draft_logits)
        total = draft_logits.new_zeros((), dtype=torch.float32)
        chunk = max(1, CHUNK_ELEMENTS // width)
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            loss, slope = _rows(target_logits[part], draft_logits[part], tv_weight)
            total += loss
            gradient[part] = slope.div_(rows)
        ctx.save_for_backward(gradient)
        return total / rows

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[None, Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return None, gradient * grad_output, None


def _rows(target_logits: Tensor, draft_logits: Tensor, tv_weight: float) -> tuple[Tensor, Tensor]:
    """Summed loss of these rows, and its gradient in the draft's logits z.

    dKL/dz = q - p. With m = [q < p]: dTV/dz_j = -q_j (m_j - sum_i q_i m_i).
    """
    log_p = target_logits.float().log_softmax(-1)
    log_q = draft_logits.float().log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    loss = (1 - tv_weight) * log_p.sub_(log_q).mul_(p).sum()
    slope = (q - p).mul_(1 - tv_weight)
    if tv_weight:
        below = (q < p).float()
        loss = loss + tv_weight * (len(p) - torch.minimum(p, q).sum())
        slope -= tv_weight * q * (below - (q * below).sum(-1, keepdim=True))
    return loss, slope
