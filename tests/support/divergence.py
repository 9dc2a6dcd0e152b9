"""The training loss as it is defined, differentiated by autograd: the twin of `headstart.train.objective`."""

from __future__ import annotations

import torch
from torch import Tensor


def plain_divergence(target_logits: Tensor, draft_logits: Tensor, tv_weight: float) -> Tensor:
    """Mean over rows of (1 - w) KL(p||q) + w TV(p, q), in nats; logits are [rows, V]."""
    log_p = target_logits.float().log_softmax(-1)
    log_q = draft_logits.float().log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    kl = (p * (log_p - log_q)).sum(-1)
    tv = 1 - torch.minimum(p, q).sum(-1)
    return ((1 - tv_weight) * kl + tv_weight * tv).mean()
