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
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from headstart.train.head_layer import HeadShape, Layer, Past, RMSNorm, rotation
from headstart.train.selector import CandidateSelector


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


H = TypeVar("H", bound=UnrolledHead)


def with_noise(kind: Callable[[HeadShape], H], shape: HeadShape, seed: int) -> H:
    """A float32 head whose matrices are noise; its layers begin as the identity."""
    torch.manual_seed(seed)
    head = kind(shape)
    for parameter in head.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    for layer in head.stack():
        for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
            nn.init.zeros_(last.weight)
    return head
