"""How far rounding moves logits here: what distinguishes a near-tie from a bug, and noise from a wrong distribution.

The same rows are computed again in another way, and what changes is the measure. For headstart's own engine the other
way is another width of the forward, which is what speculation changes (its row kernels change nothing at all). For
another engine it is also another implementation of the same weights: transformers' own modules in that dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.measure.audit.engines import EngineReference
from headstart.model.loading import load_config, read_model, resolve
from headstart.rule.distribution import SamplingRow, SamplingState, distribution
from headstart.types import Sampling

WIDTHS = (1, 2, 5, 9)
SAFETY = 2.0
"""Two engines may be off in opposite directions, and the largest change seen is not the largest there is."""
EXACT = 1e-6
"""Logits closer than this are tied: float32 is no finer."""
ROWS = 256

Logits = Callable[[Sequence[int]], Tensor]
"""Token ids -> [n, V] logits, row i after tokens[: i + 1]."""
Text = tuple[Sequence[int], Sequence[int]]
"""A prompt and tokens after it."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What rounding alone can change.

    margin: the logit difference up to which two tokens are nearly tied, `SAFETY` times the largest change seen
    logprob: the same for a log-probability, in nats
    variation, variation_most: total variation between the distributions of a token, on average and at most
    rows: how many were looked at
    how: it was measured, in words
    """

    margin: float
    logprob: float
    variation: float
    variation_most: float
    rows: int
    how: str

    def near_tie(self, margin: float) -> bool:
        """Whether rounding could have decided between two tokens whose logits are this far apart."""
        return margin <= max(self.margin, EXACT)


def measure_rounding(
    reference: EngineReference,
    texts: Sequence[Text],
    sampling: Sampling,
    *,
    other: Logits | None = None,
    other_name: str = "",
) -> Rounding:
    """Compute up to `ROWS` rows of the texts again: in forwards of `WIDTHS` rows, and by `other` if there is one.

    sampling: whose distributions are compared (temperature 0 counts as 1; penalties are left out, rounding knows none).
    """
    plain = Sampling(
        temperature=sampling.temperature or 1.0, top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p
    )
    by_width, by_other = _Changes(plain), _Changes(plain)
    rows = 0
    for prompt, tokens in texts:
        if rows >= ROWS:
            break
        tokens = tokens[: ROWS - rows]
        base = reference.logits(prompt, tokens)
        rows += len(base)
        for width in WIDTHS:
            by_width.add(base, reference.logits(prompt, tokens, width))
        if other is not None:
            by_other.add(base, other([*prompt, *tokens])[len(prompt) - 1 :].to(base.device).float())
    how = f"{rows} rows computed again in forwards of {', '.join(map(str, WIDTHS))} rows: "
    how += "the same bits" if by_width.margin == 0 else f"margins change by up to {by_width.margin:.3g}"
    if other is not None:
        how += f"; by {other_name}: margins change by up to {by_other.margin:.3g}"
    return Rounding(
        margin=SAFETY * max(by_width.margin, by_other.margin),
        logprob=SAFETY * max(by_width.logprob, by_other.logprob),
        variation=max(by_width.mean_variation, by_other.mean_variation),
        variation_most=max((*by_width.variations, *by_other.variations), default=0.0),
        rows=rows,
        how=f"{how}. Near-tied are tokens up to {SAFETY:g} times the largest change apart",
    )


def transformers_logits(target: str, dtype: torch.dtype, device: torch.device) -> Logits:
    """The model as transformers runs it by itself: its modules, its attention, no cache. A second copy in memory."""
    source = resolve(target, "target")
    config = load_config(source, trust_remote_code=False)
    model = read_model(source, config, dtype).to(device).eval()

    @torch.inference_mode()
    def logits(tokens: Sequence[int]) -> Tensor:
        found: Tensor = model(torch.tensor([list(tokens)], device=device), use_cache=False).logits[0]
        return found

    return logits


class _Changes:
    """The largest changes seen so far, and every total variation."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self.margin = self.logprob = 0.0
        self.variations: list[float] = []

    def add(self, base: Tensor, again: Tensor) -> None:
        """base, again: [n, V] logits of the same rows. Margins are those of base's two likeliest tokens."""
        best = base.topk(2).indices
        ours, theirs = base.gather(1, best), again.gather(1, best)
        self.margin = max(self.margin, float((ours - theirs).diff().abs().max()))
        ours, theirs = (each.log_softmax(-1).gather(1, best[:, :1]) for each in (base, again))
        self.logprob = max(self.logprob, float((ours - theirs).abs().max()))
        state = SamplingState(self._sampling, (), base.shape[1], frozenset())
        rows = [SamplingRow(state)] * len(base)
        self.variations += ((distribution(base, rows) - distribution(again, rows)).abs().sum(-1) / 2).tolist()

    @property
    def mean_variation(self) -> float:
        return sum(self.variations) / len(self.variations) if self.variations else 0.0
