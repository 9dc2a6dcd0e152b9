"""Plain modules for training: an EAGLE-3 head, one that guesses several tokens in one forward (P-EAGLE), an MTP head.

An EAGLE-3 head reads three of the target's hidden states at position t, g = fc([h_lo; h_mid; h_hi]), and the embedding
of the token after t; decoder layers over both give a state `a` whose norm times `lm_head` is the distribution of the
token after that.

To guess further, an EAGLE-3 head is fed its own `a` in place of g. The training-time test does the same while it learns
(`unroll`): tokens come from the text, states from the head itself. A parallel head is fed rows that know nothing but
their position instead: the embedding of a mask token, and fc(`mask_hidden`). They see the text's rows and the masked
rows before them through attention, so one layer leaves them nearly blind, and two are the least that makes sense.

Parameters are named as the field's checkpoints name them. Sources: EAGLE-3, arXiv:2503.01840; P-EAGLE, 2602.01469.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.base.errors import UnsupportedModel
from headstart.model.layer_configs import values_of
from headstart.train.unrolled import attend


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of a head: those of one layer of the target, and of the vocabulary it may propose from.

    parallel: it guesses further with masked rows instead of its own states. selector_rank: 0 for a head without one.
    rotary: how much of a head of attention turns; 0 for all. head_norms: queries and keys are normed by head. gated:
    each head's queries are followed by as many numbers of a gate. These three are of MTP heads.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    draft_vocab: int
    rope_theta: float
    eps: float
    norm_before_residual: bool = False
    layers: int = 1
    parallel: bool = False
    selector_rank: int = 0
    selector_top_k: int = 0
    vocab: int = 0
    """Of the target; only a selector needs it."""
    rotary: int = 0
    head_norms: bool = False
    gated: bool = False

    @classmethod
    def of(cls, config: Any, draft_vocab: int, **more: Any) -> HeadShape:
        """From the target's config; what it leaves out is taken as Llama's. `more` are other fields."""
        text = config.get_text_config()
        hidden, heads = int(text.hidden_size), int(text.num_attention_heads)
        rope = getattr(text, "rope_parameters", None) or {}
        theta = rope.get("rope_theta")
        shape = cls(
            hidden=hidden,
            intermediate=_whole(text, "intermediate_size", 8 * hidden // 3),
            heads=heads,
            kv_heads=_whole(text, "num_key_value_heads", heads),
            head_dim=_whole(text, "head_dim", hidden // heads),
            draft_vocab=draft_vocab,
            rope_theta=float(theta) if isinstance(theta, float | int) else 10000.0,
            eps=float(getattr(text, "rms_norm_eps", None) or 1e-5),
            vocab=int(text.vocab_size),
            **more,
        )
        if shape.head_dim % 2 or heads % shape.kv_heads:
            problem = f"{text.model_type} has attention heads of width {shape.head_dim}, {heads} over {shape.kv_heads}"
            hint = "an EAGLE-3 head needs an even width, and query heads that are a multiple of the others"
            raise UnsupportedModel(problem, hint=hint)
        return shape


def _whole(config: Any, name: str, default: int) -> int:
    value = values_of(config, name)[0]
    return value if isinstance(value, int) and value > 0 else default


Past = list[tuple[Tensor, Tensor]]
"""Keys and values [B, H', T, dim] of each pass so far."""


class Layer(nn.Module):
    """A decoder layer: attention, then the MLP. The first attends over [embedding; state], both normed."""

    def __init__(self, shape: HeadShape, *, first: bool) -> None:
        super().__init__()
        if first:
            self.hidden_norm = RMSNorm(shape.hidden, shape.eps)
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.self_attn = _Attention(shape, (2 if first else 1) * shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.mlp = _Mlp(shape)
        self._norm_before_residual = first and shape.norm_before_residual

    def forward(
        self,
        embedded: Tensor | None,
        state: Tensor,
        turn: tuple[Tensor, Tensor],
        past: Past,
        rows: Tensor | None,
    ) -> Tensor:
        """embedded (None but in the first layer), state [B, T, d], or [1, 1, d] where all rows are alike; turn [T, dim]
        each; this pass's keys and values are appended to `past`; rows as `attend` has them. Returns [B, T, d]."""
        if embedded is None:
            x = state + self.self_attn(self.input_layernorm(state), turn, past, rows)
        else:
            normed = self.hidden_norm(state)
            both = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
            x = (normed if self._norm_before_residual else state) + self.self_attn(both, turn, past, rows)
        result: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


class _Attention(nn.Module):
    def __init__(self, shape: HeadShape, width: int) -> None:
        super().__init__()
        self._dim, self._gated = shape.head_dim, shape.gated
        self.q_proj = nn.Linear(width, (2 if shape.gated else 1) * shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)
        if shape.head_norms:
            self.q_norm = RMSNorm(shape.head_dim, shape.eps)
            self.k_norm = RMSNorm(shape.head_dim, shape.eps)
        self._normed = shape.head_norms

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], past: Past, rows: Tensor | None) -> Tensor:
        asked, gate = self.q_proj(x), None
        if self._gated:
            asked, gate = asked.unflatten(-1, (-1, 2, self._dim)).unbind(-2)
        query, key, value = (self._by_head(each) for each in (asked, self.k_proj(x), self.v_proj(x)))
        if self._normed:
            query, key = self.q_norm(query), self.k_norm(key)
        query, key = rotate(query, *turn), rotate(key, *turn)
        batch, count = past[0][0].shape[0] if past else len(x), len(turn[0])
        query, key, value = (each.expand(batch, -1, count, -1) for each in (query, key, value))
        past.append((key, value))
        out = attend(query, past, rows).transpose(1, 2)
        result: Tensor = self.o_proj((out if gate is None else out * gate.sigmoid()).flatten(2))
        return result

    def _by_head(self, x: Tensor) -> Tensor:
        """[B, T, heads * dim] to [B, heads, T, dim]."""
        return x.reshape(*x.shape[:2], -1, self._dim).transpose(1, 2)


class _Mlp(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return result


class RMSNorm(nn.Module):
    """Root-mean-square norm as transformers computes it: in float32, rounded before the gain."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * F.rms_norm(x.float(), x.shape[-1:], eps=self.eps).to(x.dtype)


def rotation(length: int, shape: HeadShape, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin [length, rotary] of every position, in the convention of Llama (halves, not pairs)."""
    turning = shape.rotary or shape.head_dim
    speeds = shape.rope_theta ** (-torch.arange(0, turning, 2, device=device).float() / turning)
    angles = torch.arange(length, device=device).float()[:, None] * speeds
    both = torch.cat([angles, angles], dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., T, dim], of which as many numbers turn as cos and sin have."""
    width = cos.shape[-1]
    x, rest = x[..., :width], x[..., width:]
    turned = torch.cat([-x[..., width // 2 :], x[..., : width // 2]], dim=-1)
    return torch.cat([x * cos + turned * sin, rest], dim=-1) if rest.shape[-1] else x * cos + turned * sin


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


class UnrolledHead(nn.Module, ABC):
    """A head that guesses from the target's states, then from its own. `norm` comes before the output matrix."""

    shape: HeadShape
    norm: RMSNorm

    @abstractmethod
    def begun(self, read: Tensor) -> Tensor:
        """The states [B, T, d] that the first pass works on, of what is read of the target [B, T, ...]."""

    @abstractmethod
    def fed(self, embedded: Tensor, state: Tensor, places: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """What a later pass works on at these places: embeddings and states [B, n, d]. embedded [B, E, d]; state: what
        the pass before it gave, of whose rows it goes on with `inside`."""

    @abstractmethod
    def stack(self) -> list[Layer]:
        """The layers in their order."""

    def step(
        self, token: Tensor, state: Tensor, turn: tuple[Tensor, Tensor], pasts: list[Past], rows: Tensor | None
    ) -> Tensor:
        """One pass, before the final norm [B, n, d]."""
        for number, (layer, past) in enumerate(zip(self.stack(), pasts, strict=True)):
            state = layer(None if number else token, state, turn, past, rows)
        return state

    def unroll(self, read: Tensor, embedded: Tensor, steps: int, kept: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The head's states at each pass of the training-time test, or at each depth of a forward with masked rows,
        before the final norm.

        read [B, T, ...]: what is read of the target at positions 0..T-1. embedded [B, E, d]: embeddings of the tokens
        at 1..E. Pass i gives [B, n_i, d]: row t predicts the token at t + 2 + i, and has read the text up to t + 1 + i,
        or up to t + 1 and i masks. Without `kept` a pass has the rows t <= E - 1 - i, at most T; with it those rows
        [n_i], each of which the pass before has too, and E >= T + steps - 1.
        """
        longest, tokens = read.shape[1], embedded.shape[1]
        cos, sin = rotation(max(tokens, longest) + 1, self.shape, read.device, read.dtype)
        pasts: list[Past] = [[] for _ in self.stack()]
        state = self.step(embedded[:, :longest], self.begun(read), (cos[:longest], sin[:longest]), pasts, None)
        states = [state if kept is None else state[:, kept[0]]]
        rows = torch.arange(longest, device=read.device)
        for i in range(1, steps):
            inside = rows[: tokens - i] if kept is None else torch.searchsorted(rows, kept[i])
            rows = inside if kept is None else kept[i]
            for past in pasts:
                past[1:] = [(key[:, :, inside], value[:, :, inside]) for key, value in past[1:]]
            token, state = self.fed(embedded, state, rows + i, inside)
            turn = cos[rows + i], sin[rows + i]
            state = self.step(token, state, turn, pasts, None if kept is None else rows)
            states.append(state)
        return states


class EagleHead(UnrolledHead):
    """`fc`, decoder layers, a norm, and the matrix of the draft vocabulary."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(3 * shape.hidden, shape.hidden, bias=False)
        self.midlayer = Layer(shape, first=True)
        self.layers = nn.ModuleDict({str(i): Layer(shape, first=False) for i in range(1, shape.layers)})
        self.norm = RMSNorm(shape.hidden, shape.eps)
        self.lm_head = nn.Linear(shape.hidden, shape.draft_vocab, bias=False)
        if shape.parallel:
            self.mask_hidden = nn.Parameter(torch.zeros(1, 1, 3 * shape.hidden))
            self.mask_row = nn.Parameter(torch.zeros(shape.hidden))
        if shape.selector_rank:
            self.candidate_selector = CandidateSelector(shape)

    def begun(self, read: Tensor) -> Tensor:
        """read [B, T, 3d]: the target's states."""
        fused: Tensor = self.fc(read)
        return fused

    def fed(self, embedded: Tensor, state: Tensor, places: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """Of a head with masked rows those of all masks [1, 1, d]."""
        if self.shape.parallel:
            return self.mask_row[None, None], self.fc(self.mask_hidden)
        return embedded[:, places], state[:, inside]

    def stack(self) -> list[Layer]:
        return [self.midlayer, *(layer for layer in self.layers.values() if isinstance(layer, Layer))]


class MtpHead(UnrolledHead):
    """`fc` of a token's embedding and a state, each behind a norm of its own; then one layer of the target's kind. It
    is fed its own states behind the final norm, where those of the target are taken too. The output matrix is the
    target's.

    Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2.
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding_norm = RMSNorm(shape.hidden, shape.eps)
        self.hidden_norm = RMSNorm(shape.hidden, shape.eps)
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.layer = Layer(shape, first=False)
        self.norm = RMSNorm(shape.hidden, shape.eps)

    def begun(self, read: Tensor) -> Tensor:
        """read [B, T, d]: the target's states behind its final norm."""
        return read

    def fed(self, embedded: Tensor, state: Tensor, places: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        return embedded[:, places], self.norm(state[:, inside])

    def stack(self) -> list[Layer]:
        return [self.layer]

    def step(
        self, token: Tensor, state: Tensor, turn: tuple[Tensor, Tensor], pasts: list[Past], rows: Tensor | None
    ) -> Tensor:
        both = self.fc(torch.cat([self.embedding_norm(token), self.hidden_norm(state)], dim=-1))
        result: Tensor = self.layer(None, both, turn, pasts[0], rows)
        return result
