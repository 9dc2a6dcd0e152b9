"""The loss of an EAGLE head: how far its guesses at every kept row and depth are from the target's true distributions.

Row t of depth d guesses the token after position t + 1 + d. Its distribution q is over the draft vocabulary; p holds
the target's true probabilities of those tokens, which add up to c <= 1, so that sum_v min(p_v, q_v) is the chance of
acceptance itself, whatever the draft vocabulary leaves out. An element's loss is (1 - w) c KL(p/c || q) + w TV, where
TV = 1 - sum min(p, q) (Leviathan et al. 2023, Corollary 3.6).

The gradient is written out in the forward pass. Rows are worked on some hundreds at a time, so that the products with
the output matrix are large, and the distributions of all depths share the target's; between the products some tens of
rows at a time pass through the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headstart.train.output_matrix import StateDistributions
from headstart.train.selector import Shortlists

CHUNK_ELEMENTS = 1 << 23  # logits of guesses that are held at once
CACHED_ELEMENTS = 1 << 18  # of them, what is worked on between two products


@dataclass(frozen=True, slots=True)
class Blend:
    """How an element's loss is made of KL and TV, and how much each depth weighs.

    tv_weight: the share w of TV. ramp: if positive, w = tv_weight (1 - exp(-ramp a)) at an element that is accepted
    with the chance a: TV has no slope where the distributions do not overlap (after LK losses, arXiv:2602.23881).
    depths: the weight of each depth; None weighs an element by the expected number of guesses that come to be accepted
    at it or after it, from the head's own chances (after D-PACE, arXiv:2605.18810).
    """

    tv_weight: float
    ramp: float = 0.0
    depths: tuple[float, ...] | None = None


def guess_loss(
    states: Sequence[Tensor],
    kept: Sequence[Tensor],
    distributions: StateDistributions,
    matrix: Tensor,
    blend: Blend,
    shortlists: Shortlists | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss, and the mean chance of acceptance at each depth [depths].

    states: for each depth [B, n_d, d], normed. kept: for each depth the rows [n_d], rising, each within those of the
    depth before. matrix [draft V, d]. Differentiable in states and matrix.
    """
    lists = shortlists or Shortlists(0)
    if lists.top:
        lists.prepare(states)
    loss, chances = _GuessLoss.apply(matrix, distributions, list(kept), blend, lists, *states)  # type: ignore[no-untyped-call]
    return loss, chances


class _GuessLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        matrix: Tensor,
        distributions: StateDistributions,
        kept: list[Tensor],
        blend: Blend,
        lists: Shortlists,
        *states: Tensor,
    ) -> tuple[Tensor, Tensor]:
        windows, counts = states[0].shape[0], [len(rows) for rows in kept]
        learns = ctx.needs_input_grad[0]
        to_matrix = torch.zeros_like(matrix, dtype=torch.float32) if learns else None
        to_states = [torch.empty_like(state) for state in states]
        total, chances = matrix.new_zeros((), dtype=torch.float32), matrix.new_zeros(len(kept), dtype=torch.float32)
        for window in range(windows):
            for parts in _chunks(kept, matrix.shape[0]):
                rows = [each[part] for each, part in zip(kept, parts, strict=True)]
                sizes = [len(each) for each in rows]
                own = torch.cat([state[window, part] for state, part in zip(states, parts, strict=True)])
                note = partial(lists.note, window, parts) if lists.top else None
                slopes, losses, accepted = _chunk(own, rows, distributions, window, matrix, blend, note)
                weights = _weights(torch.split(accepted, sizes), rows, counts, blend) / windows
                total += (losses * weights).sum()
                if to_matrix is not None:
                    weighted = (own * weights[:, None]).to(slopes.dtype)
                    if slopes.dtype == to_matrix.dtype:
                        to_matrix.addmm_(slopes.T, weighted)
                    else:  # products of bfloat16 are added up in float32
                        to_matrix.add_(slopes.T @ weighted)
                backward = (slopes @ matrix).mul_(weights[:, None])
                for i, (part, slope, chance) in enumerate(
                    zip(parts, torch.split(backward, sizes), torch.split(accepted, sizes), strict=True)
                ):
                    to_states[i][window, part] = slope
                    chances[i] += chance.sum() / (windows * max(1, counts[i]))
        ctx.mark_non_differentiable(chances)
        ctx.save_for_backward(*to_states, *([] if to_matrix is None else [to_matrix.to(matrix.dtype)]))
        ctx.learns = learns
        return total, chances

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        saved = list(ctx.saved_tensors)
        to_matrix = saved.pop() * grad_output if ctx.learns else None
        return to_matrix, None, None, None, None, *(each * grad_output for each in saved)


def _chunks(kept: Sequence[Tensor], width: int) -> list[list[slice]]:
    """Parts of the rows, each with all depths of its rows: for each part a slice of every depth."""
    first = kept[0]
    if not len(first):
        return []
    share = sum(map(len, kept)) / len(first)
    size = max(1, int(CHUNK_ELEMENTS / (width * share)))
    bounds = torch.cat([first[::size], first[-1:] + 1])
    cuts = [torch.searchsorted(rows, bounds).tolist() for rows in kept]
    return [[slice(cut[i], cut[i + 1]) for cut in cuts] for i in range(len(bounds) - 1)]


def _chunk(
    own: Tensor,
    rows: Sequence[Tensor],
    distributions: StateDistributions,
    window: int,
    matrix: Tensor,
    blend: Blend,
    note: Callable[[Tensor, Tensor, Tensor], None] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The slopes [E, draft V] of E elements in their logits, their losses [E] and chances of acceptance [E]."""
    labels, index = torch.unique(torch.cat([each + 1 + i for i, each in enumerate(rows)]), return_inverse=True)
    log_p = distributions.log_p(window, labels).float()
    p = log_p.exp()
    covered = p.sum(-1)
    floor = torch.finfo(torch.float32).tiny
    settled = torch.linalg.vecdot(p, log_p.clamp_(min=-1e4)) - covered * covered.clamp(min=floor).log()
    del log_p
    logits = (own @ matrix.T).float()
    if note is not None:
        note(logits, p, index)
    losses, accepted = torch.empty(len(own), device=own.device), torch.empty(len(own), device=own.device)
    step = max(1, CACHED_ELEMENTS // logits.shape[1]) if own.device.type == "cpu" else len(own)
    for start in range(0, len(own), step):
        part = slice(start, start + step)
        label = index[part]
        found = _slope(logits[part], p[label], covered[label], settled[label], blend)
        losses[part], accepted[part] = found
    return logits.to(matrix.dtype), losses, accepted


def _slope(logits: Tensor, p: Tensor, covered: Tensor, settled: Tensor, blend: Blend) -> tuple[Tensor, Tensor]:
    """Losses [r] and chances of acceptance [r]; `logits` [r, V] become their slopes.

    p [r, V] adds up to `covered` c; `settled` is sum p log p - c log c. With m = [q < p]:
    d(c KL)/dz = c q - p, and dTV/dz_j = -q_j (m_j - sum_i q_i m_i).
    """
    q = logits.log_softmax(-1)
    divergence = settled - torch.linalg.vecdot(p, q)
    q.exp_()
    below = torch.mul(q, q < p, out=logits)  # the logits themselves are needed no more
    inside = below.sum(-1)
    accepted = torch.minimum(p, q).sum(-1)
    share = torch.full_like(accepted, blend.tv_weight)
    if blend.ramp:
        share *= 1 - (-blend.ramp * accepted).exp()
    rest = 1 - share
    below.mul_(-share[:, None])
    below.addcmul_(q, (rest * covered + share * inside)[:, None])
    below.addcmul_(p, -rest[:, None])
    return rest * divergence + share * (1 - accepted), accepted


def _weights(accepted: Sequence[Tensor], rows: Sequence[Tensor], counts: Sequence[int], blend: Blend) -> Tensor:
    """The weight of each element of a chunk, depth after depth, in one window's sum [E].

    Dropped elements are made up for by those that were kept: the expectation over what is dropped is the whole sum.
    """
    if blend.depths is not None:
        total = sum(blend.depths)
        each = [weight / total / count for weight, count in zip(blend.depths, counts, strict=True)]
        return torch.cat([part.new_full(part.shape, weight) for part, weight in zip(accepted, each, strict=True)])
    depths, base = len(rows), rows[0]
    places = [torch.searchsorted(base, part) for part in rows]
    reached = accepted[0].new_zeros(depths, len(base))
    before = torch.ones_like(accepted[0])
    for depth, (place, chance) in enumerate(zip(places, accepted, strict=True)):
        before = before.clone()
        before[place] *= 0.5 * chance + 0.5
        reached[depth, place] = before[place] * (counts[0] / counts[depth])
    later = reached.flip(0).cumsum(0).flip(0)
    scale = 2 / (depths * (depths + 1) * counts[0])
    return torch.cat([later[depth, place] * scale for depth, place in enumerate(places)])
