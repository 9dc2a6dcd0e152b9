"""The candidate selector of a head while it learns: a correction of the guesses that are made in one forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from headstart.train.head_layer import HeadShape

FIRST_CODES = 0.02  # spread of A at first: a predecessor that was never met corrects next to nothing


class CandidateSelector(nn.Module):
    """The trained part of a selector: pairs of tokens correct the guesses of one forward, which do not know of each
    other. It has the codebooks A [V, r] by the target's tokens and B [draft V, r], and W [r, d].

    Among the likeliest candidates of a place, the score of c after the token p is logit[c] + <A[p] * (W h), B[c]>, with
    h the normed state that the logits were made from. It begins with B = 0, which changes nothing. The head's own loss
    stays on the uncorrected logits, so that the selector cannot hide a weak head, and nothing of the selector's loss
    reaches it.

    Source: the candidate selector of DFlash2 (z-lab, 2026); DSpark (arXiv:2607.05147) corrects the whole vocabulary so.
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        rank = shape.selector_rank
        self.top = min(shape.selector_top_k, shape.draft_vocab)
        self.predecessor_codebook = nn.Parameter(torch.randn(shape.vocab, rank) * FIRST_CODES)
        self.successor_codebook = nn.Parameter(torch.zeros(shape.draft_vocab, rank))
        self.hidden_projection = nn.Linear(shape.hidden, rank, bias=False)

    def scores(self, logits: Tensor, candidates: Tensor, states: Tensor, before: Tensor) -> Tensor:
        """Corrected logits [..., k] of candidates [..., k], whose logits these are, after the tokens `before` [...].

        states [..., d]: normed."""
        codes = self.predecessor_codebook[before] * self.hidden_projection(states)
        corrected: Tensor = logits + (self.successor_codebook[candidates] @ codes[..., None])[..., 0]
        return corrected

    def distributions(self, logits: Tensor, states: Tensor, before: Tensor) -> Tensor:
        """Corrected logits [..., draft V] of all tokens: minus infinity outside the shortlist."""
        top = logits.topk(self.top, dim=-1)
        scores = self.scores(top.values, top.indices, states, before)
        result: Tensor = torch.full_like(logits, float("-inf")).scatter(-1, top.indices, scores)
        return result


@dataclass(slots=True)
class Shortlists:
    """The likeliest candidates of every kept guess, for a selector to learn from: filled while the loss is computed.

    top: how many; 0 for none. For each depth candidates [B, n_d, k] in the draft vocabulary, their logits, and the
    target's true probabilities of them. The target's own likeliest token is last, whether or not it is among the
    others: a selector should learn of it. Where it is, its logit is minus infinity.
    """

    top: int
    candidates: list[Tensor] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    true: list[Tensor] = field(default_factory=list)

    def prepare(self, states: Sequence[Tensor]) -> None:
        """Make room for the guesses of these states."""
        shapes = [(*state.shape[:2], self.top + 1) for state in states]
        device = states[0].device
        self.candidates = [torch.zeros(shape, dtype=torch.long, device=device) for shape in shapes]
        self.logits = [torch.zeros(shape, device=device) for shape in shapes]
        self.true = [torch.zeros(shape, device=device) for shape in shapes]

    def note(self, window: int, parts: Sequence[slice], logits: Tensor, p: Tensor, index: Tensor) -> None:
        """Logits [E, draft V] of some elements, depth after depth; p [labels, draft V], of which element e has
        `index[e]`."""
        found = logits.topk(self.top, dim=-1)
        best = p.argmax(-1)[index][:, None]
        among = (found.indices == best).any(-1, keepdim=True)
        candidates = torch.cat([found.indices, best], dim=-1)
        own = logits.gather(-1, best).masked_fill_(among, float("-inf"))
        true = p[index[:, None], candidates]
        true[:, -1:].masked_fill_(among, 0.0)
        values, start = torch.cat([found.values, own], dim=-1), 0
        for depth, part in enumerate(parts):
            end = start + part.stop - part.start
            self.candidates[depth][window, part] = candidates[start:end]
            self.logits[depth][window, part] = values[start:end]
            self.true[depth][window, part] = true[start:end]
            start = end


def selector_loss(
    selector: CandidateSelector, states: Sequence[Tensor], before: Sequence[Tensor], lists: Shortlists
) -> Tensor:
    """Cross-entropy of the corrected distributions over the shortlists, under the target's true probabilities of the
    candidates.

    states: for each depth [B, n_d, d], normed; before [B, n_d]: the token before the guess. Differentiable
    in the selector alone.
    """
    total = torch.zeros((), device=states[0].device)
    for depth, (state, tokens) in enumerate(zip(states, before, strict=True)):
        logits, true = lists.logits[depth], lists.true[depth]
        scores = selector.scores(logits, lists.candidates[depth], state.detach(), tokens)
        lost = -(true * scores.float().log_softmax(-1).masked_fill(logits.isinf(), 0.0)).sum(-1)
        total = total + lost.mean() / len(states)
    return total
