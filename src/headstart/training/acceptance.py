"""How often drafts will be accepted, estimated from the two laws on held-out windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

TEMPERATURES = (0.0, 0.7, 1.0)
DRAFT_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Means over held-out positions, the text being given (teacher forcing).

    rate: temperature -> mean chance that one draft token is accepted, sum_v min(p_v, q_v); at 0, the share of
    positions where the two likeliest tokens are the same. length: temperature -> expected number of accepted tokens
    out of K = 4. reached: temperature -> the chance that the first, second, ... of them is accepted with all before
    it, which add up to length. kl, target_nats, draft_nats: nats per token.
    """

    rate: dict[str, float]
    length: dict[str, float]
    kl: float
    target_nats: float
    draft_nats: float
    tokens: int
    reached: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        return asdict(self)


def accepted_length(rates: Tensor, draft_length: int = DRAFT_LENGTH) -> float:
    """Expected accepted tokens of a chain of K drafts, from the rate at each position [windows, positions]."""
    return sum(accepted_at_depth(rates, draft_length))


def accepted_at_depth(rates: Tensor, draft_length: int = DRAFT_LENGTH) -> tuple[float, ...]:
    """Chance that the k-th draft token is accepted, k = 1..K, from the rate at each position [windows, positions].

    mean_t prod_{i<k} rate_{t+i}: it counts only if all before it were accepted.
    """
    reach = rates.shape[1] - draft_length + 1
    return accepted_in_passes([[row[k : k + reach] for k in range(draft_length)] for row in rates])


def accepted_in_passes(rates: Sequence[Sequence[Tensor]]) -> tuple[float, ...]:
    """The same for a head whose k-th guess has rates of its own: for each window, those of K passes by the row [T_k]
    that the chain began at, T_1 >= T_2 >= ..."""
    chances = [torch.stack([r[: len(passes[-1])] for r in passes]).cumprod(0) for passes in rates]
    return tuple(torch.cat(chances, dim=1).mean(1).tolist())


def acceptance_rates(target_logits: Tensor, draft_logits: Tensor, temperature: float) -> Tensor:
    """Chance of acceptance at each position: [..., V] logits to [...]."""
    if temperature == 0:
        return (target_logits.argmax(-1) == draft_logits.argmax(-1)).float()
    p = (target_logits.float() / temperature).softmax(-1)
    q = (draft_logits.float() / temperature).softmax(-1)
    return torch.minimum(p, q).sum(-1)


@torch.no_grad()
def measure(target: Any, draft: Any, windows: Tensor, temperatures: Sequence[float] = TEMPERATURES) -> Acceptance:
    """Compare the two models on windows [n, length], one at a time.

    The first position is left out: after a single token the laws say little about a real text.
    """
    device = next(draft.parameters()).device
    rates: dict[str, list[Tensor]] = {f"{t:g}": [] for t in temperatures}
    kl = target_nats = draft_nats = 0.0
    for window in windows:
        ids = window.long()[None].to(device)
        p_logits = target(ids, use_cache=False).logits[0, 1:].float()
        q_logits = draft(ids, use_cache=False).logits[0, 1:].float()
        for temperature in temperatures:
            rates[f"{temperature:g}"].append(acceptance_rates(p_logits, q_logits, temperature))
        log_p, log_q = p_logits.log_softmax(-1), q_logits.log_softmax(-1)
        kl += (log_p.exp() * (log_p - log_q)).sum(-1).mean().item()
        labels = ids[0, 2:, None]
        target_nats -= log_p[:-1].gather(1, labels).mean().item()
        draft_nats -= log_q[:-1].gather(1, labels).mean().item()
    stacked = {t: torch.stack(found) for t, found in rates.items()}
    reached = {t: accepted_at_depth(found) for t, found in stacked.items()}
    count = len(windows)
    if not math.isfinite(kl):
        kl = math.nan
    return Acceptance(
        rate={t: found.mean().item() for t, found in stacked.items()},
        length={t: sum(depths) for t, depths in reached.items()},
        kl=kl / count,
        target_nats=target_nats / count,
        draft_nats=draft_nats / count,
        tokens=windows.numel(),
        reached=reached,
    )
