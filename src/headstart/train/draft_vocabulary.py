"""Which tokens a head may propose, and which one may stand for a guess: both from how often the text has them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

COVERAGE = 0.95  # of the answers' tokens: what is left out is rejected, and what is in costs every step (docs/log.md)
SMALLEST_VOCABULARY, LARGEST_VOCABULARY, STEP = 8_192, 32_768, 1_024


def draft_vocabulary(answers: Tensor, config: Any, size: int | None) -> Tensor:
    """The target's ids [size], rising, that a head may propose: those most frequent in the answers, and the ends.

    Without a size, as many as cover `COVERAGE` of these tokens, rounded up; tokens that never occur are taken
    in the order of their ids, which in most tokenizers is that of their frequency elsewhere.
    """
    width = int(config.vocab_size)
    counts = torch.bincount(answers.flatten().long(), minlength=width)[:width]
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
    counts = torch.bincount(train.flatten().long(), minlength=vocab_size)[:vocab_size]
    return int((counts == counts.min()).nonzero()[-1])
