"""How often drafts will be accepted, estimated from the two distributions on held-out windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.base.errors import TrainingFailed
from headstart.train.windows import Windows

TEMPERATURES = (0.0, 0.7, 1.0)
DRAFT_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Means over held-out answers, the text being given (teacher forcing).

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


@dataclass(frozen=True, slots=True, eq=False)
class Guessed:
    """What a drafter guesses of one window, and what the target says there.

    target: the target's logits [T, V] at each position that a chain of guesses begins at. log_p, log_q: the two
    distributions of the first draft token there, [T, tokens both know]. labels: the text's tokens there, which are its
    last [t], t <= T. rates: from a temperature to the acceptance rates of K passes, as `accepted_in_passes` takes them.
    draft_nats: the labels under the draft's distribution [t], NaN where it does not know the token; None if it knows
    all.
    """

    target: Tensor
    log_p: Tensor
    log_q: Tensor
    labels: Tensor
    rates: Callable[[float], list[Tensor]]
    draft_nats: Tensor | None = None


class Tally:
    """What is summed over held-out windows, and the `Acceptance` it comes to."""

    def __init__(self) -> None:
        self._passes: dict[float, list[list[Tensor]]] = {t: [] for t in TEMPERATURES}
        self._rows, self._kl = 0, 0.0
        self._nats = [0.0, 0], [0.0, 0]  # of the target and of the draft: their sum and their number

    def add(self, found: Guessed, answers: Tensor) -> None:
        """Add one window. answers: bool, which of its tokens are; only guesses of those count. A distribution beyond
        the text's end counts if the last of them does."""
        log_p, log_q, labels = found.log_p, found.log_q, found.labels
        wanted = answers[-len(labels) :].to(log_p.device)
        rows = torch.cat([wanted, wanted[-1:].expand(len(log_p) - len(wanted))])
        for temperature, passes in self._passes.items():
            passes.append([each[rows[: len(each)]] for each in found.rates(temperature)])
        target_nats = F.cross_entropy(found.target[: len(labels)], labels, reduction="none")
        draft_nats = found.draft_nats
        if draft_nats is None:
            draft_nats = F.nll_loss(log_q[: len(labels)], labels, reduction="none")
        log_p, log_q = log_p[rows], log_q[rows]
        self._rows += len(log_p)
        self._kl += (log_p.exp() * (log_p - log_q)).sum().item()
        for sums, nats in zip(self._nats, (target_nats, draft_nats), strict=True):
            known = nats[wanted & ~nats.isnan()]
            sums[0] += known.sum().item()
            sums[1] += len(known)

    def result(self, windows: Windows) -> Acceptance:
        """The means over the answers in these windows, all of which have been added.

        Raises:
            TrainingFailed: there is no answer in them.
        """
        if not self._rows:
            raise TrainingFailed(
                "the held-out windows hold prompts alone, and no answer", hint="hold out more, or give longer answers"
            )
        reached = {f"{t:g}": accepted_in_passes(passes) for t, passes in self._passes.items()}
        return Acceptance(
            rate={
                f"{t:g}": torch.cat([each[0] for each in passes]).mean().item() for t, passes in self._passes.items()
            },
            length={t: sum(depths) for t, depths in reached.items()},
            kl=self._kl / self._rows if math.isfinite(self._kl) else math.nan,
            target_nats=self._nats[0][0] / max(1, self._nats[0][1]),
            draft_nats=self._nats[1][0] / max(1, self._nats[1][1]),
            tokens=int(windows.answers.sum()),
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


def compared(target: Tensor, draft: Tensor, ids: Tensor) -> Guessed:
    """Of a window ids [1, T] the guesses of a draft model that reads the text, by the logits [T, V] of both models.

    The first position is left out: after a single token the distributions are unlike those of a real text.
    """
    p, q = target[1:].float(), draft[1:].float()
    return Guessed(
        p, p.log_softmax(-1), q.log_softmax(-1), ids[0, 2:], lambda t: chain_rates(acceptance_rates(p, q, t))
    )


@torch.no_grad()
def measure(target: Any, draft: Any, windows: Windows) -> Acceptance:
    """Compare the two models on the answers in windows, one window at a time."""
    device = next(draft.parameters()).device
    tally = Tally()
    for window, answers in windows:
        ids = window.long()[None].to(device)
        p, q = (model(ids, use_cache=False).logits[0] for model in (target, draft))
        tally.add(compared(p, q, ids), answers)
    return tally.result(windows)
