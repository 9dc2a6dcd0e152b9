"""How often drafts will be accepted, estimated from the two laws on held-out windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURES = (0.0, 0.7, 1.0)
DRAFT_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Means over held-out positions, the text being given (teacher forcing).

    rate: temperature -> the mean chance that one draft token is accepted, sum_v min(p_v, q_v); at 0, the share of
        positions where the two likeliest tokens are the same.
    length: temperature -> the expected number of accepted tokens out of K: 4, or as many as a parallel head guesses.
    kl: KL(p||q) in nats per token.
    target_nats: cross-entropy of the text under the target, in nats per token.
    draft_nats: cross-entropy of the text under the draft, in nats per token.
    tokens: tokens that were measured on.
    reached: temperature -> the chances that the first, second, ... token is accepted together with all before it;
        they add up to `length`.
    """

    rate: dict[str, float]
    length: dict[str, float]
    kl: float
    target_nats: float
    draft_nats: float
    tokens: int
    reached: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def guesses(self) -> int:
        """K, the draft tokens in a row."""
        return max(map(len, self.reached.values()), default=DRAFT_LENGTH)

    def record(self) -> dict[str, Any]:
        return asdict(self)


class Tally:
    """What is summed over held-out windows, and the `Acceptance` it comes to."""

    def __init__(self) -> None:
        self._passes: dict[float, list[list[Tensor]]] = {t: [] for t in TEMPERATURES}
        self._kl = self._target_nats = self._draft_nats = 0.0

    def add(
        self,
        log_p: Tensor,
        log_q: Tensor,
        rates: Callable[[float], list[Tensor]],
        *,
        target_nats: Tensor,
        draft_nats: Tensor,
    ) -> None:
        """Add one window.

        log_p, log_q: the two laws of the first draft token at each position, [T, tokens both know].
        rates: from a temperature to the acceptance rates of K passes, as `accepted_in_passes` takes them.
        target_nats, draft_nats: mean cross-entropies of the window's text.
        """
        for temperature, passes in self._passes.items():
            passes.append(rates(temperature))
        self._kl += (log_p.exp() * (log_p - log_q)).sum(-1).mean().item()
        self._target_nats += target_nats.item()
        self._draft_nats += draft_nats.item()

    def result(self, windows: Tensor) -> Acceptance:
        """The means over these windows [n, length], all of which have been added."""
        count = len(windows)
        reached = {f"{t:g}": accepted_in_passes(passes) for t, passes in self._passes.items()}
        return Acceptance(
            rate={
                f"{t:g}": torch.cat([each[0] for each in passes]).mean().item() for t, passes in self._passes.items()
            },
            length={t: sum(depths) for t, depths in reached.items()},
            kl=self._kl / count if math.isfinite(self._kl) else math.nan,
            target_nats=self._target_nats / count,
            draft_nats=self._draft_nats / count,
            tokens=windows.numel(),
            reached=reached,
        )


def chain_rates(rates: Tensor, draft_length: int = DRAFT_LENGTH) -> list[Tensor]:
    """K passes of one window, where the rate [T] at a position is the same however a chain came to it."""
    return [rates[k:] for k in range(draft_length)]


def accepted_in_passes(rates: Sequence[Sequence[Tensor]]) -> tuple[float, ...]:
    """The chance that the k-th draft token is accepted together with all before it, k = 1..K.

    rates: for each window the acceptance rates of K passes, by the row [T_k] that the chain began at, with
    T_1 >= T_2 >= ... Chains that do not reach the last pass are left out.
    """
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
def measure(target: Any, draft: Any, windows: Tensor) -> Acceptance:
    """Compare the two models on windows [n, length], one at a time.

    The first position is left out: after a single token the laws are unlike those of a real text.
    """
    device = next(draft.parameters()).device
    tally = Tally()
    for window in windows:
        ids = window.long()[None].to(device)
        p, q = (model(ids, use_cache=False).logits[0, 1:].float() for model in (target, draft))
        log_p, log_q = p.log_softmax(-1), q.log_softmax(-1)
        labels = ids[0, 2:]
        tally.add(
            log_p,
            log_q,
            lambda t, p=p, q=q: chain_rates(acceptance_rates(p, q, t)),  # type: ignore[misc]
            target_nats=F.nll_loss(log_p[:-1], labels),
            draft_nats=F.nll_loss(log_q[:-1], labels),
        )
    return tally.result(windows)
