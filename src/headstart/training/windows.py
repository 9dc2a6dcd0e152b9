"""From token lists to equal windows, a held-out part, and batches that are a function of the step alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from headstart.errors import TrainingFailed


def split(documents: Sequence[list[int]], share: float, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """Documents to learn from, and documents held out. A single document is cut in two."""
    if len(documents) == 1:
        (tokens,) = documents
        cut = round(len(tokens) * (1 - share))
        return [tokens[:cut]], [tokens[cut:]]
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(seed)).tolist()
    held = max(1, round(share * len(documents)))
    return [documents[i] for i in order[held:]], [documents[i] for i in order[:held]]


def pack(documents: Iterable[list[int]], length: int, *, what: str) -> Tensor:
    """Windows [n, length], int32. A document fills windows from its start; what is left over shares windows.

    Every window is full, so that there is no padding and no mask. Raises `TrainingFailed` if there is not even one.
    """
    windows: list[list[int]] = []
    rest: list[int] = []
    for tokens in documents:
        full = len(tokens) - len(tokens) % length
        windows += [tokens[i : i + length] for i in range(0, full, length)]
        rest += tokens[full:]
        while len(rest) >= length:
            windows.append(rest[:length])
            rest = rest[length:]
    if not windows:
        raise TrainingFailed(
            f"the {what} text has fewer tokens than one window of {length}",
            hint="give more text, a larger validation share, or a smaller sequence_length",
        )
    return torch.tensor(windows, dtype=torch.int32)


def picks(count: int, step: int, size: int, seed: int) -> Tensor:
    """Which of `count` windows a step reads [size]: each pass over the windows has an order of its own.

    It depends on its arguments alone, so a resumed run sees what the uninterrupted one would have seen.
    """
    picked = []
    for place in range(step * size, (step + 1) * size):
        epoch, index = divmod(place, count)
        picked.append(_order(count, seed, epoch)[index])
    return torch.stack(picked)


@lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> Tensor:
    """The permutation of one epoch."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
