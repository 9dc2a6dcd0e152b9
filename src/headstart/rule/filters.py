"""The filters of a distribution: temperature, top_k, top_p and min_p, over rows of different requests at once.

Definitions: transformers' `generation/logits_process.py`, ties included. Everything is float32; no row reads another; a
filter that no row uses is not run. Shapes: R rows, V vocabulary; `samplings` has one entry for each row.

On the host a row's largest logits are found by a bound that the maxima of its groups give, and only they are sorted;
the whole vocabulary is where a distribution is so flat that thousands of tokens are kept. On a device, where to read a
number back is to wait, tensor operations do all the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.types import Sampling

# Logits divided by this stay inside float32, and no two that differ are likely at once: lower temperatures count as it.
COLDEST = 1e-30
# How many of the largest logits top_p looks at before it sorts the whole vocabulary.
NUCLEUS_WIDTHS = (128, 1024, 8192)
_GROUP = 32
"""Logits of which only the maximum is looked at first."""


def filtered(x: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """The logits [R, V], float32, after the filters; -inf where the distribution is 0. `x` is never written to."""
    return _min_p(_top_p(_top_k(_temperature(x, samplings), samplings), samplings), samplings)


def one_hot(x: Tensor) -> Tensor:
    """All mass on the first maximum of each row; NaN throughout where that maximum is not finite. float32 [R, V]."""
    first, highest = first_maximum(x)
    nothing = highest - highest  # 0, or NaN
    return nothing.expand_as(x).clone(memory_format=torch.contiguous_format).scatter_(1, first, nothing + 1)


def first_maximum(x: Tensor) -> tuple[Tensor, Tensor]:
    """Where each row's first maximum (or first NaN) is, and its value; both [R, 1]."""
    if x.device.type == "cpu":  # NumPy's argmax takes a tenth of the time of torch's, and agrees on ties and NaN
        first = torch.from_numpy(x.detach().numpy().argmax(-1)).unsqueeze(1)
    else:
        first = x.argmax(-1, keepdim=True)
    return first, x.gather(1, first)


def _column(values: Iterable[float], like: Tensor) -> Tensor:
    """One float32 parameter per row: [R, 1]."""
    return torch.tensor(list(values), dtype=torch.float32, device=like.device).unsqueeze(1)


def _temperature(x: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """x / T; at T = 0 everything but the first maximum becomes -inf."""
    if not all(s.temperature in (0, 1) for s in samplings):
        divisors = [1.0 if s.greedy else max(s.temperature, COLDEST) for s in samplings]
        if x.device.type == "cpu":  # torch would wake its threads for it, which may have to wait for a processor
            x = torch.from_numpy(x.detach().numpy() / np.array(divisors, np.float32)[:, None])
        else:
            x = x / _column(divisors, x)
    if not any(s.greedy for s in samplings):
        return x
    off = one_hot(x) == 0
    if not all(s.greedy for s in samplings):
        off &= _column((s.greedy for s in samplings), x) > 0
    return torch.where(off, -math.inf, x)


def _top_k(x: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """Keep what is not below the k-th largest logit, ties with it included."""
    ks = [0 if s.greedy else min(s.top_k, x.shape[1]) for s in samplings]
    if not any(ks):
        return x
    return _top_k_on_host(x, ks) if x.device.type == "cpu" else _top_k_on_device(x, ks)


def _top_k_on_device(x: Tensor, ks: Sequence[int]) -> Tensor:
    column = _column(ks, x)
    kth = x.topk(max(ks)).values.gather(1, column.long().sub(1).clamp(min=0))
    return torch.where(x < kth.masked_fill(column == 0, -math.inf), -math.inf, x)


def _top_k_on_host(x: Tensor, ks: Sequence[int]) -> Tensor:
    """The same, row by row."""
    logits = x.detach().numpy()
    kept = np.full_like(logits, -math.inf)
    for row, to, k in zip(logits, kept, ks, strict=True):
        if k and not _without_distribution(row):
            ids = _largest(row, k)
            ids = ids[row[ids] >= row[ids[:k]][-1]]
            to[ids] = row[ids]
        else:
            to[:] = row
    return torch.from_numpy(kept)


def _top_p(x: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """Keep the likeliest tokens, each as long as those before it hold less than top_p of the mass.

    transformers says it from below (drop while the mass so far is <= 1 - top_p), which is the same set. Among
    tokens tied at the cut it keeps as many as are needed, whichever its sort left last; here the lowest ids.
    """
    limits = [1.0 if s.greedy else s.top_p for s in samplings]
    if all(limit >= 1 for limit in limits):
        return x
    return _top_p_on_host(x, limits) if x.device.type == "cpu" else _top_p_on_device(x, limits)


def _top_p_on_device(x: Tensor, limits: Sequence[float]) -> Tensor:
    """By sorting all of it."""
    limit = _column(limits, x)
    off = limit >= 1
    top, ids = x.sort(dim=-1, descending=True, stable=True)
    mass = x.softmax(-1).gather(1, ids).cumsum(-1)
    kept = ((mass < limit).sum(-1, keepdim=True) + 1).clamp(max=x.shape[1])
    cut = top.gather(1, kept - 1).masked_fill(off, -math.inf)
    room = kept - (top > cut).sum(-1, keepdim=True)
    at_cut = x == cut
    return torch.where((x < cut) | at_cut & (at_cut.cumsum(-1) > room) & ~off, -math.inf, x)


def _top_p_on_host(x: Tensor, limits: Sequence[float], widths: Sequence[int] = NUCLEUS_WIDTHS) -> Tensor:
    """The same to the bit, row by row: the masses are those of the full softmax, added up in the same order."""
    logits, masses = x.detach().numpy(), x.softmax(-1).numpy()
    kept = np.full_like(logits, -math.inf)
    for row, p, to, limit in zip(logits, masses, kept, limits, strict=True):
        if limit < 1 and not _without_distribution(row):
            ids = _nucleus(row, p, np.float32(limit), widths)
            to[ids] = row[ids]
        else:
            to[:] = row
    return torch.from_numpy(kept)


def _nucleus(
    x: NDArray[np.float32], p: NDArray[np.float32], limit: np.float32, widths: Sequence[int]
) -> NDArray[np.intp]:
    """The tokens that top_p keeps of one row: found among its largest logits, or else by sorting all of them."""
    for width in (*(width for width in widths if width < len(x)), len(x)):
        ids = _largest(x, width)
        mass = torch.from_numpy(p[ids]).cumsum(0).numpy()
        if mass[-1] >= limit or len(ids) < width:
            break
    count = int(np.count_nonzero(mass < limit)) + 1
    values = x[ids]
    if count >= len(ids) or values[count] < values[count - 1]:
        return ids[:count]
    above, tied = ids[values > values[count - 1]], ids[values == values[count - 1]]
    return np.concatenate((above, np.sort(tied)[: count - len(above)]))


def _largest(x: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """The `count` largest of x [V], and all that tie with the last of them, if not more: ids, the largest first.

    Fewer only where no others are above -inf. As many groups as `count` have a maximum that reaches the bound, so that
    as many logits do; where that leaves too few groups to choose from, the bound is the count-th largest logit itself.
    """
    if count < len(x):
        groups = len(x) // _GROUP
        among = x[: groups * _GROUP].reshape(_GROUP, groups).max(0) if 2 * count <= groups else x
        bound = np.partition(among, len(among) - count)[len(among) - count]
    else:
        bound = np.float32(-math.inf)
    ids = np.flatnonzero(x >= bound if bound > -math.inf else x > bound)
    return ids[np.argsort(-x[ids])]


def _without_distribution(x: NDArray[np.float32]) -> bool:
    """Whether a row's softmax is NaN: a filter leaves such a row as it is."""
    return not math.isfinite(x.max())


def _min_p(x: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """Keep the tokens whose probability is at least min_p times that of the likeliest."""
    fractions = [0.0 if s.greedy else s.min_p for s in samplings]
    if not any(fractions):
        return x
    p = x.softmax(-1)
    if x.device.type == "cpu":  # as for the temperature
        masses = p.numpy()
        least = np.array(fractions, np.float32)[:, None] * masses.max(-1, keepdims=True)
        return torch.from_numpy(np.where(masses < least, np.float32(-math.inf), x.detach().numpy()))
    return torch.where(p < _column(fractions, x) * p.amax(-1, keepdim=True), -math.inf, x)
