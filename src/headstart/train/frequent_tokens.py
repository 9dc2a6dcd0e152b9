"""Which tokens, by how often the text has them: those of a loss, those that a head may propose, and one for its masks.

With a vocabulary of 49,152 most of a small model's training step is its output matrix. So a loss takes the most
frequent tokens, and of the others m out of n are drawn for each step; each of these counts n / m times in the sum under
the softmax. That sum is then right on average, so the others are held down as they are by the whole loss, at a fraction
of its cost. (Importance sampling of the softmax: Bengio and Senécal 2008.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LARGE, COMMON = 32_768, 8_192
"""A vocabulary from this size on is not computed whole, but over so many tokens."""
DRAWN = 4  # one other token is drawn for each so many of the common ones


def by_frequency(windows: Tensor, vocab_size: int) -> Tensor:
    """All token ids [V], the most frequent in windows [n, T] first; those that are equally frequent in their order."""
    return _counts(windows, vocab_size).argsort(descending=True, stable=True)


def _counts(windows: Tensor, vocab_size: int) -> Tensor:
    return torch.bincount(windows.flatten().long(), minlength=vocab_size)[:vocab_size]


@dataclass(frozen=True, eq=False)
class LossTokens:
    """Which tokens."""

    common: Tensor
    """Ids [k], rising."""
    others: Tensor
    """The other ids."""

    @classmethod
    def of(cls, windows: Tensor, vocab_size: int, wanted: int | None) -> LossTokens:
        """The most frequent tokens of windows [n, T]. wanted: how many; None is the default for such a vocabulary."""
        count = wanted or (COMMON if vocab_size >= LARGE else vocab_size)
        order = by_frequency(windows, vocab_size)
        return cls(order[:count].sort().values, order[count:].sort().values)

    @property
    def size(self) -> int:
        """Tokens of a step."""
        return len(self.common) + min(len(self.others), len(self.common) // DRAWN)

    def draw(self, chance: torch.Generator) -> tuple[Tensor | None, Tensor | None]:
        """The tokens of a step [m] and the logarithm of how often each counts [m]; None for all tokens once."""
        if not len(self.others):
            return None, None
        count = self.size - len(self.common)
        drawn = self.others[torch.randperm(len(self.others), generator=chance)[:count]]
        weights = torch.zeros(self.size)
        weights[len(self.common) :] = math.log(len(self.others) / max(1, count))
        return torch.cat([self.common, drawn]), weights


class Logits:
    """The logits of a causal LM of transformers over some tokens, without those of the others where that can be."""

    def __init__(self, model: Any) -> None:
        self._model = model
        layer = model.get_output_embeddings()
        with torch.no_grad():
            ids = torch.arange(4, device=model.device)[None]
            whole = model(ids, use_cache=False).logits
            again = None if layer is None else layer(model.base_model(ids, use_cache=False)[0])
        self._plain = again is not None and torch.allclose(whole, again, atol=1e-3, rtol=1e-3)

    def __call__(
        self, ids: Tensor, rows: Tensor | None, tokens: Tensor | None, weights: Tensor | None, **layout: Any
    ) -> Tensor:
        """Logits [n, R, m] of windows ids [n, T], at these rows [R] and for these tokens [m], plus the logarithms of
        their weights; None for all."""
        if not self._plain:
            logits: Tensor = self._model(ids, use_cache=False, **layout).logits
            logits = logits if rows is None else logits[:, rows]
            return logits if tokens is None or weights is None else logits[..., tokens] + weights
        states: Tensor = self._model.base_model(ids, use_cache=False, **layout)[0]
        states = states if rows is None else states[:, rows]
        layer = self._model.get_output_embeddings()
        bias = getattr(layer, "bias", None)
        if tokens is None or weights is None:
            return F.linear(states, layer.weight, bias)
        logits = F.linear(states, layer.weight[tokens], None if bias is None else bias[tokens])
        return logits + weights.to(logits.dtype)


COVERAGE = 0.95  # of the answers' tokens: what is left out is rejected, and what is in costs every step (docs/log.md)
SMALLEST_VOCABULARY, LARGEST_VOCABULARY, STEP = 8_192, 32_768, 1_024


def draft_vocabulary(answers: Tensor, config: Any, size: int | None) -> Tensor:
    """The target's ids [size], rising, that a head may propose: those most frequent in the answers, and the ends.

    Without a size, as many as cover `COVERAGE` of these tokens, rounded up; tokens that never occur are taken
    in the order of their ids, which in most tokenizers is that of their frequency elsewhere.
    """
    width = int(config.vocab_size)
    counts = _counts(answers, width)
    seen, ends = counts.clone(), config.eos_token_id
    for end in ends if isinstance(ends, list | tuple) else [ends]:
        if isinstance(end, int) and 0 <= end < width:
            counts[end] = answers.numel() + 1
    order = counts.argsort(descending=True, stable=True)
    if size is None:
        covered = seen[order].cumsum(0) / seen.sum()
        wanted = 1 + int((covered < COVERAGE).sum())
        size = min(LARGEST_VOCABULARY, max(SMALLEST_VOCABULARY, -(-wanted // STEP) * STEP))
    return order[: min(width, size)].sort().values


def unused_token(train: Tensor, vocab_size: int) -> int:
    """The last of the target's tokens that the windows have least often; nearly always one that they do not have."""
    counts = _counts(train, vocab_size)
    return int((counts == counts.min()).nonzero()[-1])
